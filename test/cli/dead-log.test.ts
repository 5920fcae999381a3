import { describe, expect, jest, test } from '@jest/globals';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoordinatorClient } from '../../src/coordinator/client.js';
import { CredentialsFile } from '../../src/coordinator/credentials-file.js';
import { openStateDirectory } from '../../src/events/state-directory.js';
import { systemClock } from '../../src/runtime/clock.js';
import { systemRandom } from '../../src/runtime/random.js';
import { compiled } from '../support/compiled.js';
import { after, afterMounting } from '../support/log-child.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { cli } from './support/cli.js';
import { eventually } from '../support/wait.js';

// On a machine that may be busy.
jest.setTimeout(60_000);

let built = '';

/** The program as a process of its own; made once. */
function program(): string {
  if (built !== '') return built;
  const place = temporaryDirectory();
  cpSync(compiled(''), join(place, 'dist'), { recursive: true, verbatimSymlinks: true });
  writeFileSync(join(place, 'package.json'), '{"version":"1.0.0"}');
  built = join(place, 'dist/cli/main.js');
  return built;
}

describe('a state directory that can not be used ends every command with code 7, names the file and says what to do', () => {
  /** A log with enough events to have pages of its own. */
  async function filled(): Promise<string> {
    const directory = temporaryDirectory();
    const state = await openStateDirectory(directory, { mode: 'write', writer: 'test', nowMs: () => 0 });
    for (let n = 1; n <= 40; n += 1) {
      const text = 'x'.repeat(1000);
      const events = [{ type: 'oddity.seen', v: 1, atMs: 0, text } as const];
      await state.store.append({ stream: 'backend/b', expectedVersion: n - 1, events });
    }
    await state.close();
    return directory;
  }

  test.each([
    ['no SQLite file', (bytes: Buffer) => bytes.fill('nonsense', 0, 4096), /file is not a database/],
    ['a file that ends in its middle', (bytes: Buffer) => bytes.subarray(0, 5000), /malformed|corrupt/],
    ['pages of noise', (bytes: Buffer) => bytes.fill(0xa5, 4096), /malformed|corrupt/],
  ])('%s, which is left as it is', async (_what, harm, words) => {
    const directory = await filled();
    const file = join(directory, 'events.db');
    writeFileSync(file, harm(readFileSync(file)));
    const before = readFileSync(file);
    for (const argv of [
      ['serve', '--listen', '127.0.0.1:0'],
      ['events', 'export'],
    ]) {
      const ended = await cli([...argv, '--state-dir', directory]);
      expect({ argv, code: ended.code, stderr: ended.stderr }).toEqual({
        argv,
        code: 7,
        stderr: expect.stringMatching(words),
      });
      expect(ended.stderr).toContain(file);
      expect(ended.stderr).toMatch(/keep a copy, check the disk, and restore it/);
    }
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  const limits = afterMounting('mount -t tmpfs -o size=16k none "$FIRST"');
  // Where the system allows no mounts, the tests of the store stand for it.
  // eslint-disable-next-line no-restricted-syntax
  (limits === null ? test.skip : test)('a disk without room', () => {
    const directory = temporaryDirectory();
    const argv = [...(limits ?? []), process.execPath, program(), 'serve', '--state-dir', directory];
    const ended = spawnSync(argv[0] ?? '', argv.slice(1), {
      env: { ...process.env, FIRST: directory },
      encoding: 'utf8',
      timeout: 50_000,
    });
    expect({ code: ended.status, stderr: ended.stderr }).toEqual({
      code: 7,
      stderr: expect.stringMatching(/make room on the disk|the room on it/),
    });
    expect(ended.stderr).toContain(directory);
  });

  const readOnly = afterMounting('mount -t tmpfs none "$FIRST"; mount -o remount,ro "$FIRST"');
  // eslint-disable-next-line no-restricted-syntax
  (readOnly === null ? test.skip : test)('a file system that is mounted read-only', () => {
    const directory = temporaryDirectory();
    const argv = [...(readOnly ?? []), process.execPath, program(), 'serve', '--state-dir', directory];
    const ended = spawnSync(argv[0] ?? '', argv.slice(1), {
      env: { ...process.env, FIRST: directory },
      encoding: 'utf8',
      timeout: 50_000,
    });
    expect({ code: ended.status, stderr: ended.stderr }).toEqual({
      code: 7,
      stderr: expect.stringMatching(/not mounted read-only/),
    });
    expect(ended.stderr).toContain(directory);
  });
});

test('INV-12 a coordinator whose log takes no more events ends with code 7 and names the file; what it had confirmed is there', async () => {
  const directory = temporaryDirectory();
  // No file may grow beyond 1,200 blocks: the system answers EFBIG, which SQLite calls an I/O error.
  const argv = [...after('ulimit -f 1200'), process.execPath, program()];
  const serve = spawn(argv[0] ?? '', [...argv.slice(1), 'serve', '--state-dir', directory, '--listen', '127.0.0.1:0'], {
    cwd: directory,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  serve.stderr.setEncoding('utf8').on('data', (piece: string) => (said += piece));
  const ended = new Promise<number | null>((done) => serve.once('exit', done));
  try {
    await eventually(() => (said.includes('listening') ? true : null), 30_000);
    const file = CredentialsFile.parse(JSON.parse(readFileSync(join(directory, 'admin.json'), 'utf8')));
    const client = new CoordinatorClient(file, { clock: systemClock, random: systemRandom });
    const confirmed: string[] = [];
    for (;;) {
      const sent = await client.submit({ kind: 'other', payload: 'x'.repeat(20_000) }, String(confirmed.length));
      if (sent.kind !== 'answered') break;
      confirmed.push(sent.value.taskId);
    }
    client.close();
    expect(confirmed.length).toBeGreaterThan(3);
    expect(await ended).toBe(7);
    expect(said).toContain(`no more writes to ${join(directory, 'events.db')}`);
    expect(said).toMatch(/open-compute: .*restart/);

    const state = await openStateDirectory(directory, { mode: 'write', writer: 'test', nowMs: () => 0 });
    const kept: string[] = [];
    for await (const { stream } of state.store.readAll()) kept.push(stream.replace('task/', ''));
    await state.close();
    expect(kept).toEqual(expect.arrayContaining(confirmed));
  } finally {
    serve.kill('SIGKILL');
  }
});
