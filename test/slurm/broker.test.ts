import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Token } from '../../src/machines/vocabulary.js';
import { systemClock } from '../../src/runtime/clock.js';
import { endAttempt } from '../../src/slurm/attempt.js';
import { createProcessRun, type Call, type Command } from '../../src/slurm/broker.js';
import { commandEnvironment } from '../../src/slurm/environment.js';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'oc-slurm-broker-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

/** Puts an executable in the place of a command, in a folder of its own. */
function fake(command: Command, script: string): string {
  const bin = mkdtempSync(join(folder, 'bin-'));
  writeFileSync(join(bin, command), `#!/bin/sh\n${script}\n`);
  chmodSync(join(bin, command), 0o755);
  return bin;
}

const run = (bin: string, more: Partial<Call> = {}, path = '/usr/bin:/bin') =>
  createProcessRun(
    commandEnvironment({
      binariesDir: bin,
      path,
      slurmConf: '/etc/slurm.conf',
      user: { name: 'science', uid: 1001, home: folder },
    }),
    systemClock,
  )({ command: 'squeue', argv: [], timeLimitMs: 10_000, outputLimitBytes: 1_000_000, overflow: 'refuse', ...more });

const alive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return !readFileSync(`/proc/${String(pid)}/stat`, 'utf8').includes(') Z ');
  } catch {
    return false;
  }
};

async function until(what: () => boolean): Promise<void> {
  const end = systemClock.monotonicMs() + 5_000;
  while (!what()) {
    if (systemClock.monotonicMs() > end) throw new Error(`not within 5 s: ${what.toString()}`);
    await systemClock.sleep(10);
  }
}

const pidIn = (file: string): number => Number(readFileSync(file, 'utf8').trim());

describe('a process', () => {
  test('P05: its two outputs are kept apart, with its exit code', async () => {
    const bin = fake('squeue', 'echo out; echo err >&2; exit 3');
    expect(await run(bin)).toEqual({ kind: 'exited', exitCode: 3, stdout: 'out\n', stderr: 'err\n', truncated: false });
  });

  test('gets its arguments as they are: no shell reads them (INV-9)', async () => {
    const bin = fake('squeue', 'for word; do printf "%s\\037" "$word"; done');
    const argv = ['gpu; rm -rf /', '$(touch /tmp/x)', '`id`', "it's", 'a\nb', '', '*', '--name=\u6771'];
    const ending = await run(bin, { argv });
    expect(ending).toMatchObject({ kind: 'exited', stdout: argv.map((word) => `${word}\u001f`).join('') });
  });

  test.each([
    ['a NUL in an argument', { argv: ['a\0b'] }],
    ['an argument of 200 kB', { argv: ['x'.repeat(200_000)] }],
    ['a command that is not there', { command: 'sacct' as const }],
  ])('%s is unreachable, never a throw (INV-9, INV-10)', async (_what, call) => {
    const ending = await run(fake('squeue', 'exit 0'), call, folder);
    expect(ending.kind).toBe('unreachable');
  });

  test('a missing command says so', async () => {
    expect(await run(folder, { command: 'sacct' }, folder)).toMatchObject({
      kind: 'unreachable',
      detail: 'sacct: not found on PATH (ENOENT)',
    });
  });

  test('P29, P52, P57: sees the built environment and nothing of ours (INV-9)', async () => {
    const before = { ...process.env };
    Object.assign(process.env, {
      FAKE_API_KEY: 'marker',
      SLURM_JOB_ID: '1',
      SBATCH_QOS: 'x',
      SQUEUE_FORMAT: '%i',
      PMI_RANK: '0',
      LD_PRELOAD: '',
    });
    try {
      const ending = await run(fake('squeue', 'env'));
      const names = (ending.kind === 'exited' ? ending.stdout : '')
        .split('\n')
        .flatMap((line) => (line.includes('=') ? line.split('=', 1) : []));
      // PWD, SHLVL and _ are the fake's own shell's.
      const given = names.filter((name) => !['PWD', 'SHLVL', '_', 'OLDPWD'].includes(name));
      expect(given.sort()).toEqual([
        'HOME',
        'LC_ALL',
        'LOGNAME',
        'PATH',
        'SLURM_CONF',
        'SLURM_TIME_FORMAT',
        'TZ',
        'USER',
      ]);
    } finally {
      process.env = before;
    }
  });

  test('P58: has no input to wait for', async () => {
    expect(await run(fake('squeue', 'cat; echo end'))).toMatchObject({ kind: 'exited', stdout: 'end\n' });
  });

  test('P33: bytes that are not UTF-8 are replaced', async () => {
    expect(await run(fake('squeue', "printf 'a\\351b\\n'"))).toMatchObject({ kind: 'exited', stdout: 'a\ufffdb\n' });
  });

  test('P31: output without end is ended, and is no answer (INV-10)', async () => {
    const ending = await run(fake('squeue', 'exec yes'), { outputLimitBytes: 100_000 });
    expect(ending).toMatchObject({ kind: 'unreachable', stdout: '' });
  });

  test("a step's output is cut at its limit and drained to its end", async () => {
    const bin = fake('srun', 'head -c 3000000 /dev/zero; echo end >&2; exit 4');
    const ending = await run(bin, { command: 'srun', outputLimitBytes: 1_000, overflow: 'cut' });
    expect(ending).toMatchObject({ kind: 'exited', exitCode: 4, stderr: 'end\n', truncated: true });
    if (ending.kind === 'exited') expect(ending.stdout.length).toBe(1_000);
  });

  test('one that dies by a signal is told apart', async () => {
    expect(await run(fake('squeue', 'echo 12; kill -KILL $$'))).toMatchObject({
      kind: 'killed',
      signal: 'SIGKILL',
      stdout: '12\n',
    });
  });
});

describe('the time limit', () => {
  test('P03: ends the whole process group, keeps what was printed, and leaves nobody behind (INV-8)', async () => {
    const bin = fake(
      'sbatch',
      `trap '' TERM HUP INT\necho 77\n(trap '' TERM; echo $BASHPID >/dev/null; sleep 30) &\necho $! >${folder}/child\necho $$ >${folder}/parent\nwait`,
    );
    const ending = await run(bin, { command: 'sbatch', timeLimitMs: 500 });
    expect(ending).toMatchObject({ kind: 'timedOut', stdout: '77\n' });
    if (ending.kind === 'timedOut') {
      expect(ending.afterMs).toBeGreaterThanOrEqual(500);
      expect(ending.afterMs).toBeLessThan(3_000);
    }
    for (const name of ['child', 'parent']) await until(() => !alive(pidIn(join(folder, name))));
  });

  test('a child that keeps the outputs open does not keep the answer back', async () => {
    const bin = fake('squeue', `echo done\nsetsid sleep 5 &\necho $! >${folder}/keeper`);
    const startedMs = systemClock.monotonicMs();
    expect(await run(bin)).toMatchObject({ kind: 'exited', exitCode: 0, stdout: 'done\n' });
    expect(systemClock.monotonicMs() - startedMs).toBeLessThan(3_000);
    const keeper = pidIn(join(folder, 'keeper'));
    if (alive(keeper)) process.kill(keeper, 'SIGKILL');
  });

  test('a step is asked to end before it is made to', async () => {
    const bin = fake('srun', `trap 'echo tidied >${folder}/tidied; exit 0' TERM\nsleep 30 &\nwait`);
    expect(await run(bin, { command: 'srun', timeLimitMs: 300, overflow: 'cut' })).toMatchObject({ kind: 'timedOut' });
    expect(existsSync(join(folder, 'tidied'))).toBe(true);
  });
});

describe('the end of an attempt (INV-8)', () => {
  const token = Token.parse('01000000000000000000000001');
  const left = (script: string, argument = `--job-name=oc-${token}`): number => {
    const bin = fake('sbatch', script);
    const child = spawn(join(bin, 'sbatch'), ['--parsable', argument], { detached: true, stdio: 'ignore' });
    child.unref();
    return child.pid ?? 0;
  };

  test('nothing left: ended', async () => {
    expect(await endAttempt(token, 'oc', systemClock)).toEqual({
      kind: 'ended',
      how: 'no process of the submission was left',
    });
  });

  test('P03: a submission of an earlier worker is ended with all its group', async () => {
    rmSync(join(folder, 'grandchild'), { force: true });
    const pid = left(`sleep 30 & echo $! >${folder}/grandchild; wait`);
    await until(
      () => existsSync(join(folder, 'grandchild')) && readFileSync(join(folder, 'grandchild'), 'utf8') !== '',
    );
    const end = await endAttempt(token, 'oc', systemClock);
    // A child that has just forked still has its parent's command line.
    expect(end).toEqual({
      kind: 'ended',
      how: expect.stringMatching(new RegExp(`^ended process ${String(pid)}(, [0-9]+)* and its group$`)),
    });
    expect(alive(pid)).toBe(false);
    await until(() => !alive(pidIn(join(folder, 'grandchild'))));
  });

  test("another token's submission, and one of another prefix, are left alone", async () => {
    const others = [
      left('sleep 30', '--job-name=oc-01000000000000000000000002'),
      left('sleep 30', `--job-name=xoc-${token}`),
    ];
    await until(() => others.every(alive));
    expect(await endAttempt(token, 'oc', systemClock)).toMatchObject({ kind: 'ended' });
    expect(others.every(alive)).toBe(true);
    for (const pid of others) process.kill(-pid, 'SIGKILL');
  });

  test('processes that cannot be listed are not taken for ended', async () => {
    expect(await endAttempt(token, 'oc', systemClock, join(folder, 'no-proc'))).toMatchObject({ kind: 'alive' });
  });

  test('a process that does not end is told', async () => {
    // A folder that looks like /proc and in which the process never goes away.
    const proc = mkdtempSync(join(folder, 'proc-'));
    const child = spawn('sleep', ['0.01'], { stdio: 'ignore' });
    await new Promise((resolve) => child.once('exit', resolve));
    const pid = String(child.pid ?? 0);
    const { mkdirSync } = await import('node:fs');
    for (const name of [pid, 'self']) {
      mkdirSync(join(proc, name));
      writeFileSync(join(proc, name, 'cmdline'), `sbatch\0--job-name=oc-${token}\0`);
      writeFileSync(join(proc, name, 'stat'), `${pid} (sb) atch) S 1 ${pid} 1`);
    }
    const times = [0, 1, 10_000];
    const clock = { nowMs: () => 0, monotonicMs: () => times.shift() ?? 20_000, sleep: () => Promise.resolve() };
    expect(await endAttempt(token, 'oc', clock, proc)).toEqual({
      kind: 'alive',
      detail: `process ${pid} does not end`,
    });
    expect(readdirSync(proc)).toContain(pid);
  });
});
