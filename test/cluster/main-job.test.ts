import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { TaskId } from '../../src/machines/vocabulary.js';
import { z } from 'zod';
import { eventually } from '../support/wait.js';
import { Gateway } from './support/gateway.js';
import { accountedJobs, openCompute } from './support/site.js';

/** The two commands of existing users, as they are written in the README, on a real cluster as an ordinary user. */
describe('the main job on a real cluster', () => {
  let gateway: Gateway;
  const startedAtMs = Date.now();

  beforeAll(async () => {
    gateway = await Gateway.start();
  }, 60_000);
  afterAll(() => gateway.stop());

  test('a submitted task comes back with its result, from exactly one job that carries its token (INV-8)', async () => {
    const submitted = await openCompute(
      gateway.directory,
      ['submit', '--kind', 'training', '--payload', '{"profile":"smoke","parameters":{"message":"hello"}}'],
      { OPEN_COMPUTE_CREDENTIALS: 'alice.json' },
    );
    expect(submitted.exitCode).toBe(0);
    const taskId = TaskId.parse(submitted.stdout.trim());
    expect(submitted.stdout).toBe(`${taskId}\n`);

    const result = await openCompute(gateway.directory, ['result', taskId, '--wait'], {
      OPEN_COMPUTE_CREDENTIALS: 'alice.json',
    });
    expect(result.exitCode).toBe(0);
    expect(JSON.parse(result.stdout)).toMatchObject({ message: 'hello' });

    const { jobs } = await gateway.task(taskId);
    expect(jobs).toEqual([expect.objectContaining({ phase: 'Completed', reason: null })]);
    const token = await tokenOf(gateway, jobs[0]?.jobId ?? '');
    // The queue told of the end; accounting hears of it a little later.
    const rows = await eventually(async () => {
      const found = (await accountedJobs(startedAtMs)).filter(({ name }) => name.includes(token));
      return found.some(({ state }) => state === 'COMPLETED') ? found : null;
    }, 30_000);
    expect(rows).toEqual([expect.objectContaining({ name: `oc-${token}`, state: 'COMPLETED' })]);
    expect(gateway.directories()).toEqual([]);
  }, 60_000);

  test('--wait prints progress on stderr and the result alone on stdout', async () => {
    const done = await gateway.run(
      ...[
        'submit',
        '--kind',
        'training',
        '--payload',
        '{"profile":"smoke","parameters":{"message":"a \\"b\\" ü"}}',
        '--wait',
      ],
    );
    expect(done.exitCode).toBe(0);
    expect(JSON.parse(done.stdout)).toMatchObject({ message: 'a "b" ü' });
    expect(done.stderr).toContain('Completed');
  }, 60_000);

  test('an export of the log, replayed, gives the final state (INV-12)', async () => {
    const taskId = await gateway.submit('smoke', { message: 'replay me' });
    const { jobs } = await gateway.ended(taskId);
    const jobId = jobs[0]?.jobId ?? '';
    const exported = await gateway.expectOk(
      'events',
      'export',
      '--state-dir',
      gateway.workerState,
      '--stream',
      `job/${jobId}`,
    );
    gateway.write('export.jsonl', exported, 0o644);
    const fromFile = await gateway.expectOk('replay', 'export.jsonl', '--job', jobId, '--json');
    const fromLog = await gateway.expectOk('replay', gateway.workerState, '--job', jobId, '--json');
    expect(fromFile).toBe(fromLog);
    expect(fromFile.trim().split('\n').at(-1)).toContain('"Completed"');
  }, 60_000);

  test('nothing of the gateway reaches the job, and srun works inside it (INV-9)', async () => {
    const other = await Gateway.start({
      clusterToml:
        '[cluster]\nname = "test"\n\n[profiles.env]\nscript = "env.sh"\nnodes = 2\n[profiles.env.environment]\nDECLARED = "yes"\n',
      scripts: {
        'env.sh':
          '#!/bin/sh\nenv >env.txt\nsteps=$(srun sh -c \'echo "$SLURMD_NODENAME $DECLARED"\' | sort | tr "\\n" ";")\nprintf \'{"steps":"%s"}\' "$steps" >"$2"\ncat env.txt\n',
      },
      workerEnvironment: {
        FAKE_API_KEY: 'planted-secret',
        SBATCH_COMMENT: 'planted',
        SLURM_NTASKS: '7',
        SQUEUE_FORMAT: '%i',
      },
    });
    try {
      const taskId = await other.submit('env');
      const task = await other.ended(taskId);
      expect(task).toMatchObject({ phase: 'Completed' });
      expect(await other.result(taskId)).toEqual({ steps: 'n1 yes;n2 yes;' });
      const seen = z
        .object({ stdout: z.string() })
        .parse(JSON.parse(await other.expectOk('logs', taskId, '--json'))).stdout;
      expect(seen).toContain('DECLARED=yes');
      expect(seen).not.toMatch(/planted|FAKE_API_KEY|SQUEUE_FORMAT|SLURM_TIME_FORMAT|SLURM_EXPORT_ENV/);
      expect(seen).toContain('OPEN_COMPUTE_RESULT=');
    } finally {
      await other.stop();
    }
  }, 120_000);
});

/** From the worker's log: the token is what the job is called outside. */
async function tokenOf(gateway: Gateway, jobId: string): Promise<string> {
  const line = (
    await gateway.expectOk('events', 'export', '--state-dir', gateway.workerState, '--stream', `job/${jobId}`)
  ).split('\n')[0];
  return z.object({ event: z.object({ token: z.string() }) }).parse(JSON.parse(line ?? '')).event.token;
}
