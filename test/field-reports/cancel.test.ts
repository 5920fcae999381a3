import { describe, expect, jest, test } from '@jest/globals';
import type { CancelReply } from '../../src/backend.js';
import { contextOf, phaseOf } from '../../src/machines/job-aggregate.js';
import { JobId, Token } from '../../src/machines/vocabulary.js';
import { FakeCommands } from '../support/fake-commands.js';
import { exited, ScriptedSlurm, SlurmWorld } from '../support/slurm-world.js';

/** What went wrong for others when they ended jobs; docs/field-reports.md has the table. */

jest.setTimeout(60_000);

const HOUR = 3_600_000;
const id = '01000000000000000000000001';
const token = Token.parse(id);
const jobId = JobId.parse(`job_${id}`);

async function running(count = 1): Promise<ScriptedSlurm> {
  const slurm = new ScriptedSlurm({ config: { watchLimitMs: 1e10 } });
  await slurm.world.offered(count);
  await slurm.world.until((jobs) => jobs.length === count && jobs.every((job) => phaseOf(job) === 'Pending'));
  slurm.set({ state: 'RUNNING', reason: 'None' });
  await slurm.world.untilPhase('Running');
  return slurm;
}

describe('P43: a job that is COMPLETING for hours', () => {
  test('keeps its phase; calls and events are few; people are told that an administrator must look', async () => {
    const slurm = await running();
    const { world } = slurm;
    slurm.obeysCancel = false;
    world.wishCancel();
    slurm.set({ state: 'COMPLETING', endedAtMs: world.clock.nowMs() });
    const before = await world.types();
    await world.run(3 * HOUR);
    expect(phaseOf(await world.job())).toBe('Running');
    // Pauses double from 5 s to half an hour.
    expect(world.asked('scancel').length).toBeLessThanOrEqual(16);
    expect(world.asked('scancel').length).toBeGreaterThanOrEqual(8);
    expect((await world.types()).length - before.length).toBeLessThanOrEqual(20);
    expect(contextOf(await world.job()).seen?.why).toContain('an administrator must look');
    slurm.leave([{ state: 'CANCELLED by 1001' }]);
    await world.untilDelivered();
    expect(phaseOf(await world.job())).toBe('Cancelled');
  });

  test('one that has only just ended is not called stuck', async () => {
    const slurm = await running();
    const { world } = slurm;
    slurm.set({ state: 'COMPLETING', endedAtMs: world.clock.nowMs() });
    await world.run(60_000);
    expect(contextOf(await world.job()).seen?.why).not.toContain('administrator');
  });
});

describe('P60: what scancel says', () => {
  const overText = 'scancel: error: Kill job error on job id 101: Invalid job id specified\n';

  test.each([0, 1])('about a job that is over, with exit %i: asked; the observation ends it', async (exitCode) => {
    const slurm = await running();
    const { world } = slurm;
    slurm.meet.scancel = () => exited('', overText, exitCode);
    world.wishCancel();
    await world.until(() => world.asked('scancel').length > 0);
    await world.run(2_000);
    expect(phaseOf(await world.job())).toBe('Running');
    slurm.leave([{ state: 'COMPLETED' }]);
    await world.untilDelivered();
    expect(phaseOf(await world.job())).toBe('Completed');
  });

  test('when it cannot reach the controller: asked again until the end is seen', async () => {
    const slurm = await running();
    const { world } = slurm;
    let tries = 0;
    slurm.meet.scancel = () => {
      tries += 1;
      return tries > 3 ? null : exited('', 'scancel: error: Unable to contact slurm controller\n', 1);
    };
    world.wishCancel();
    await world.untilPhase('Cancelled');
    expect(tries).toBe(4);
  });

  test('a real process that hangs is ended, and proves nothing', async () => {
    const commands = new FakeCommands();
    const world = new SlurmWorld((clock) => commands.run(clock), { limits: { cancelTimeLimitMs: 300 } });
    commands.next('scancel', { hang: true }, { delay: 0.1 });
    commands.always('squeue', {});
    commands.always('sacct', {});
    const handle = { id: '7', cluster: null, submittedAtMs: 0 };
    const cancel = async ({ slurm }: SlurmWorld): Promise<CancelReply> => {
      await slurm.observe([{ jobId, token, handle, sinceMs: 0 }]);
      return await slurm.cancel([{ token, handle }]);
    };
    expect(await cancel(world)).toMatchObject({ asked: [], outage: { kind: 'timedOut' } });
    const patient = new SlurmWorld((clock) => commands.run(clock));
    expect(await cancel(patient)).toMatchObject({ asked: [handle], outage: null });
    expect(commands.calls('scancel').map(({ argv }) => argv)).toEqual([['7'], ['7']]);
  });
});

test('P61: two hundred jobs: one call for all; those that it did not reach are asked for again, until each has ended', async () => {
  const slurm = await running(200);
  const { world } = slurm;
  let calls = 0;
  slurm.meet.scancel = ({ argv }) => {
    calls += 1;
    if (calls > 1) return null;
    // Every second request failed on its way.
    const reached = argv.filter((_id, n) => n % 2 === 0);
    slurm.jobs = slurm.jobs.map((job) => (reached.includes(job.id) ? { ...job, state: 'CANCELLED' } : job));
    const lines = argv
      .filter((id) => !reached.includes(id))
      .map(
        (id) =>
          `scancel: error: Kill job error on job id ${id}: Unable to contact slurm controller (connect failure)\n`,
      );
    return exited('', lines.join(''), 1);
  };
  world.wishCancel(200);
  await world.untilDelivered();
  expect(new Set((await world.jobs()).map(phaseOf))).toEqual(new Set(['Cancelled']));
  expect(world.asked('scancel').map(({ argv }) => argv.length)).toEqual([200, 100]);
});
