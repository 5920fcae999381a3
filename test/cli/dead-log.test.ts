import { expect, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoordinatorClient } from '../../src/coordinator/client.js';
import { CredentialsFile } from '../../src/coordinator/credentials-file.js';
import { openStateDirectory } from '../../src/events/state-directory.js';
import { systemClock } from '../../src/runtime/clock.js';
import { systemRandom } from '../../src/runtime/random.js';
import { compiled } from '../support/compiled.js';
import { after } from '../support/log-child.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { eventually } from '../support/wait.js';

test('INV-12 a coordinator whose log takes no more events ends with code 7 and names the file; what it had confirmed is there', async () => {
  const program = temporaryDirectory();
  cpSync(compiled(''), join(program, 'dist'), { recursive: true, verbatimSymlinks: true });
  writeFileSync(join(program, 'package.json'), '{"version":"1.0.0"}');
  const directory = temporaryDirectory();
  // No file may grow beyond 1,200 blocks: the system answers EFBIG, which SQLite calls an I/O error.
  const argv = [...after('ulimit -f 1200'), process.execPath, join(program, 'dist/cli/main.js')];
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
}, 60_000);
