import { describe, expect, jest, test } from '@jest/globals';
import { join } from 'node:path';
import { contextOf, phaseOf } from '../../src/machines/job-aggregate.js';
import { JobId, Token } from '../../src/machines/vocabulary.js';
import type { Call, Ending } from '../../src/slurm/broker.js';
import { eventually } from '../support/wait.js';
import { FakeCommands, livingInGroup, type FakeAnswer } from '../support/fake-commands.js';
import { queueStart } from '../support/scheduler-rows.js';
import { exited, ScriptedSlurm, SlurmWorld } from '../support/slurm-world.js';

/** What went wrong for others when they submitted; docs/field-reports.md has the table. */

// Real processes on a machine that may be busy.
jest.setTimeout(60_000);

const TIMEOUT_TEXT = 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n';
const CONFIG_TROUBLE =
  'sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: fatal: Could not establish a configuration source\n';

/** The worker over real processes; every submission meets `answers`, one after the other. */
async function withCommands(
  answers: (landing: string) => readonly FakeAnswer[],
  limits: ConstructorParameters<typeof SlurmWorld>[1] = {},
): Promise<{ readonly world: SlurmWorld; readonly commands: FakeCommands }> {
  const commands = new FakeCommands();
  const world = new SlurmWorld((clock) => commands.run(clock), limits);
  commands.passSelfTest();
  const landing = queueStart({ id: '77', state: 'PENDING', submittedAtMs: world.clock.nowMs(), reason: 'Priority' });
  commands.next('sbatch', ...answers(landing));
  await world.offered();
  return { world, commands };
}

/** The worker over a scheduler in memory whose submissions meet `answer`. */
async function withAnswer(answer: (call: Call, slurm: ScriptedSlurm) => Ending | null): Promise<ScriptedSlurm> {
  const slurm = new ScriptedSlurm();
  slurm.meet.sbatch = (call) => answer(call, slurm);
  await slurm.world.offered();
  return slurm;
}

describe('an answer that is no answer (INV-8)', () => {
  test('P01: a socket timeout with exit 1 after landing: one submission, Unknown, then adopted', async () => {
    const { world, commands } = await withCommands((land) => [{ land, stderr: TIMEOUT_TEXT, exit: 1 }]);
    await world.untilPhase('Unknown');
    await world.untilPhase('Pending');
    expect(contextOf(await world.job()).handle?.id).toBe('77');
    await world.run(120_000);
    expect(world.asked('sbatch')).toHaveLength(1);
    expect(commands.queued().trim().split('\n')).toHaveLength(1);
  });

  test('P01: the same answer before landing: exactly one more submission, after the settling time', async () => {
    const { world } = await withCommands((land) => [
      { stderr: TIMEOUT_TEXT, exit: 1 },
      { land, stdout: '77\n' },
    ]);
    await world.untilPhase('Unknown');
    const [lost] = await world.events('submission.lost');
    await world.untilPhase('Pending');
    const [, again] = await world.events('submission.started');
    expect((again?.atMs ?? 0) - (lost?.atMs ?? 0)).toBeGreaterThanOrEqual(world.slurm.timing.settleMs);
    const looks = (await world.events('lookup.absent')).map(({ source }) => source);
    // Real processes answer while the worker's clock is a manual one: there may be time for one look more.
    expect(looks.length).toBeGreaterThanOrEqual(6);
    expect(looks).toEqual(Array.from({ length: looks.length / 2 }, () => ['queue', 'accounting']).flat());
    await world.run(120_000);
    expect(world.asked('sbatch')).toHaveLength(2);
  });

  test('P03: a submission that waits inside itself is ended as a group; what still lands later is adopted', async () => {
    const { world, commands } = await withCommands(
      (row) => [{ stderr: 'sbatch: the words of this notice differ by release\n', 'land-late': row }],
      { limits: { submitTimeLimitMs: 400 } },
    );
    await world.untilPhase('Unknown');
    const [lost] = await world.events('submission.lost');
    expect(lost).toMatchObject({ cause: 'timedOut', hint: null });
    const pid = commands.calls('sbatch').at(-1)?.pid ?? 0;
    await eventually(() => (livingInGroup(pid).length === 0 ? true : null));
    // It was on its way when its process ended: it shows within the settling time.
    await eventually(() => (commands.queued() === '' ? null : true));
    await world.untilPhase('Pending');
    await world.run(120_000);
    expect(world.asked('sbatch')).toHaveLength(1);
    expect(await world.types()).toEqual(expect.arrayContaining(['attempt.ended', 'submission.found']));
  });

  test('P03: the limit of a submission is longer than sbatch retries by itself', async () => {
    const slurm = await withAnswer(() => null);
    await slurm.world.untilPhase('Pending');
    expect(slurm.world.asked('sbatch')[0]?.timeLimitMs).toBeGreaterThan(120_000);
  });

  test('P07: exit 0 with an empty answer, swallowed by a quiet option, is Unknown and then adopted', async () => {
    const slurm = await withAnswer((call, scheduler) => {
      scheduler.land(call);
      return exited('');
    });
    const { world } = slurm;
    await world.untilPhase('Unknown');
    await world.untilPhase('Pending');
    const argv = world.asked('sbatch').flatMap((call) => call.argv);
    expect(argv.filter((word) => /^(?:-Q|--quiet)/.test(word))).toEqual([]);
    expect(world.asked('sbatch')).toHaveLength(1);
  });

  test.each([true, false])('P08: a text that nobody listed is Unknown, never a failure (landed: %j)', async (lands) => {
    let first = true;
    const slurm = await withAnswer((call, scheduler) => {
      if (!first) return null;
      first = false;
      if (lands) scheduler.land(call);
      return exited('', 'sbatch: error: Batch job submission failed: Unexpected message received\n', 1);
    });
    await slurm.world.untilPhase('Unknown');
    await slurm.world.untilPhase('Pending');
    expect(slurm.world.asked('sbatch')).toHaveLength(lands ? 1 : 2);
    expect(slurm.jobs).toHaveLength(1);
  });

  test('P09: a submission that cannot read its configuration is looked up, not failed', async () => {
    let calls = 0;
    const slurm = await withAnswer(() => {
      calls += 1;
      return calls === 1 ? exited('', CONFIG_TROUBLE, 1) : null;
    });
    await slurm.world.untilPhase('Unknown');
    await slurm.world.untilPhase('Pending');
    expect(await slurm.world.types()).toContain('submission.disproved');
  });
});

describe('an answer with more in it than the id', () => {
  test('P02: exit 0 and an id is success, whatever stderr says, and that is kept', async () => {
    const commands = new FakeCommands();
    const world = new SlurmWorld((clock) => commands.run(clock));
    const notice = 'sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying';
    commands.next('sbatch', { stdout: '3149172\n', stderr: `${notice}\n` });
    expect(await world.slurm.submit(request(world))).toEqual({
      kind: 'accepted',
      handle: { id: '3149172', cluster: null, submittedAtMs: world.clock.nowMs() },
      notes: notice,
    });
  });

  test.each([
    ['advice before the id', 'Please note that memory\nis charged by the node\n38139957\n', '38139957'],
    ['advice after the id', '38139957\nYour balance will be low\n', '38139957'],
    ['advice that holds a number', 'You have 38139957 hours left\n', null],
    ['two lines that are ids', '38139957\n4711\n', null],
    ['an id without the end of its line', '3813', null],
    ['the words of the long form', 'Submitted batch job 38139957\n', null],
  ])('P04: %s', async (_what, stdout, id) => {
    const slurm = new ScriptedSlurm();
    slurm.meet.sbatch = () => exited(stdout);
    const reply = await slurm.world.slurm.submit(request(slurm.world));
    if (id === null) expect(reply).toMatchObject({ kind: 'unreadable', hint: null });
    else expect(reply).toMatchObject({ kind: 'accepted', handle: { id } });
  });

  test('P05: the two streams stay apart: an id on stderr is none, a notice there hurts none', async () => {
    const commands = new FakeCommands();
    const world = new SlurmWorld((clock) => commands.run(clock));
    commands.next(
      'sbatch',
      { stderr: 'sbatch: No partition specified, using default partition cpu\n', stdout: '12\n' },
      { stderr: '12\n', stdout: 'sbatch: a site that writes to the wrong stream\n' },
    );
    expect(await world.slurm.submit(request(world))).toMatchObject({ kind: 'accepted', handle: { id: '12' } });
    expect(await world.slurm.submit(request(world))).toMatchObject({ kind: 'unreadable', hint: null });
  });

  test('P06, P26: the cluster behind the id is kept, and is named in every later call', async () => {
    const slurm = await withAnswer((call, scheduler) =>
      exited(`${scheduler.land(call, { id: '3969755' }).id};nautilus\n`),
    );
    const { world } = slurm;
    // Without its name the home cluster answers, where there is nothing.
    slurm.meet.squeue = ({ argv }) => (argv.includes('--clusters=nautilus') ? null : exited(''));
    await world.untilPhase('Pending');
    expect(contextOf(await world.job()).handle).toMatchObject({ id: '3969755', cluster: 'nautilus' });
    slurm.set({ state: 'RUNNING' });
    await world.untilPhase('Running');
    world.wishCancel();
    await world.untilPhase('Cancelled');
    expect(world.asked('scancel').map(({ argv }) => argv)).toEqual([['--clusters=nautilus', '3969755']]);
    expect(world.asked('sbatch')).toHaveLength(1);
  });
});

describe('a "no" and a "later"', () => {
  test('P10: a submit limit holds the task, names the limit, burns no attempt, and ends', async () => {
    let refusals = 3;
    const slurm = await withAnswer(() => {
      refusals -= 1;
      const text =
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n";
      return refusals < 0 ? null : exited('', text, 1);
    });
    const { world } = slurm;
    await world.until((jobs) => jobs.some((job) => contextOf(job).deferral !== null));
    expect(contextOf(await world.job()).deferral).toBe('QOSMaxSubmitJobPerUserLimit');
    expect(phaseOf(await world.job())).toBe('Submitting');
    await world.untilPhase('Pending');
    expect((await world.events('submission.started')).map(({ attempt }) => attempt)).toEqual([1, 1, 1, 1]);
    const waits = (await world.events('submission.deferred')).map(({ atMs, notBeforeMs }) => notBeforeMs - atMs);
    expect(waits).toEqual([15_000, 30_000, 60_000]);
  });

  test.each([
    ['0:53', 'BOOTSTRAP_FAILED'],
    ['1:0', 'EXIT_NONZERO'],
  ])(
    'P11: a job that ended before it began, %s, has failed by what accounting says alone',
    async (exitCode, reason) => {
      const slurm = await withAnswer(() => null);
      await slurm.world.untilPhase('Pending');
      const atMs = slurm.world.clock.nowMs();
      slurm.leave([{ state: 'FAILED', exitCode, startedAtMs: atMs, endedAtMs: atMs }]);
      await slurm.world.untilDelivered();
      expect(contextOf(await slurm.world.job())).toMatchObject({ reason });
      expect(phaseOf(await slurm.world.job())).toBe('Failed');
    },
  );

  test('P12: the output goes into the job directory, which is there before sbatch, whatever the script asks for', async () => {
    const slurm = await withAnswer((call, { world }) => {
      const output = call.argv.find((word) => word.startsWith('--output='));
      const [jobId] = world.directories.prepared.keys();
      expect(output).toBe(`--output=/runs/${jobId ?? 'none was prepared'}/stdout`);
      return null;
    });
    await slurm.world.untilPhase('Pending');
    expect(slurm.world.asked('sbatch')).toHaveLength(1);
  });
});

describe('finding what a lost answer left', () => {
  test('P13: a fast job has left the queue: accounting knows it by its name, without a comment', async () => {
    const slurm = await withAnswer((call, scheduler) => {
      scheduler.land(call);
      return exited('', TIMEOUT_TEXT, 1);
    });
    await slurm.world.untilPhase('Unknown');
    slurm.leave([{ state: 'COMPLETED' }]);
    await slurm.world.untilDelivered();
    expect(phaseOf(await slurm.world.job())).toBe('Completed');
    expect(slurm.world.asked('sbatch')).toHaveLength(1);
    expect(await slurm.world.events('submission.found')).toMatchObject([{ source: 'accounting' }]);
  });

  test('P14: two jobs with one token: the oldest lives, the other is cancelled, and it is said', async () => {
    const slurm = await withAnswer(() => null);
    const { world } = slurm;
    await world.untilPhase('Pending');
    const [first] = slurm.jobs;
    if (first === undefined) throw new Error('nothing landed');
    slurm.jobs.push({ ...first, id: '999', submittedAtMs: first.submittedAtMs + 5_000 });
    await world.until((jobs) => jobs.some((job) => job.aftermath.duplicates.length > 0));
    await world.until((jobs) => jobs.every((job) => job.aftermath.duplicates.length === 0));
    expect(world.asked('scancel').map(({ argv }) => argv)).toEqual([['999']]);
    expect(await world.events('duplicate.found')).toMatchObject([{ keep: { id: '101' }, cancel: [{ id: '999' }] }]);
    expect(world.logged.join('\n')).toContain('two jobs carry one token');
    expect(phaseOf(await world.job())).toBe('Pending');
  });

  test('P14: one submission that made two jobs: the one that holds the claim is kept, though the other one was answered', async () => {
    const slurm = await withAnswer((call, scheduler) => {
      const nowMs = scheduler.world.clock.nowMs();
      scheduler.land(call, { state: 'RUNNING', reason: 'None', submittedAtMs: nowMs + 3_000 });
      return exited(`${scheduler.land(call, { reason: 'Dependency', submittedAtMs: nowMs + 5_000 }).id}\n`);
    });
    const { world } = slurm;
    await world.untilPhase('Pending');
    world.directories.claims.set(contextOf(await world.job()).jobId, '101');
    await world.untilPhase('Running');
    await world.until((jobs) => jobs.every((job) => job.aftermath.duplicates.length === 0));
    expect(world.asked('scancel').map(({ argv }) => argv)).toEqual([['102']]);
    slurm.leave([{ state: 'COMPLETED' }]);
    await world.untilDelivered();
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'completed' }]);
    expect(contextOf(await world.job()).handle?.id).toBe('101');
  });

  test('P14: one submission that made two jobs, both over before anybody looked: the work that was done counts', async () => {
    const slurm = await withAnswer((call, scheduler) => {
      scheduler.land(call, { state: 'RUNNING', reason: 'None' });
      return exited(`${scheduler.land(call, { reason: 'Dependency' }).id}\n`);
    });
    const { world } = slurm;
    await world.untilPhase('Pending');
    world.directories.claims.set(contextOf(await world.job()).jobId, '101');
    slurm.jobs = slurm.jobs.map((job, n) => ({ ...job, state: n === 0 ? 'COMPLETED' : 'FAILED' }));
    slurm.accounted = slurm.jobs.map(({ id, name, submittedAtMs, state }) => ({
      id,
      name,
      submittedAtMs,
      state,
      exitCode: state === 'FAILED' ? '122:0' : '0:0',
    }));
    await world.untilDelivered();
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'completed' }]);
    expect(world.asked('sbatch')).toHaveLength(1);
  });

  test('P14: a query that failed makes no job failed, and none is sent again', async () => {
    const slurm = await withAnswer(() => null);
    const { world } = slurm;
    await world.untilPhase('Pending');
    slurm.meet.squeue = () => exited('', 'slurm_load_jobs error: Unable to contact slurm controller\n', 1);
    await world.run(900_000);
    expect(phaseOf(await world.job())).toBe('Pending');
    expect(world.asked('sbatch')).toHaveLength(1);
  });

  test('P64: a job that runs is found by its name where accounting keeps no comment', async () => {
    const slurm = await withAnswer((call, scheduler) => {
      scheduler.land(call);
      return exited('', TIMEOUT_TEXT, 1);
    });
    await slurm.world.untilPhase('Unknown');
    const kept = slurm.jobs;
    slurm.leave([{ state: 'RUNNING', comment: '' }]);
    await slurm.world.until((jobs) => jobs.some((job) => contextOf(job).handle !== null));
    slurm.jobs = kept.map((job) => ({ ...job, state: 'RUNNING', comment: '(null)' }));
    await slurm.world.untilPhase('Running');
    expect(slurm.world.asked('sbatch')).toHaveLength(1);
  });
});

test('P49: a dependency that can never be met: cancelled, and failed only when that is seen', async () => {
  const slurm = await withAnswer(() => null);
  const { world } = slurm;
  slurm.obeysCancel = false;
  await world.untilPhase('Pending');
  slurm.set({ reason: 'DependencyNeverSatisfied' });
  await world.until((jobs) => jobs.some((job) => contextOf(job).cancel !== null));
  await world.run(600_000);
  expect(phaseOf(await world.job())).toBe('Pending');
  slurm.set({ state: 'CANCELLED' });
  await world.untilDelivered();
  expect(contextOf(await world.job()).reason).toBe('UNSCHEDULABLE');
  expect(phaseOf(await world.job())).toBe('Failed');
});

function request(world: SlurmWorld) {
  const profile = world.profiles.get('smoke');
  if (profile === undefined) throw new Error('the world has no profile');
  const id = '01000000000000000000000001';
  return {
    jobId: JobId.parse(`job_${id}`),
    token: Token.parse(id),
    profile,
    directory: join('/runs', `job_${id}`),
    session: null,
  };
}
