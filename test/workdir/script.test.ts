import { describe, expect, jest, test } from '@jest/globals';
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { JobFiles } from '../../src/workdir/directory.js';
import { readClaim, readDone, takeWakes, type DoneMarker } from '../../src/workdir/markers.js';
import {
  EXIT_BOOTSTRAP,
  EXIT_CLAIM_TAKEN,
  jobScriptBody,
  shellQuote,
  type JobScriptOptions,
} from '../../src/workdir/script.js';
import type { Token } from '../../src/machines/vocabulary.js';
import { freshRunsDirectory, preparedJob } from '../support/job-directory.js';
import { eventually } from '../support/wait.js';

// Real processes on a busy machine: the bound is for a hang, not for speed.
jest.setTimeout(60_000);

const SHELLS = [
  ['dash', ['dash']],
  ['bash --posix', ['bash', '--posix']],
] as const;

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

interface Started {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
}

describe.each(SHELLS)('the job script under %s', (_name, shell) => {
  const [command, ...shellArgs] = shell;
  let scripts = 0;

  function start(
    job: { readonly files: JobFiles; readonly token: Token },
    options: Partial<JobScriptOptions> = {},
    environment: Readonly<Record<string, string>> = { RUN_ID: '7' },
  ): Started {
    const body = jobScriptBody({ ...job, identity: '"$RUN_ID"', unset: [], environment: {}, ...options });
    scripts += 1; // a name of its own: rewriting a script that a shell is reading would cut it short
    const script = join(job.files.directory, '..', '..', `run-${String(scripts)}.sh`);
    writeFileSync(script, `#!/bin/sh\n${body}`);
    const child = spawn(command, [...shellArgs, script], {
      cwd: '/',
      env: { PATH: process.env['PATH'] ?? '/usr/bin:/bin', ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (part) => (stdout += String(part)));
    child.stderr.on('data', (part) => (stderr += String(part)));
    const ended = new Promise<Ended>((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (code, signal) => {
        resolve({ code, signal, stdout, stderr });
      });
    });
    return { child, ended };
  }

  async function marker(files: JobFiles): Promise<DoneMarker> {
    const read = await readDone(files);
    if (read.kind !== 'ok') throw new Error(`no end marker: ${JSON.stringify(read)}`);
    return read.marker;
  }

  test('runs the profile in its directory with the two paths, writes the end marker and wakes the worker', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(
      runsDir,
      '#! \t/bin/sh\t-e\n[ "$1" = "$OPEN_COMPUTE_INPUT" ] && [ "$2" = "$OPEN_COMPUTE_RESULT" ] || exit 9\n' +
        'pwd; echo "$OPEN_COMPUTE_JOB_ID"; cat; cp "$1" "$2"\n',
      { message: 'hi' },
    );
    const { ended } = start(job);
    expect(await ended).toEqual({
      code: 0,
      signal: null,
      stdout: `${job.files.directory}\n${job.files.jobId}\n`,
      stderr: '',
    });
    expect(readFileSync(job.files.result, 'utf8')).toBe('{"message":"hi"}\n');
    expect(await marker(job.files)).toMatchObject({
      token: job.token,
      identity: '7',
      stage: 'profile',
      status: 0,
      signal: null,
      detail: '',
    });
    expect(await takeWakes(runsDir)).toEqual({ kind: 'ok', jobIds: [job.files.jobId] });
    expect(readdirSync(job.files.directory).sort()).toEqual(['claim', 'done', 'input.json', 'profile', 'result.json']);
  });

  test('keeps the exit status of the profile, also 127 and numbers over 128 that are no signal', async () => {
    const runsDir = await freshRunsDirectory();
    for (const status of [0, 1, 3, 126, 127, 147, 200, 255]) {
      const job = await preparedJob(runsDir, `#!/bin/sh\nexit ${String(status)}\n`);
      expect(await start(job).ended).toMatchObject({ code: status, signal: null });
      expect(await marker(job.files)).toMatchObject({ stage: 'profile', status, signal: null });
    }
  });

  test('dies by the signal that the profile died by', async () => {
    const runsDir = await freshRunsDirectory();
    for (const [name, number] of [
      ['SIGKILL', 9],
      ['SIGSEGV', 11],
      ['SIGTERM', 15],
    ] as const) {
      const job = await preparedJob(runsDir, `#!/bin/sh\nulimit -c 0\nkill -${String(number)} $$\n`);
      expect(await start(job).ended).toMatchObject({ code: null, signal: name });
      expect(await marker(job.files)).toMatchObject({ stage: 'profile', status: 128 + number, signal: number });
    }
  });

  test('passes SIGTERM on to the profile, once and before it ends, and keeps what the profile makes of it', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(
      runsDir,
      '#!/bin/sh\ntrap "echo saved >saved; exit 4" TERM\n: >ready\nfor i in $(seq 200); do sleep 0.05; done\n',
    );
    const { child, ended } = start(job);
    await eventually(() => (existsSync(join(job.files.directory, 'ready')) ? true : null));
    child.kill('SIGTERM');
    expect(await ended).toMatchObject({ code: 4, signal: null });
    expect(readFileSync(join(job.files.directory, 'saved'), 'utf8')).toBe('saved\n');
    expect(await marker(job.files)).toMatchObject({ status: 4, signal: null });
  });

  test('goes on waiting after a signal that the profile outlives, many times over', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(
      runsDir,
      '#!/bin/sh\ntrap "echo x >>seen" USR1\n: >ready\nfor i in $(seq 500); do [ "$(wc -l <seen 2>/dev/null || echo 0)" -lt 5 ] || exit 127; sleep 0.02; done\nexit 1\n',
    );
    const seen = join(job.files.directory, 'seen');
    const { child, ended } = start(job);
    await eventually(() => (existsSync(join(job.files.directory, 'ready')) ? true : null));
    for (let count = 1; count <= 5; count += 1) {
      child.kill('SIGUSR1');
      await eventually(() => (existsSync(seen) && readFileSync(seen, 'utf8').length >= 2 * count ? true : null));
    }
    expect(await ended).toMatchObject({ code: 127, signal: null });
    expect(await marker(job.files)).toMatchObject({ status: 127, signal: null });
  });

  test('INV-8: of many jobs with one token that start at once, exactly one does the work', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(runsDir, '#!/bin/sh\necho work >>"$OPEN_COMPUTE_DIRECTORY/work"\n');
    const runs = Array.from({ length: 12 }, (_, index) => start(job, {}, { RUN_ID: String(100 + index) }));
    const ends = await Promise.all(runs.map((run) => run.ended));
    expect(ends.map((end) => end.code).sort((a, b) => Number(a) - Number(b))).toEqual([
      0,
      ...Array.from({ length: 11 }, () => EXIT_CLAIM_TAKEN),
    ]);
    expect(readFileSync(join(job.files.directory, 'work'), 'utf8')).toBe('work\n');
    const winner = String(100 + ends.findIndex((end) => end.code === 0));
    expect(await readClaim(job.files)).toEqual({ kind: 'ok', identity: winner });
    expect(await marker(job.files)).toMatchObject({ identity: winner, status: 0 });
  });

  test('INV-8: a second job with the token leaves the end marker and the result of the first one alone', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(runsDir, '#!/bin/sh\necho \'"first"\' >"$2"\n');
    await start(job).ended;
    const before = readFileSync(job.files.done, 'utf8');
    await takeWakes(runsDir);
    const second = await start(job, {}, { RUN_ID: '8' }).ended;
    expect(second.code).toBe(EXIT_CLAIM_TAKEN);
    expect(second.stderr).toContain('job 7 holds the claim; this is 8');
    expect(readFileSync(job.files.done, 'utf8')).toBe(before);
    expect(readFileSync(job.files.result, 'utf8')).toBe('"first"\n');
    expect(await takeWakes(runsDir)).toEqual({ kind: 'ok', jobIds: [] });
  });

  test('INV-8: a job that runs again finds its own claim, goes on, and counts nothing of the earlier run', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(runsDir, '#!/bin/sh\nif [ -e kept ]; then exit 5; fi\n: >kept; echo 1 >"$2"\n');
    expect((await start(job).ended).code).toBe(0);
    expect((await start(job).ended).code).toBe(5);
    expect(existsSync(job.files.result)).toBe(false);
    expect(await marker(job.files)).toMatchObject({ identity: '7', status: 5 });
  });

  test('says bootstrap, with an exit code of its own, when the profile cannot be started', async () => {
    const runsDir = await freshRunsDirectory();
    const unstartable = await preparedJob(runsDir, '#!/no/such/interpreter\n');
    expect((await start(unstartable).ended).code).toBe(EXIT_BOOTSTRAP);
    expect(await marker(unstartable.files)).toMatchObject({ stage: 'bootstrap', status: EXIT_BOOTSTRAP });
    expect(await marker(unstartable.files)).toMatchObject({ detail: expect.stringContaining('/no/such/interpreter') });
    const missing = await preparedJob(runsDir, '#!/bin/sh\n');
    rmSync(missing.files.input);
    expect((await start(missing).ended).code).toBe(EXIT_BOOTSTRAP);
    expect(await marker(missing.files)).toMatchObject({ stage: 'bootstrap', detail: expect.stringContaining('input') });
    const anonymous = await preparedJob(runsDir, '#!/bin/sh\n');
    expect((await start(anonymous, {}, {}).ended).code).toBe(EXIT_BOOTSTRAP);
    expect(await readDone(anonymous.files)).toEqual({ kind: 'missing' });
  });

  test('does nothing anywhere else when its directory is missing', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(runsDir, '#!/bin/sh\necho work >&2\n');
    renameSync(job.files.directory, `${job.files.directory}.away`);
    const end = await start(job).ended;
    expect(end.code).toBe(EXIT_BOOTSTRAP);
    expect(end.stderr).not.toContain('work');
    expect(readdirSync(`${job.files.directory}.away`).sort()).toEqual(['input.json', 'profile']);
    expect(existsSync('/claim')).toBe(false);
  });

  test('ends quietly when its directory is removed right after the end marker', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(runsDir, '#!/bin/sh\nexit 0\n');
    const end = await start(job, { atEnd: `rm -rf ${shellQuote(runsDir)}` }).ended;
    expect(end).toMatchObject({ code: 0, stderr: '' });
    expect(existsSync(runsDir)).toBe(false);
  });

  test('ends with the status of the profile when neither marker nor wake file can be written', async () => {
    const runsDir = await freshRunsDirectory();
    rmSync(join(runsDir, '.wake'), { recursive: true });
    const job = await preparedJob(runsDir, '#!/bin/sh\nmkdir done.new\nexit 3\n');
    const end = await start(job).ended;
    expect(end.code).toBe(3);
    expect(end.stderr).toContain('the end marker could not be written');
  });

  test('hides the variables of the backend and shows the declared ones, whatever their values hold', async () => {
    const runsDir = await freshRunsDirectory();
    const job = await preparedJob(runsDir, '#!/bin/sh\nprintf "%s" "$ODD"; echo "|${HIDDEN-unset}|$PATH"\n');
    const odd = `a,b 'c' "d" $(touch /tmp/x) \`e\` \\n\nlast`;
    const { ended } = start(
      job,
      { unset: ['HIDDEN', 'NEVER_SET'], environment: { ODD: odd, PATH: '/nowhere' } },
      { RUN_ID: '7', HIDDEN: 'secret' },
    );
    expect((await ended).stdout).toBe(`${odd}|unset|/nowhere\n`);
    expect(await marker(job.files)).toMatchObject({ status: 0 });
  });

  test('INV-9: hostile parameters reach the profile as data and nothing else', async () => {
    const runsDir = await freshRunsDirectory();
    const planted = join(runsDir, 'planted');
    const hostile = {
      [`$(touch ${planted})`]: `$(touch ${planted})`,
      quotes: `'; touch ${planted}; '"; touch ${planted}; "`,
      ticks: `\`touch ${planted}\``,
      lines: `\n touch ${planted}\n#SBATCH --wrap=x\n`,
      nul: '\0',
    };
    const job = await preparedJob(runsDir, '#!/bin/sh\ncp "$1" "$2"\n', hostile);
    const body = jobScriptBody({ ...job, identity: '"$RUN_ID"', unset: [], environment: {} });
    expect(body).not.toContain('touch');
    expect((await start(job).ended).code).toBe(0);
    expect(JSON.parse(readFileSync(job.files.result, 'utf8'))).toEqual(hostile);
    expect(existsSync(planted)).toBe(false);
  });

  test('works in a runs directory with spaces, quotes and a dollar sign in its path', async () => {
    const outer = join(await freshRunsDirectory(), `it's $(a) "dir"`);
    mkdirSync(join(outer, '.wake'), { recursive: true });
    const runsDir = join(outer, 'runs');
    mkdirSync(join(runsDir, '.wake'), { recursive: true });
    const job = await preparedJob(runsDir, '#!/bin/sh\ncp "$1" "$2"\n');
    expect(await start(job).ended).toMatchObject({ code: 0, stderr: '' });
    expect(await takeWakes(runsDir)).toEqual({ kind: 'ok', jobIds: [job.files.jobId] });
  });
});

test('INV-9: refuses variable names that are shell text, and values that no environment can hold', async () => {
  const runsDir = await freshRunsDirectory();
  const job = await preparedJob(runsDir, '#!/bin/sh\n');
  const build = (options: Partial<JobScriptOptions>): (() => string) => {
    return () => jobScriptBody({ ...job, identity: '"$RUN_ID"', unset: [], environment: {}, ...options });
  };
  expect(build({ environment: { 'A=$(id)': 'x' } })).toThrow('not the name of a variable');
  expect(build({ environment: { A: 'x\0y' } })).toThrow('NUL');
  expect(build({ unset: ['A; rm -rf /'] })).toThrow('not the name of a variable');
});
