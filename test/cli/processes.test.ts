import { existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { EXIT } from '../../src/cli/exit-codes.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { eventually } from '../support/wait.js';
import { installed, run, type Child, type ChildOptions } from './support/program.js';

// Whole processes on a machine that may be busy.
jest.setTimeout(60_000);

const SMOKE_SCRIPT = resolve(import.meta.dirname, '../../examples/slurm-smoke.sh');

let main: string;
let home: string;
const running: Child[] = [];

beforeAll(async () => {
  main = await installed();
  home = temporaryDirectory();
});

afterAll(async () => {
  for (const child of running) child.process.kill('SIGKILL');
  await Promise.all(running.map(({ ended }) => ended));
});

function start(argv: readonly string[], options: Partial<ChildOptions> = {}): Child {
  const child = run(process.execPath, [main, ...argv], { cwd: home, ...options });
  running.push(child);
  return child;
}

const said = (child: Child, pattern: RegExp): Promise<string> =>
  eventually(() => pattern.exec(child.stderr())?.[1] ?? null, 30_000);

async function end(child: Child): Promise<readonly [code: number | null, stdout: string, stderr: string]> {
  const { code } = await child.ended;
  return [code, child.stdout(), child.stderr()];
}

test('demo shows the phases, prints the result alone on stdout, ends by itself and leaves nothing', async () => {
  const temporary = temporaryDirectory();
  const [code, stdout, stderr] = await end(start(['demo'], { env: { TMPDIR: temporary } }));
  expect([code, stderr]).toEqual([EXIT.ok, expect.stringMatching(/Queued[^]*Leased[^]*Completed/)]);
  expect(JSON.parse(stdout)).toMatchObject({ message: 'hello' });
  expect(readdirSync(temporary)).toEqual([]);
});

describe('services', () => {
  test('a worker that is told to stop leaves its job running, exits 0, and the next one delivers the result', async () => {
    const serve = start(['serve', '--state-dir', 'state', '--listen', '127.0.0.1:0']);
    const url = await said(serve, /"url":"([^"]+)"/);
    const admin = join(home, 'state', 'admin.json');
    expect(statSync(admin).mode & 0o777).toBe(0o600);
    expect(serve.stderr()).toContain(admin);

    const env = { OPEN_COMPUTE_CREDENTIALS: admin };
    const made = start(['credentials', 'create', '--role', 'worker', '--name', 'w', '--out', 'w.json'], { env });
    expect((await end(made))[0]).toBe(EXIT.ok);
    const argv = ['worker', '--backend', 'local', '--name', 'w', '--credentials', 'w.json'];
    const work = [...argv, '--training-profile', `smoke=${SMOKE_SCRIPT}`];
    const first = start(work);
    await said(first, /(started; adopted)/);
    const payload = JSON.stringify({ profile: 'smoke', parameters: { message: 'on', sleep: 3 } });
    const [code, task] = await end(start(['submit', '--kind', 'training', '--payload', payload], { env }));
    expect(code).toBe(EXIT.ok);
    await said(first, /(submission\.accepted)/);

    first.process.kill('SIGTERM');
    expect(await first.ended).toEqual({ code: EXIT.ok, signal: null });
    expect(first.stderr()).toContain('jobs are left running');

    const second = start(work);
    const [waited, result] = await end(start(['result', task.trim(), '--wait'], { env }));
    expect([waited, JSON.parse(result)]).toEqual([EXIT.ok, expect.objectContaining({ message: 'on' })]);

    second.process.kill('SIGKILL');
    await second.ended;
    const third = start(work);
    await said(third, /(started; adopted)/);

    // With the coordinator gone, a task that is waited for is waited for on: nothing of it is lost.
    serve.process.kill('SIGTERM');
    expect(await serve.ended).toEqual({ code: EXIT.ok, signal: null });
    third.process.kill('SIGINT');
    expect(await third.ended).toEqual({ code: EXIT.ok, signal: null });
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  });

  /** A program that has nothing of ours but the process's own input and output. */
  function bare(name: string, code: string): Child {
    const script = join(home, name);
    writeFileSync(script, `import { processIo } from '${join(dirname(main), 'process-io.js')}';\n${code}`);
    const child = run(process.execPath, [script], { cwd: home });
    running.push(child);
    return child;
  }

  test('the first signal is a wish, the second one ends the process at once', async () => {
    const child = bare(
      'stubborn.mjs',
      "const io = processIo(); setInterval(() => process.stderr.write(io.signal.aborted ? 'asked ' : 'ready '), 20);",
    );
    await said(child, /(ready)/);
    child.process.kill('SIGTERM');
    await said(child, /(asked)/);
    child.process.kill('SIGTERM');
    expect(await child.ended).toEqual({ code: 128 + 15, signal: null });
  });

  test('Ctrl-C ends the reading of standard input', async () => {
    const child = bare(
      'reader.mjs',
      "const io = processIo(); process.stderr.write('ready'); try { for await (const _ of io.stdin); } catch { process.exitCode = 9; }",
    );
    await said(child, /(ready)/);
    child.process.kill('SIGINT');
    expect(await child.ended).toEqual({ code: 9, signal: null });
  });
});

describe('a person sees', () => {
  test('no stack, unless it is asked for', async () => {
    const log = join(home, 'broken.jsonl');
    writeFileSync(log, '{"no":"event"}\n');
    const [code, stdout, stderr] = await end(start(['replay', log]));
    expect([code, stdout]).toEqual([EXIT.usage, '']);
    expect(stderr).toContain(`${log}:1: no recorded event`);
    expect(stderr).not.toMatch(/\n\s+at /);
    const [, , debug] = await end(start(['replay', log], { env: { OPEN_COMPUTE_DEBUG: '1' } }));
    expect(debug).toMatch(/\n\s+at .*jsonl\.js/);
  });

  test('nothing when the reader of a pipe has enough', async () => {
    const child = run('sh', ['-c', '"$0" "$@" machine job | head -n 1', process.execPath, main], { cwd: home });
    const { code } = await child.ended;
    expect([code, child.stdout(), child.stderr()]).toEqual([0, '{\n', '']);
  });

  test('bytes that are no text in an argument as an error, not as something else', async () => {
    const script = `"$0" "$@" submit --kind training --payload "$(printf '{"profile":"\\377"}')"`;
    const file = join(home, 'utf8.json');
    writeFileSync(file, JSON.stringify({ url: 'http://127.0.0.1:9', id: 'me', secret: 'x' }), { mode: 0o600 });
    const child = run('sh', ['-c', script, process.execPath, main], {
      cwd: home,
      env: { OPEN_COMPUTE_CREDENTIALS: file },
    });
    expect((await child.ended).code).toBe(EXIT.usage);
    expect(child.stderr()).toContain('the payload is not UTF-8');
  });

  test('the state directory that a default stands for', async () => {
    const [code, stdout] = await end(start(['doctor', '--name', 'x', '--json'], { env: { XDG_STATE_HOME: home } }));
    expect(code).toBe(EXIT.ok);
    expect(stdout).toContain(join(home, 'open-compute', 'worker-x'));
    expect(existsSync(join(home, 'open-compute'))).toBe(false);
  });
});
