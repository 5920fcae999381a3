import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { beforeEach, describe, expect, jest, test } from '@jest/globals';
import { EXIT } from '../../src/cli/exit-codes.js';
import { openStateDirectory } from '../../src/events/state-directory.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { cli, start } from './support/cli.js';
import { said } from './support/site.js';

jest.setTimeout(30_000);

/** A coordinator that nobody runs: port 9 discards. */
const NOBODY = JSON.stringify({ url: 'http://127.0.0.1:9', id: 'me', secret: 'SECRET' });

let home: string;
beforeEach(() => {
  home = temporaryDirectory();
  writeFileSync(join(home, 'credentials.json'), NOBODY, { mode: 0o600 });
  writeFileSync(join(home, 'good.sh'), '#!/bin/sh\n', { mode: 0o755 });
});

const options = () => ({ cwd: home, env: { HOME: home, OPEN_COMPUTE_CREDENTIALS: join(home, 'credentials.json') } });
const worker = (...more: string[]) => ['worker', '--backend', 'local', '--name', 'w', ...more];
const stateOf = (name: string): string => join(home, '.local/state/open-compute', `worker-${name}`);

describe('a worker that can not start says why, with a code, and leaves nothing half-made', () => {
  const cluster = (text: string): void => writeFileSync(join(home, 'cluster.toml'), text);
  const HEAD = '[cluster]\nname = "lab"\n';

  test.each<readonly [what: string, arrange: () => void, args: readonly string[], code: number, message: string]>([
    ['no profile', () => undefined, [], EXIT.usage, 'this worker has no profile to offer'],
    [
      'a profile without a path',
      () => undefined,
      ['--training-profile', 'smoke'],
      EXIT.usage,
      '"smoke" is not NAME=PATH',
    ],
    [
      'a hostile name',
      () => undefined,
      ['--training-profile', '$(id)=good.sh'],
      EXIT.usage,
      'profile "$(id)" is not a name',
    ],
    [
      'one name twice',
      () => undefined,
      ['--training-profile', 'a=good.sh', '--training-profile', 'a=good.sh'],
      EXIT.usage,
      'profile a is there already, by another',
    ],
    [
      'a script that is missing',
      () => undefined,
      ['--training-profile', 'a=none.sh'],
      EXIT.usage,
      'none.sh is missing',
    ],
    [
      'a script that everybody may write',
      () => chmodSync(join(home, 'good.sh'), 0o777),
      ['--training-profile', 'a=good.sh'],
      EXIT.usage,
      'is writable by everybody',
    ],
    [
      'a script in no language',
      () => writeFileSync(join(home, 'good.sh'), 'exit 0\n'),
      ['--training-profile', 'a=good.sh'],
      EXIT.usage,
      'does not start with #!',
    ],
    [
      'a configuration that is not there',
      () => undefined,
      ['--cluster-config', 'none.toml'],
      EXIT.usage,
      'none.toml does not exist',
    ],
    ['a configuration that is no TOML', () => cluster('[cluster\n'), [], EXIT.usage, 'cluster.toml:1:'],
    [
      'an unknown key',
      () => cluster(`${HEAD}[profiles.a]\nscript = "good.sh"\nmemory = 3\n`),
      [],
      EXIT.usage,
      'cluster.toml:5: profiles.a.memory: unknown key',
    ],
    [
      'a script that is not the reviewed one',
      () => cluster(`${HEAD}[profiles.a]\nscript = "good.sh"\nsha256 = "${'0'.repeat(64)}"\n`),
      [],
      EXIT.usage,
      'is not the reviewed one',
    ],
    [
      'a name from two places',
      () => cluster(`${HEAD}[profiles.a]\nscript = "good.sh"\n`),
      ['--training-profile', 'a=good.sh'],
      EXIT.usage,
      'profile a is there already, in ',
    ],
    [
      'credentials that others can read',
      () => chmodSync(join(home, 'credentials.json'), 0o640),
      ['--training-profile', 'a=good.sh'],
      EXIT.unauthorized,
      'others can read it',
    ],
  ])('%s', async (_, arrange, args, code, message) => {
    arrange();
    const before = readdirSync(home).sort();
    const ended = await cli(worker(...args), options());
    expect([ended.code, ended.stdout]).toEqual([code, '']);
    expect(ended.stderr).toContain(message);
    expect(ended.stderr).not.toContain('SECRET');
    expect(ended.stderr).not.toMatch(/\n +at /);
    expect(readdirSync(home).sort()).toEqual(before);
  });

  test('a hostile worker name', async () => {
    const ended = await cli(
      ['worker', '--backend', 'local', '--name', '../../etc', '--training-profile', 'a=good.sh'],
      options(),
    );
    expect([ended.code, ended.stderr]).toEqual([
      EXIT.usage,
      expect.stringContaining('--name "../../etc" is not a name'),
    ]);
  });

  test('a state directory that another worker uses', async () => {
    const other = await openStateDirectory(stateOf('w'), {
      mode: 'write',
      create: true,
      writer: 'worker w',
      nowMs: () => 0,
    });
    const ended = await cli(worker('--training-profile', 'a=good.sh'), options());
    expect(ended.code).toBe(EXIT.storage);
    expect(ended.stderr).toMatch(/it is in use by process \d+ on .* \(worker w, since/);
    await other.close();
  });

  test('a runs directory that everybody may write, or that is a link', async () => {
    mkdirSync(join(home, 'runs'));
    chmodSync(join(home, 'runs'), 0o777);
    symlinkSync(join(home, 'runs'), join(home, 'link'));
    for (const [dir, message] of [
      ['runs', 'is writable by everybody'],
      ['link', 'is a symbolic link'],
      ['no/where', 'its parent directory does not exist'],
    ] as const) {
      const ended = await cli(worker('--training-profile', 'a=good.sh', '--runs-dir', dir), options());
      expect([ended.code, ended.stderr]).toEqual([EXIT.usage, expect.stringContaining(message)]);
    }
  });

  test('a coordinator that does not answer is waited for, and the worker says so', async () => {
    const running = start(worker('--training-profile', 'a=good.sh'), options());
    await said(running, /(the coordinator does not answer)/);
    running.interrupt();
    const { code, stderr } = await running.ended;
    expect(code).toBe(EXIT.ok);
    expect(stderr).not.toContain('SECRET');
    expect(existsSync(join(stateOf('w'), 'events.db'))).toBe(true);
    // It let go of everything: the next one may start.
    const again = await openStateDirectory(stateOf('w'), { mode: 'write', writer: 'test', nowMs: () => 0 });
    await again.close();
  });
});

describe('a client', () => {
  test('fails when the coordinator does not answer, whatever it wanted', async () => {
    for (const argv of [['status'], ['watch'], ['submit', '--kind', 'other', '--payload', '1']]) {
      const { code, stdout, stderr } = await cli(argv, options());
      expect(stderr).toMatch(/^open-compute: the coordinator does not answer: http:\/\/127\.0\.0\.1:9: .*\nhint: /);
      expect([code, stdout]).toEqual([EXIT.unreachable, '']);
      expect(stderr).not.toContain('SECRET');
    }
  });

  test('what answers but is no coordinator does not count as an answer', async () => {
    const server = createServer((socket) => socket.end('HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<html>')).listen(
      0,
      '127.0.0.1',
    );
    const address = await new Promise<string>((resolve) =>
      server.once('listening', () => {
        const at = server.address();
        resolve(typeof at === 'object' && at !== null ? `http://127.0.0.1:${String(at.port)}` : '');
      }),
    );
    const file = join(home, 'other.json');
    writeFileSync(file, JSON.stringify({ url: address, id: 'me', secret: 'x' }), { mode: 0o600 });
    const { code, stderr } = await cli(['status', '--credentials', file], options());
    expect([code, stderr]).toEqual([EXIT.unreachable, expect.stringContaining("is not the coordinator's")]);
    server.close();
  });

  test('no credential is made when its file can not be written', async () => {
    const argv = (out: string) => ['credentials', 'create', '--role', 'viewer', '--name', 'v', '--out', out];
    for (const [out, message] of [
      ['credentials.json', 'exists already'],
      ['no/where.json', 'can not be written'],
    ] as const) {
      const { code, stderr } = await cli(argv(out), options());
      expect([code, stderr]).toEqual([EXIT.usage, expect.stringContaining(message)]);
    }
  });
});

describe('serve', () => {
  const serve = (...more: string[]) => ['serve', '--state-dir', join(home, 'coordinator'), ...more];

  test('a port that is taken, and a state directory that is in use', async () => {
    const first = start(serve('--listen', '127.0.0.1:0'), options());
    const url = await said(first, /"url":"([^"]+)"/);
    const locked = await cli(serve('--listen', '127.0.0.1:0'), options());
    expect([locked.code, locked.stderr]).toEqual([EXIT.storage, expect.stringContaining('(coordinator, since')]);
    const port = new URL(url).port;
    const taken = await cli(['serve', '--state-dir', join(home, 'other'), '--listen', `127.0.0.1:${port}`], options());
    expect([taken.code, taken.stderr]).toEqual([
      EXIT.failed,
      expect.stringContaining(`can not listen on 127.0.0.1:${port}`),
    ]);
    expect(existsSync(join(home, 'other', 'admin.json'))).toBe(false);
    first.interrupt();
    expect((await first.ended).code).toBe(EXIT.ok);
  });
});
