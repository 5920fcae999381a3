import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { eventually } from '../support/wait.js';
import { Gateway } from './support/gateway.js';
import { accountedJobs, asAdmin, ctl, JOB_USER } from './support/site.js';

describe('outages and crashes on a real cluster', () => {
  let gateway: Gateway;
  let startedAtMs: number;

  beforeEach(async () => {
    startedAtMs = Date.now();
    gateway = await Gateway.start({ workerArguments: ['--poll', '2'] });
  }, 60_000);
  afterEach(async () => {
    await gateway.stop();
    await ctl('reset');
  }, 120_000);

  const submitMany = async (count: number, sleepS: number): Promise<readonly TaskId[]> => {
    const ids: TaskId[] = [];
    for (let i = 0; i < count; i += 1) ids.push(await gateway.submit('smoke', { message: String(i), sleep: sleepS }));
    return ids;
  };
  const allCompleted = async (ids: readonly TaskId[], patienceMs: number): Promise<void> => {
    for (const [index, id] of ids.entries()) {
      expect(await gateway.ended(id, patienceMs)).toMatchObject({ phase: 'Completed', jobs: [{ phase: 'Completed' }] });
      expect(await gateway.result(id)).toMatchObject({ message: String(index) });
    }
    const names = (await accountedJobs(startedAtMs)).map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
  };
  /** What each task's job went through, from the worker's log. */
  const phaseEvents = async (): Promise<number> => {
    const log = await gateway.expectOk('events', 'export', '--state-dir', gateway.workerState);
    return log.split('\n').filter((line) => /"type":"(job\.observed|completion\.reported|loss\.)/.test(line)).length;
  };
  const runningJobs = async (): Promise<number> =>
    (await asAdmin('squeue', '-h', `--user=${JOB_USER}`, '-t', 'RUNNING', '-o', '%i')).split('\n').filter(Boolean)
      .length;

  test('a worker killed with SIGKILL adopts its jobs when it is started again: none twice, every result (INV-8)', async () => {
    const ids = await submitMany(6, 5);
    await eventually(async () => ((await runningJobs()) > 0 ? true : null), 30_000);
    await gateway.worker.stop('SIGKILL');
    gateway.startWorker();
    await allCompleted(ids, 60_000);
    const jobs = (await accountedJobs(startedAtMs)).filter(({ state }) => state === 'COMPLETED');
    expect(jobs.length).toBeGreaterThanOrEqual(ids.length);
  }, 180_000);

  test('while slurmctld is down no phase changes; then everything completes (INV-10)', async () => {
    const ids = await submitMany(3, 4);
    await eventually(async () => ((await runningJobs()) === 3 ? true : null), 30_000);
    await gateway.taskThat(last(ids), ({ jobs }) => jobs.at(-1)?.phase === 'Running');
    await ctl('stop', 'slurmctld');
    const before = await phaseEvents();
    await eventually(() => (gateway.worker.log().includes('can not be asked') ? true : null), 60_000);
    expect(await phaseEvents()).toBe(before);
    for (const id of ids) expect(await gateway.jobPhase(id)).toBe('Running');
    await ctl('start', 'slurmctld');
    await allCompleted(ids, 120_000);
    expect(gateway.worker.log()).toContain('answers again');
  }, 240_000);

  test('while slurmdbd is down completed jobs still come back from the queue, and nothing is lost (INV-10)', async () => {
    const ids = await submitMany(3, 3);
    await eventually(async () => ((await runningJobs()) === 3 ? true : null), 30_000);
    await ctl('stop', 'slurmdbd');
    const during = await gateway.ended(last(ids), 60_000);
    expect(during).toMatchObject({ phase: 'Completed' });
    await ctl('start', 'slurmdbd');
    await allCompleted(ids, 120_000);
  }, 240_000);

  test('a coordinator killed with SIGKILL loses no task and no result', async () => {
    const ids = await submitMany(3, 4);
    await eventually(async () => ((await runningJobs()) === 3 ? true : null), 30_000);
    await gateway.coordinator.stop('SIGKILL');
    await gateway.startCoordinator();
    await allCompleted(ids, 60_000);
  }, 180_000);
});

function last<T>(items: readonly T[]): T {
  const item = items.at(-1);
  if (item === undefined) throw new Error('there is none');
  return item;
}
