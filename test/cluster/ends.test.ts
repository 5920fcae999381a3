import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { eventually } from '../support/wait.js';
import type { TaskView } from '../../src/coordinator/api.js';
import { Gateway } from './support/gateway.js';
import { asAdmin, ctl, HAS_CGROUP, JOB_USER } from './support/site.js';

/** Each way in which a job ends on a real cluster comes to the phase and reason of the table. */

const script = (body: string, ...directives: readonly string[]): string =>
  ['#!/bin/sh', ...directives.map((line) => `#SBATCH ${line}`), body, 'printf "{}" >"$2"', ''].join('\n');

const SCRIPTS = {
  'exit3.sh': script('exit 3'),
  'segv.sh': script('kill -SEGV $$'),
  'long.sh': script('sleep 600'),
  'short-limit.sh': script('sleep 600', '--time=1'),
  'memory.sh': script("exec awk 'BEGIN { for (i = 0; i < 60000000; i++) a[i] = i; while (1) ; }'", '--mem=50M'),
  'held.sh': script('true', '--hold'),
  'no-result.sh': '#!/bin/sh\nexit 0\n',
  'bad-result.sh': '#!/bin/sh\nprintf "not json" >"$2"\n',
  'on-n4.sh': script('sleep 600', '--nodelist=n4', '--no-requeue'),
  'requeue.sh': script(
    'if [ -e again ]; then printf \'{"run":2}\' >"$2"; exit 0; fi; touch again; sleep 600',
    '--requeue',
  ),
  'refused.sh': script('true', '--partition=nowhere'),
};
const TOML = ['[cluster]', 'name = "test"', '']
  .concat(Object.keys(SCRIPTS).flatMap((name) => [`[profiles.${name.replace('.sh', '')}]`, `script = "${name}"`, '']))
  .join('\n');

describe('how jobs end on a real cluster', () => {
  let gateway: Gateway;
  /** Of the task's job, by its token in the name. */
  const schedulerId = (jobName: string): Promise<string> =>
    eventually(async () => {
      const text = await asAdmin('squeue', '-h', '-a', `--user=${JOB_USER}`, '-o', '%i %j');
      return (
        text
          .split('\n')
          .find((line) => line.endsWith(` ${jobName}`))
          ?.split(' ')[0] ?? null
      );
    }, 30_000);

  const jobName = async (taskId: TaskId): Promise<string> => {
    const { jobs } = await gateway.taskThat(taskId, ({ jobs: all }) => all.length > 0);
    const log = await gateway.expectOk(
      'events',
      'export',
      '--state-dir',
      gateway.workerState,
      '--stream',
      `job/${jobs[0]?.jobId ?? ''}`,
    );
    return `oc-${/"token":"([0-9a-z]{26})"/.exec(log)?.[1] ?? ''}`;
  };
  const submitAndFind = async (profile: string): Promise<{ taskId: TaskId; id: string }> => {
    const taskId = await gateway.submit(profile);
    return { taskId, id: await schedulerId(await jobName(taskId)) };
  };
  const running = (taskId: TaskId): Promise<TaskView> =>
    gateway.taskThat(taskId, ({ jobs }) => jobs.at(-1)?.phase === 'Running');

  beforeAll(async () => {
    gateway = await Gateway.start({ clusterToml: TOML, scripts: SCRIPTS, workerArguments: ['--poll', '5'] });
  }, 60_000);
  afterAll(async () => {
    await gateway.stop();
    await ctl('reset');
  }, 120_000);

  test('exit code 3 is Failed(EXIT_NONZERO), and the code is told', async () => {
    const task = await gateway.ended(await gateway.submit('exit3'));
    expect(task).toMatchObject({ phase: 'Failed', reason: 'EXIT_NONZERO' });
    expect(task.detail).toContain('3');
  }, 60_000);

  test('death by a signal is Failed(SIGNALED)', async () => {
    expect(await gateway.ended(await gateway.submit('segv'))).toMatchObject({ phase: 'Failed', reason: 'SIGNALED' });
  }, 60_000);

  test('a job over its memory is Failed(OUT_OF_MEMORY), or SIGNALED where the cluster only kills it', async () => {
    const task = await gateway.ended(await gateway.submit('memory'));
    expect(task).toMatchObject({ phase: 'Failed', reason: HAS_CGROUP ? 'OUT_OF_MEMORY' : 'SIGNALED' });
  }, 90_000);

  test('a completed job without a result is Failed(RESULT_MISSING), one with an unreadable result RESULT_INVALID', async () => {
    const [missing, invalid] = [await gateway.submit('no-result'), await gateway.submit('bad-result')];
    expect(await gateway.ended(missing)).toMatchObject({ phase: 'Failed', reason: 'RESULT_MISSING' });
    expect(await gateway.ended(invalid)).toMatchObject({ phase: 'Failed', reason: 'RESULT_INVALID' });
  }, 60_000);

  test('a refused submission is Failed(BACKEND_REJECTED) and explain tells the words of the refusal (INV-2)', async () => {
    const task = await gateway.ended(await gateway.submit('refused'));
    expect(task).toMatchObject({ phase: 'Failed', reason: 'BACKEND_REJECTED' });
    // The scheduler's own words are the administrator's (INV-2).
    expect(JSON.stringify(task)).not.toMatch(/nowhere|partition/);
    const story = await gateway.expectOk('explain', task.jobs[0]?.jobId ?? '', '--state-dir', gateway.workerState);
    expect(story).toContain('invalid partition specified: nowhere');
  }, 60_000);

  test('a job that somebody cancels at the cluster is Cancelled(ADMIN_CANCELLED)', async () => {
    const { taskId, id } = await submitAndFind('long');
    await running(taskId);
    await asAdmin('scancel', id);
    expect(await gateway.ended(taskId)).toMatchObject({ phase: 'Cancelled', reason: 'ADMIN_CANCELLED' });
  }, 60_000);

  test('cancel ends the job at the cluster before it says so', async () => {
    const { taskId, id } = await submitAndFind('long');
    await running(taskId);
    await gateway.expectOk('cancel', taskId);
    expect(await gateway.ended(taskId)).toMatchObject({ phase: 'Cancelled', reason: 'USER_CANCELLED' });
    const state = await asAdmin('squeue', '-h', '-t', 'all', '-j', id, '-o', '%T');
    expect(state.trim()).toMatch(/^(CANCELLED|COMPLETING)$/);
  }, 60_000);

  test('a held job is shown as held, keeps waiting, and goes on when it is released', async () => {
    const { taskId, id } = await submitAndFind('held');
    const held = await gateway.taskThat(taskId, ({ jobs }) => /held/i.test(jobs.at(-1)?.detail ?? ''));
    expect(held.jobs.at(-1)?.phase).toBe('Pending');
    await asAdmin('scontrol', 'release', id);
    expect(await gateway.ended(taskId)).toMatchObject({ phase: 'Completed' });
  }, 90_000);

  test('a requeued job is the same job: it waits again, runs again, and completes once', async () => {
    const { taskId, id } = await submitAndFind('requeue');
    await running(taskId);
    await asAdmin('scontrol', 'requeue', id);
    await gateway.taskThat(taskId, ({ jobs }) => jobs.at(-1)?.phase === 'Pending');
    await asAdmin('scontrol', 'update', `jobid=${id}`, 'StartTime=now+2');
    const task = await gateway.ended(taskId, 180_000);
    expect(task).toMatchObject({ phase: 'Completed', jobs: [{ phase: 'Completed' }] });
    expect(await gateway.result(taskId)).toEqual({ run: 2 });
  }, 240_000);

  test('TIMEOUT is Failed(TIME_LIMIT_EXCEEDED); a dead node is Lost(NODE_FAILED), and the task is tried again', async () => {
    const overTime = await gateway.submit('short-limit');
    const { taskId } = await submitAndFind('on-n4');
    await running(taskId);
    await ctl('crash-node', 'n4');
    try {
      const lost = await gateway.taskThat(taskId, ({ jobs }) => jobs[0]?.phase === 'Lost', 240_000);
      expect(lost.jobs[0]).toMatchObject({ phase: 'Lost', reason: 'NODE_FAILED' });
      const again = await gateway.taskThat(taskId, ({ jobs }) => jobs.length === 2);
      expect(again.phase).not.toBe('Failed');
    } finally {
      await ctl('start', 'slurmd.n4');
    }
    await gateway.expectOk('cancel', taskId);
    expect(await gateway.ended(overTime, 120_000)).toMatchObject({ phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' });
    expect(await gateway.ended(taskId)).toMatchObject({ phase: 'Cancelled' });
  }, 420_000);
});
