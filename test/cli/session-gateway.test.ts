import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, jest, test } from '@jest/globals';
import { EXIT } from '../../src/cli/exit-codes.js';
import { readSessionGateway } from '../../src/cli/session-gateway.js';
import { certificate } from '../support/certificates.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { cli } from './support/cli.js';

jest.setTimeout(30_000);

const { cert, key } = certificate('here');
const other = certificate('elsewhere').cert;
const sessionListen = { host: '127.0.0.1', port: 7_100 };

let home: string;
beforeEach(() => {
  home = temporaryDirectory();
  for (const [name, text] of Object.entries({ 'c.pem': cert, 'k.pem': key, 'ca.pem': other, 'plain.txt': 'no PEM\n' }))
    writeFileSync(join(home, name), text);
});

type Options = Parameters<typeof readSessionGateway>[1];
const read = (options: Options) => readSessionGateway({ cwd: home }, options);

describe('the options of a worker about sessions', () => {
  test('say nothing: nobody listens', async () => {
    expect(await read({})).toBeNull();
  });

  test.each<readonly [string, Options, object]>([
    ['an address, which is advertised as it is', { sessionListen }, { advertise: '127.0.0.1', tls: null }],
    [
      'every address, and a name that nodes reach',
      { sessionListen: { host: '0.0.0.0', port: 0 }, sessionAdvertise: 'gate.example.org' },
      { host: '0.0.0.0', port: 0, advertise: 'gate.example.org' },
    ],
    [
      'a certificate, which agents trust',
      { sessionListen, sessionTlsCert: 'c.pem', sessionTlsKey: 'k.pem' },
      { tls: { cert, key, trust: cert } },
    ],
    [
      'a certificate, and what agents check it with',
      { sessionListen, sessionTlsCert: 'c.pem', sessionTlsKey: 'k.pem', sessionTlsTrust: 'ca.pem' },
      { tls: { cert, key, trust: other } },
    ],
  ])('may give %s', async (_, options, gateway) => {
    expect(await read(options)).toMatchObject(gateway);
  });

  test.each<readonly [string, Options, string, string]>([
    ['to advertise without listening', { sessionAdvertise: 'gate' }, 'no --session-listen', '--session-listen HOST'],
    ['a certificate without listening', { sessionTlsCert: 'c.pem' }, 'no --session-listen', '--session-listen HOST'],
    ['to trust without listening', { sessionTlsTrust: 'c.pem' }, 'no --session-listen', '--session-listen HOST'],
    [
      'to advertise every address of the machine',
      { sessionListen, sessionAdvertise: '0.0.0.0' },
      'advertise a name or an address',
      '--session-advertise HOST',
    ],
    [
      'to advertise what is no name',
      { sessionListen, sessionAdvertise: 'gate:7000' },
      'neither a host name nor an address',
      '--session-advertise HOST',
    ],
    ['a certificate without its key', { sessionListen, sessionTlsCert: 'c.pem' }, 'belong together', 'give both'],
    ['a key without its certificate', { sessionListen, sessionTlsKey: 'k.pem' }, 'belong together', 'give both'],
    [
      'trust without a certificate',
      { sessionListen, sessionTlsTrust: 'ca.pem' },
      '--session-tls-trust without a certificate',
      '--session-tls-cert',
    ],
    [
      'a certificate that is no PEM file',
      { sessionListen, sessionTlsCert: 'plain.txt', sessionTlsKey: 'k.pem' },
      '--session-tls-cert "plain.txt" is no PEM file',
      '-----BEGIN',
    ],
    [
      'a key that is not there',
      { sessionListen, sessionTlsCert: 'c.pem', sessionTlsKey: 'gone.pem' },
      '--session-tls-key "gone.pem" can not be read',
      'nothing was started',
    ],
  ])('may not give %s, which is said with what to do', async (_, options, message, hint) => {
    await expect(read(options)).rejects.toMatchObject({
      exitCode: EXIT.usage,
      message: expect.stringContaining(message),
      hint: expect.stringContaining(hint),
    });
  });
});

describe('a worker on the command line', () => {
  const worker = (...more: string[]) =>
    cli(['worker', '--backend', 'local', '--name', 'w', ...more], {
      cwd: home,
      env: { HOME: home, OPEN_COMPUTE_CREDENTIALS: join(home, 'credentials.json') },
    });
  beforeEach(() => {
    const nobody = JSON.stringify({ url: 'http://127.0.0.1:9', id: 'me', secret: 'SECRET' });
    writeFileSync(join(home, 'credentials.json'), nobody, { mode: 0o600 });
    writeFileSync(join(home, 'cluster.toml'), '[cluster]\nname = "lab"\n[profiles.gang]\nnodes = 2\n');
  });

  test('whose profiles serve sessions only does not start where no agent can dial in', async () => {
    const ended = await worker();
    expect(ended.code).toBe(EXIT.usage);
    expect(ended.stderr).toContain('serve sessions only, and agents can not dial in');
    expect(ended.stderr).toContain('give --session-listen HOST:PORT');
  });

  test.each(['7100', '127.0.0.1', '127.0.0.1:70000', 'http://127.0.0.1:1'])(
    'takes no %s for the place where it listens',
    async (text) => {
      const ended = await worker('--session-listen', text);
      expect(ended.code).toBe(EXIT.usage);
      expect(ended.stderr).toContain('HOST:PORT');
    },
  );
});
