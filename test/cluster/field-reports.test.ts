import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { z } from 'zod';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { eventually } from '../support/wait.js';
import { Gateway } from './support/gateway.js';
import { asAdmin, asJobUser, ctl, JOB_USER, userDirectory } from './support/site.js';

/** Field reports that only a real cluster shows; docs/field-reports.md has the table. */

const script = (body: string, ...directives: readonly string[]): string =>
  ['#!/bin/sh', ...directives.map((line) => `#SBATCH ${line}`), body, ''].join('\n');

const SCRIPTS = {
  'quick.sh': script('sleep 3; printf "{}" >"$2"'),
  'elsewhere.sh': script('printf "{}" >"$2"', '--output=/nonexistent/x', '--error=/nonexistent/y'),
  'look.sh': script(
    [
      'env | grep -E "^(SLURM|SRUN|PMI|FAKE)" | sort',
      'printf \'{"cpus":%s,"inStep":%s}\' "$(nproc)" "$(srun --ntasks=1 nproc)" >"$2"',
      'scontrol show job "$SLURM_JOB_ID"',
    ].join('\n'),
  ),
  'warned.sh': script(
    [
      'start=$(date +%s)',
      'trap \'printf "{\\"afterS\\":%s}" $(($(date +%s) - start)) >"$2"; exit 0\' USR1',
      'while :; do sleep 1; done',
    ].join('\n'),
    '--time=2',
    '--signal=B:USR1@60',
  ),
};
const TOML = ['[cluster]', 'name = "test"', '']
  .concat(Object.keys(SCRIPTS).flatMap((name) => [`[profiles.${name.replace('.sh', '')}]`, `script = "${name}"`, '']))
  .join('\n')
  .replace('script = "look.sh"', 'script = "look.sh"\ncpus = 2');

describe('what was reported by others, on a real cluster', () => {
  let gateway: Gateway;
  let warned: TaskId;
  let insideOfAJob: Readonly<Record<string, string>>;
  let home: string;

  beforeAll(async () => {
    // The environment of somebody who works inside an allocation of one CPU: the scheduler's own variables.
    const inside = await asJobUser(await userDirectory(), ['srun', '--ntasks=1', '--cpus-per-task=1', 'env']);
    expect(inside.exitCode).toBe(0);
    insideOfAJob = Object.fromEntries(
      inside.stdout
        .split('\n')
        .filter((line) => /^(?:SLURM|SRUN|PMI)[A-Z_]*=/.test(line) && !line.startsWith('SLURM_CONF='))
        .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
    );
    home = (await asAdmin('getent', 'passwd', JOB_USER)).split(':')[5] ?? '';
    gateway = await Gateway.start({
      clusterToml: TOML,
      scripts: SCRIPTS,
      workerEnvironment: { ...insideOfAJob, FAKE_API_KEY: 'planted-secret' },
    });
    warned = await gateway.submit('warned');
  }, 90_000);
  afterAll(async () => {
    await gateway.stop();
    await ctl('reset');
  }, 120_000);

  test('P52, P57: a gateway inside an allocation passes none of its variables on, and pins no job to its CPUs', async () => {
    expect(Object.keys(insideOfAJob)).toEqual(
      expect.arrayContaining(['SLURM_JOB_ID', 'SLURM_STEP_ID', 'SLURM_CPUS_PER_TASK']),
    );
    const taskId = await gateway.submit('look');
    expect(await gateway.ended(taskId)).toMatchObject({ phase: 'Completed' });
    const { cpus, inStep } = z.object({ cpus: z.int(), inStep: z.int() }).parse(await gateway.result(taskId));
    expect(cpus).toBeGreaterThanOrEqual(2);
    expect(inStep).toBeGreaterThanOrEqual(2);
    const Logs = z.object({ stdout: z.string() });
    const { stdout } = Logs.parse(JSON.parse(await gateway.expectOk('logs', taskId, '--json')));
    expect(stdout).toContain('SLURM_CPUS_PER_TASK=2');
    expect(stdout).not.toContain(`SLURM_JOB_ID=${insideOfAJob['SLURM_JOB_ID'] ?? ''}\n`);
    expect(stdout).not.toMatch(/SLURM_CPU_BIND|SLURM_STEP_|SLURM_SRUN_|PMI_|FAKE_API_KEY|planted-secret/);
    expect(stdout).toMatch(/^JobId=/m);
  }, 90_000);

  test('P12: a script that asks for its output in a directory that is not there runs, and its output is kept', async () => {
    expect(await gateway.ended(await gateway.submit('elsewhere'))).toMatchObject({ phase: 'Completed' });
  }, 60_000);

  test('P48, P56: a login profile that takes minutes holds no job up: none is loaded', async () => {
    const profile = join(home, '.profile');
    let before: string | null = null;
    try {
      before = readFileSync(profile, 'utf8');
    } catch {
      before = null;
    }
    writeFileSync(profile, 'sleep 200\n', { mode: 0o644 });
    try {
      const startedMs = Date.now();
      expect(await gateway.ended(await gateway.submit('quick'))).toMatchObject({ phase: 'Completed' });
      expect(Date.now() - startedMs).toBeLessThan(60_000);
    } finally {
      if (before === null) rmSync(profile);
      else writeFileSync(profile, before);
    }
  }, 90_000);

  test('P51: a job that ends and is purged between two polls is Completed', async () => {
    const listed = async (): Promise<readonly string[]> =>
      (await asAdmin('squeue', '-h', '-a', '-t', 'all', `--user=${JOB_USER}`, '-o', '%i')).split('\n');
    await ctl('conf', 'MinJobAge', '2');
    try {
      const before = await listed();
      const taskId = await gateway.submit('quick');
      const id = await eventually(async () => (await listed()).find((one) => !before.includes(one)) ?? null, 30_000);
      await gateway.taskThat(taskId, ({ jobs }) => ['Pending', 'Running'].includes(jobs.at(-1)?.phase ?? ''));
      gateway.worker.process.kill('SIGSTOP');
      try {
        await eventually(async () => ((await listed()).includes(id) ? null : true), 90_000);
      } finally {
        gateway.worker.process.kill('SIGCONT');
      }
      expect(await gateway.ended(taskId)).toMatchObject({ phase: 'Completed', jobs: [{ phase: 'Completed' }] });
    } finally {
      await ctl('conf', 'MinJobAge', '300');
    }
  }, 180_000);

  test('P43: a job that is being cleaned up shows when its work ended', async () => {
    await ctl('hook', 'epilog', 'sleep 8');
    try {
      await gateway.submit('quick');
      const endS = await eventually(async () => {
        const row = await asAdmin('squeue', '-h', '-a', `--user=${JOB_USER}`, '-t', 'COMPLETING', '-o', '%e');
        return /^[0-9]+$/m.exec(row)?.[0] ?? null;
      }, 60_000);
      expect(Math.abs(Number(endS) * 1000 - Date.now())).toBeLessThan(60_000);
    } finally {
      await ctl('hook', 'epilog');
    }
  }, 90_000);

  test('P59: the warning before the time limit, for the batch shell alone, reaches the program', async () => {
    expect(await gateway.ended(warned, 150_000)).toMatchObject({ phase: 'Completed' });
    const { afterS } = z.object({ afterS: z.int() }).parse(await gateway.result(warned));
    // A minute before the end, and up to a minute earlier (sbatch(1), --signal).
    expect(afterS).toBeLessThan(90);
  }, 180_000);
});
