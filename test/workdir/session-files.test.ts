import { beforeEach, describe, expect, test } from '@jest/globals';
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { jobFiles, type JobFiles } from '../../src/workdir/directory.js';
import { prepareSession, putCredential, sessionFiles, type SessionContents } from '../../src/workdir/session-files.js';
import { freshDirectory, freshRunsDirectory, jobIdOf, nextToken, unprivileged } from '../support/job-directory.js';

const modeOf = (path: string): string => (lstatSync(path).mode & 0o777).toString(8);
const settings = { host: 'gate', port: 7_000, trust: null, aloneLimitS: 600 } as const;

let files: JobFiles;
let agentSource: string;
beforeEach(async () => {
  files = jobFiles(await freshRunsDirectory(), jobIdOf(nextToken()));
  agentSource = join(freshDirectory(), 'agent.js');
  writeFileSync(agentSource, '// the agent\n', { mode: 0o644 });
});

const prepare = (over: Partial<SessionContents> = {}) =>
  prepareSession(files, { agentSource, parameters: { a: 1 }, settings, ...over });

describe('the directory of a session', () => {
  test('INV-9 is its owner’s alone, with the agent, what it is told, and a place for credentials', async () => {
    expect(await prepare()).toEqual({ kind: 'ok' });
    const { agent, config, credentials, credentialTemplate } = sessionFiles(files);
    expect([files.directory, credentials, agent, config, files.input].map(modeOf)).toEqual([
      '700',
      '700',
      '500',
      '600',
      '600',
    ]);
    expect(readFileSync(agent, 'utf8')).toBe('// the agent\n');
    expect(JSON.parse(readFileSync(files.input, 'utf8'))).toEqual({ a: 1 });
    expect(JSON.parse(readFileSync(config, 'utf8'))).toEqual({
      ...settings,
      directory: files.directory,
      credentials: credentialTemplate,
    });
    expect(credentialTemplate).toBe(join(credentials, 'rank-{rank}'));
  });

  test('may be made again: files are replaced as a whole, credentials stay', async () => {
    await prepare();
    await putCredential(files, 0, 'first');
    writeFileSync(agentSource, '// a newer agent\n');
    chmodSync(files.directory, 0o755);
    expect(await prepare({ settings: { ...settings, port: 7_001, trust: 'PEM' } })).toEqual({ kind: 'ok' });
    const { agent, config, credentials } = sessionFiles(files);
    expect(readFileSync(agent, 'utf8')).toBe('// a newer agent\n');
    expect(JSON.parse(readFileSync(config, 'utf8'))).toMatchObject({ port: 7_001, trust: 'PEM' });
    expect([modeOf(files.directory), modeOf(agent), readdirSync(credentials)]).toEqual(['700', '500', ['rank-0']]);
    expect(readdirSync(files.directory).filter((name) => name.endsWith('.new'))).toEqual([]);
  });

  test('has no copy of the agent where a profile names its own', async () => {
    expect(await prepare({ agentSource: null, parameters: undefined })).toEqual({ kind: 'ok' });
    expect(readdirSync(files.directory).sort()).toEqual(['agent.json', 'credentials', 'input.json']);
    expect(readFileSync(files.input, 'utf8')).toBe('{}\n');
  });

  test('without the agent’s file is not made, and trying again does not help', async () => {
    rmSync(agentSource);
    expect(await prepare()).toEqual({
      kind: 'invalidSpec',
      detail: expect.stringContaining(`the agent ${agentSource} is missing`),
    });
  });

  test('that can not be made, or an agent that can not be read, is worth another try, and says where', async () => {
    const io = (detail: string) => ({ kind: 'io', detail: expect.stringContaining(detail) });
    await unprivileged(async () => {
      expect(await prepare()).toEqual(io(files.directory));
    });
    writeFileSync(files.directory, 'in its place');
    expect(await prepare()).toEqual(io(files.directory));
    rmSync(files.directory);
    expect(await prepare({ agentSource: files.directory.replace(/[^/]*$/, '') })).toEqual(io('EISDIR'));
  });
});

describe('a credential', () => {
  test('INV-9 is a file of its rank that only its owner reads, one line, in the place of the one before', async () => {
    await prepare();
    const { credentials } = sessionFiles(files);
    expect(await putCredential(files, 3, 'one')).toEqual({ kind: 'ok' });
    expect(await putCredential(files, 3, 'two')).toEqual({ kind: 'ok' });
    expect(readdirSync(credentials)).toEqual(['rank-3']);
    expect([readFileSync(join(credentials, 'rank-3'), 'utf8'), modeOf(join(credentials, 'rank-3'))]).toEqual([
      'two\n',
      '600',
    ]);
  });

  test('is not written through a link that somebody has put in its place', async () => {
    await prepare();
    const elsewhere = join(freshDirectory(), 'elsewhere');
    writeFileSync(elsewhere, 'mine');
    const { credentials } = sessionFiles(files);
    for (const name of ['rank-0', 'rank-0.new']) symlinkSync(elsewhere, join(credentials, name));
    expect(await putCredential(files, 0, 'secret')).toEqual({ kind: 'ok' });
    expect(readFileSync(elsewhere, 'utf8')).toBe('mine');
    expect(lstatSync(join(credentials, 'rank-0')).isSymbolicLink()).toBe(false);
  });

  test('that can not be written says whose it is, and not what it is', async () => {
    const answer = await putCredential(files, 1, 'secret');
    expect(answer).toEqual({ kind: 'io', detail: expect.stringContaining('the credential of rank 1') });
    expect(JSON.stringify(answer)).not.toContain('secret');
    await prepare();
    mkdirSync(join(sessionFiles(files).credentials, 'rank-1'));
    expect((await putCredential(files, 1, 'secret')).kind).toBe('io');
  });
});
