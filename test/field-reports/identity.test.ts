import { describe, expect, jest, test } from '@jest/globals';
import { contextOf, phaseOf } from '../../src/machines/job-aggregate.js';
import type { Ending } from '../../src/slurm/broker.js';
import { accountText, type AccountFields } from '../support/scheduler-rows.js';
import { exited, ScriptedSlurm } from '../support/slurm-world.js';

/** Which row is whose, and which of several counts; docs/field-reports.md has the table. */

jest.setTimeout(60_000);

async function running(): Promise<ScriptedSlurm> {
  const slurm = new ScriptedSlurm();
  await slurm.world.offered();
  await slurm.world.untilPhase('Pending');
  slurm.set({ state: 'RUNNING', reason: 'None' });
  await slurm.world.untilPhase('Running');
  return slurm;
}

const ownRow = (slurm: ScriptedSlurm): Pick<AccountFields, 'id' | 'name' | 'submittedAtMs'> => {
  const [job] = slurm.jobs;
  if (job === undefined) throw new Error('the queue is empty');
  return { id: job.id, name: job.name, submittedAtMs: job.submittedAtMs };
};

describe('an id that was used before or is used again (INV-13)', () => {
  test.each([
    ['another name', { name: 'somebody-else' }],
    ['our name and a time before the job was made', {}],
  ])('P22: a COMPLETED row of 2017 with the same id and %s is not ours', async (_what, over) => {
    const slurm = await running();
    const { world } = slurm;
    const own = ownRow(slurm);
    const old = { ...own, ...over, state: 'COMPLETED', submittedAtMs: Date.parse('2017-05-01T00:00:00Z') };
    slurm.meet.sacct = () => exited(accountText([old]));
    // Right after sbatch the queue may lag: nothing is here, and the accounts know the wrong job only.
    const kept = slurm.jobs;
    slurm.jobs = [];
    await world.run(20_000);
    expect(phaseOf(await world.job())).toBe('Running');
    expect(await world.events('completion.reported')).toEqual([]);
    slurm.jobs = kept;
    await world.run(120_000);
    expect(phaseOf(await world.job())).toBe('Running');
  });

  test("P22: another job in the queue under our id is neither our job's state nor cancelled for it", async () => {
    const slurm = await running();
    const { world } = slurm;
    const own = ownRow(slurm);
    slurm.jobs = [{ ...own, name: 'somebody-else', state: 'FAILED' }];
    await world.run(20_000);
    expect(phaseOf(await world.job())).toBe('Running');
    world.wishCancel();
    await world.run(60_000);
    expect(world.asked('scancel')).toEqual([]);
  });

  test('P22, P32: a job under our id whose name holds a newline is none of ours, and is not cancelled', async () => {
    const slurm = await running();
    const { world } = slurm;
    const { id } = ownRow(slurm);
    const submittedAtMs = world.clock.nowMs();
    slurm.jobs = [{ id, state: 'RUNNING', submittedAtMs, name: 'two\nlines', comment: '' }];
    await world.run(35_000);
    world.wishCancel();
    await world.run(10_000);
    expect(world.asked('scancel')).toEqual([]);
  });

  test('P26: not found is never answered with another submission', async () => {
    const slurm = await running();
    const { world } = slurm;
    slurm.jobs = [];
    await world.untilPhase('Lost');
    await world.run(600_000);
    expect(world.asked('sbatch')).toHaveLength(1);
  });
});

describe('a gateway whose clock is two hours ahead of the cluster (INV-8, INV-11)', () => {
  const AHEAD_MS = 2 * 3_600_000;
  const landing = (answer: (id: string) => Ending): ScriptedSlurm => {
    const slurm = new ScriptedSlurm();
    slurm.meet.sbatch = (call) => {
      const submittedAtMs = slurm.world.clock.nowMs() - AHEAD_MS;
      return answer(slurm.land(call, { state: 'RUNNING', reason: 'None', submittedAtMs }).id);
    };
    return slurm;
  };
  const told = async ({ world }: ScriptedSlurm): Promise<readonly string[]> =>
    (await world.store.readStream('backend/slurm')).flatMap(({ event }) =>
      event.type === 'oddity.seen' ? [event.text] : [],
    );

  test('loses no job that runs, starts none beside it, and tells the administrator once', async () => {
    const slurm = landing((id) => exited(`${id}\n`));
    const { world } = slurm;
    await world.offered();
    await world.run(600_000);
    expect(phaseOf(await world.job())).toBe('Pending');
    slurm.leave([{ state: 'RUNNING' }]);
    await world.run(600_000);
    expect(phaseOf(await world.job())).toBe('Pending');
    expect(await world.events('loss.noted')).toEqual([]);
    expect(world.asked('sbatch')).toHaveLength(1);
    expect(world.coordinator.outcomes).toEqual([]);
    expect(await told(slurm)).toEqual([
      expect.stringContaining('the queue shows jobs of ours'),
      expect.stringContaining('accounting shows jobs of ours'),
    ]);
  });

  test('a lost answer leads to no second submission', async () => {
    const slurm = landing(() => ({ kind: 'timedOut', afterMs: 1, stdout: '', stderr: '' }));
    const { world } = slurm;
    await world.offered();
    await world.run(300_000);
    expect(world.asked('sbatch')).toHaveLength(1);
    slurm.leave([{ state: 'COMPLETED' }]);
    await world.run(300_000);
    expect(world.asked('sbatch')).toHaveLength(1);
    expect(phaseOf(await world.job())).toBe('Unknown');
  });
});

describe('a job that comes back under its id', () => {
  test.each(['NODE_FAIL', 'PREEMPTED'])('P44: %s, then PENDING, RUNNING, COMPLETED: one job', async (state) => {
    const slurm = await running();
    const { world } = slurm;
    slurm.set({ state });
    await world.until((jobs) => jobs.some((job) => contextOf(job).loss !== null));
    await world.run(20_000);
    expect(phaseOf(await world.job())).toBe('Running');
    slurm.set({ state: 'PENDING', reason: 'BeginTime', submittedAtMs: world.clock.nowMs() });
    await world.untilPhase('Pending');
    slurm.set({ state: 'RUNNING', reason: 'None' });
    await world.untilPhase('Running');
    slurm.leave([{ state: 'COMPLETED' }]);
    await world.untilDelivered();
    expect(phaseOf(await world.job())).toBe('Completed');
    expect(world.asked('sbatch')).toHaveLength(1);
    expect(contextOf(await world.job()).requeues).toBe(1);
  });

  test('P45: a dead node is enough: no marker is waited for, and the reason is told', async () => {
    const slurm = await running();
    const { world } = slurm;
    slurm.leave([{ state: 'NODE_FAIL', exitCode: '1:0' }]);
    await world.untilDelivered();
    expect(contextOf(await world.job()).reason).toBe('NODE_FAILED');
    expect(phaseOf(await world.job())).toBe('Lost');
  });

  test.each([[[0, 1, 2]], [[2, 1, 0]], [[1, 2, 0]]])(
    'P46: of the runs of one id the newest decides, in the order %j',
    async (order) => {
      const slurm = await running();
      const { world } = slurm;
      const own = ownRow(slurm);
      const at = (n: number) => own.submittedAtMs + n * 1_000;
      const rows: readonly AccountFields[] = [
        { ...own, state: 'REQUEUED', submittedAtMs: at(0), startedAtMs: at(1), endedAtMs: at(2) },
        { ...own, state: 'NODE_FAIL', submittedAtMs: at(2), startedAtMs: at(3), endedAtMs: at(4) },
        { ...own, state: 'RUNNING', submittedAtMs: at(4), startedAtMs: at(5) },
      ];
      const shuffled = (last: string) =>
        order.flatMap((n) => rows[n] ?? []).map((row) => (row === rows[2] ? { ...row, state: last } : row));
      slurm.jobs = [];
      slurm.accounted = shuffled('RUNNING');
      await world.run(60_000);
      expect(phaseOf(await world.job())).toBe('Running');
      expect(await world.events('loss.noted')).toEqual([]);
      slurm.accounted = shuffled('COMPLETED');
      await world.untilDelivered();
      expect(phaseOf(await world.job())).toBe('Completed');
    },
  );
});
