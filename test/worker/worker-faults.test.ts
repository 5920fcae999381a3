import { describe, expect, jest, test } from '@jest/globals';
import { StoreError } from '../../src/events/store.js';
import { contextOf, IllegalEventError, phaseOf, type Job } from '../../src/machines/job-aggregate.js';
import { JobBook } from '../../src/worker/job-book.js';
import { grant, LEASE_TTL_MS } from '../support/fake-coordinator.js';
import { epoch, jobId, taskId, token } from '../support/ids.js';
import { at, created } from '../support/job-events.js';
import { flush } from '../support/manual-clock.js';
import { WorkerWorld } from '../support/worker-world.js';

// Hours of the manual clock are thousands of rounds, on a machine that may be busy.
jest.setTimeout(30_000);

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const RUNNING = { phase: 'Running', ending: false } as const;
const COMPLETED = { phase: 'Completed' } as const;

const isIn =
  (...phases: readonly string[]) =>
  (jobs: readonly Job[]): boolean =>
    jobs.length > 0 && jobs.every((job) => phases.includes(phaseOf(job)));
const isDelivered = (jobs: readonly Job[]): boolean => jobs.length > 0 && jobs.every((job) => job.aftermath.delivered);

async function offered(world = new WorkerWorld()): Promise<WorkerWorld> {
  await world.start();
  world.coordinator.grants.push(grant());
  return world;
}

async function running(world = new WorkerWorld()): Promise<WorkerWorld> {
  await offered(world);
  await world.until(isIn('Pending'));
  world.backend.setAll(RUNNING);
  await world.until(isIn('Running'));
  return world;
}

/** Lets the real loop run for `ms` of the manual clock. */
async function runLoop(world: WorkerWorld, ms: number): Promise<void> {
  const stop = new AbortController();
  const ended = world.worker.run(stop.signal);
  const endMs = world.clock.monotonicMs() + ms;
  while (world.clock.monotonicMs() < endMs) {
    for (let turn = 0; turn < 40; turn += 1) await flush();
    await world.clock.advance(100);
  }
  stop.abort();
  await ended;
}

const diskIsFull = (): never => {
  throw new StoreError('full', 'no space left');
};

test('a backend that takes long to answer a poll holds up neither submissions nor results nor wishes', async () => {
  const world = await running();
  const { backend, coordinator } = world;
  backend.setAll(COMPLETED);
  await world.until((jobs) => jobs.every((job) => contextOf(job).completion !== null));
  let answer = (): void => undefined;
  backend.answersAfter = new Promise((resolve) => (answer = resolve));
  coordinator.grants.push(grant({ taskId: taskId(2) }), grant({ taskId: taskId(3) }));
  await world.until(() => backend.submissions.length === 3 && coordinator.outcomes.length === 1);
  const polls = backend.callCounts()['observe'];
  coordinator.wishes = {
    lost: [],
    cancel: [{ taskId: taskId(2), by: 'ada', asAdmin: false }],
    abandon: [],
    wantLogs: [],
  };
  await world.until(() => backend.cancels.length > 0);
  await world.run(10 * MINUTE);
  // One poll is under way, and no other one beside it.
  expect(backend.callCounts()['observe']).toBeLessThanOrEqual((polls ?? 0) + 1);
  expect((await world.jobs()).map(phaseOf)).toEqual(['Completed', 'Pending', 'Pending']);
  backend.answersAfter = null;
  answer();
  await world.until((jobs) => jobs.some((job) => phaseOf(job) === 'Cancelled'));
});

describe('the loop never spins', () => {
  test('a coordinator that answers at once with nothing is not asked without end', async () => {
    const world = new WorkerWorld();
    await world.start();
    await runLoop(world, MINUTE);
    expect(world.coordinator.calls.acquire).toBeLessThanOrEqual(310);
    expect(world.coordinator.calls.renew).toBeLessThanOrEqual(32);
  });

  test('a revoked credential is tried with growing pauses, and jobs are still watched', async () => {
    const world = await running();
    await world.run(2 * MINUTE);
    world.coordinator.trouble = { kind: 'refused', status: 401, detail: 'revoked' };
    const { acquire, hello } = world.coordinator.calls;
    await runLoop(world, 10 * MINUTE);
    const tried = world.coordinator.calls.acquire + world.coordinator.calls.hello - acquire - hello;
    expect(tried).toBeLessThanOrEqual(30);
    world.backend.setAll({ phase: 'Failed', reason: 'EXIT_NONZERO' });
    await world.until(isIn('Failed'));
  });

  test('a coordinator that is away is told the news every two seconds, not every round', async () => {
    const world = await running();
    world.coordinator.trouble = { kind: 'unreachable', detail: 'down' };
    world.backend.setAll({ phase: 'Pending', waiting: 'held' });
    await world.until(isIn('Pending'));
    const before = world.coordinator.calls.report;
    await world.run(MINUTE);
    expect(world.coordinator.calls.report - before).toBeLessThanOrEqual(31);
  });

  test('P43 a job that is stuck in being cleaned up costs a minute of quick polls, then the usual ones', async () => {
    const world = await running();
    world.backend.setAll({ phase: 'Running', ending: true });
    await world.run(2 * MINUTE);
    const before = world.backend.callCounts()['observe'] ?? 0;
    await world.run(10 * MINUTE);
    expect((world.backend.callCounts()['observe'] ?? 0) - before).toBeLessThanOrEqual(21);
  });

  test('an end marker that is ahead of the backend makes the polls come quickly, not one and then none', async () => {
    const world = await running();
    await world.run(10 * MINUTE);
    const { jobId: id } = contextOf(await world.job());
    world.directories.markers.set(id, { stage: 'profile', exitCode: 0, signal: null });
    world.directories.wakes.push(id);
    await world.run(1000);
    world.backend.setAll(COMPLETED);
    const endedAtMs = world.clock.monotonicMs();
    await world.until(isDelivered);
    expect(world.clock.monotonicMs() - endedAtMs).toBeLessThanOrEqual(800);
  });
});

describe('a log that can not be written', () => {
  test('no lease is kept for a task whose job could not be recorded', async () => {
    const world = await offered();
    world.onAppend = diskIsFull;
    await expect(world.round()).rejects.toThrow('no space left');
    world.onAppend = () => undefined;
    await world.run(5000);
    expect(world.coordinator.renewals.at(-1)).toEqual([]);
    world.coordinator.grants.push(grant({ epoch: epoch(2) }));
    await world.until(isIn('Pending'));
  });

  test('the loop does not take task after task that it can not record', async () => {
    const world = new WorkerWorld({ capacity: 10 });
    await world.start();
    world.onAppend = diskIsFull;
    world.coordinator.grants.push(...Array.from({ length: 10_000 }, (_, n) => grant({ taskId: taskId(n + 1) })));
    await runLoop(world, 5 * MINUTE);
    expect(10_000 - world.coordinator.grants.length).toBeLessThanOrEqual(100);
  });

  test('INV-7 a lost lease whose wish could not be recorded is heard of again', async () => {
    const world = await running();
    const { coordinator, backend } = world;
    let failures = 0;
    world.onAppend = (_when, appends) => {
      if (failures > 0 || !appends.some(({ events }) => events.some(({ type }) => type === 'cancel.requested'))) return;
      failures += 1;
      diskIsFull();
    };
    // As the real one: it says of the leases that are renewed, and of no others, which are lost.
    coordinator.renew = (held) => {
      const value = { ttlMs: LEASE_TTL_MS, lost: held.map((one) => one.taskId), cancel: [], abandon: [], wantLogs: [] };
      return Promise.resolve({ kind: 'answered', value });
    };
    await world.until(() => backend.cancels.length > 0, HOUR);
    expect(failures).toBe(1);
  });

  test('INV-8 nothing is submitted whose intention could not be recorded', async () => {
    const world = await offered();
    world.onAppend = (when, appends) => {
      const starts = appends.some(({ events }) => events.some(({ type }) => type === 'submission.started'));
      if (when === 'before' && starts) diskIsFull();
    };
    await world.run(5 * MINUTE);
    expect(world.backend.submissions).toEqual([]);
    world.onAppend = () => undefined;
    await world.until(isIn('Pending'), 2 * MINUTE);
  });

  test('INV-8 an outcome that could not be recorded is looked up, not submitted again', async () => {
    const world = await offered();
    world.onAppend = (when, appends) => {
      const accepted = appends.some(({ events }) => events.some(({ type }) => type === 'submission.accepted'));
      if (when === 'before' && accepted) diskIsFull();
    };
    await world.until(isIn('Unknown'));
    await world.until(isIn('Pending'));
    expect([world.backend.submissions.length, world.backend.jobs.length]).toEqual([1, 1]);
  });

  test('INV-10 the beginning of an outage that could not be recorded is recorded later', async () => {
    const world = await running();
    world.backend.outage = 'queue';
    world.onAppend = diskIsFull;
    await world.run(MINUTE);
    world.onAppend = () => undefined;
    await world.run(3 * MINUTE);
    world.backend.outage = 'none';
    await world.run(3 * MINUTE);
    const health = (await world.recorded()).filter(({ stream }) => stream.startsWith('backend/'));
    expect(health.map(({ event }) => event.type)).toEqual(['worker.started', 'outage.began', 'outage.ended']);
  });

  test("one job's change that can not be recorded does not stop the others'", async () => {
    const { store } = new WorkerWorld();
    const book = await JobBook.open(store);
    await book.create(created());
    await book.create(created({ jobId: jobId(2), taskId: taskId(2), token: token(2) }));
    const good = { jobId: jobId(2), events: [at(5).started()] };
    await expect(book.record([{ jobId: jobId(1), events: [at(5).collected()] }, good])).rejects.toThrow('illegal');
    expect(book.get(jobId(2))?.version).toBe(2);
    expect(book.get(jobId(1))?.version).toBe(1);
  });

  test('INV-12 two writers of one job take turns, and the second is checked against what the first left', async () => {
    const { store } = new WorkerWorld();
    const book = await JobBook.open(store);
    await book.create(created());
    const first = book.record([{ jobId: jobId(), events: [at(5).started()] }]);
    const second = book.record([{ jobId: jobId(), events: [at(6).started(2)] }]);
    await expect(first).resolves.toBeUndefined();
    await expect(second).rejects.toThrow(IllegalEventError);
    expect((await store.readStream(`job/${jobId()}`)).map(({ version }) => version)).toEqual([1, 2]);
  });

  test('INV-12 what is in memory after a restart is what the log says, with a checkpoint and without', async () => {
    for (const checkpointEvery of [0, 1_000_000]) {
      const world = await running(new WorkerWorld({ checkpointEvery }));
      await world.crash();
      const book = await JobBook.open(world.store);
      expect([...book.all()].map(({ aftermath, version }) => ({ aftermath, version }))).toEqual(
        (await world.jobs()).map(({ aftermath, version }) => ({ aftermath, version })),
      );
      expect([...book.all()].map(contextOf)).toEqual((await world.jobs()).map(contextOf));
    }
  });
});

describe('races', () => {
  test('INV-3 a preparation that outlives the lease ends without a submission', async () => {
    const world = await offered();
    let release = (): void => undefined;
    const slow = new Promise<void>((resolve) => (release = resolve));
    world.directories.prepareReply = async () => {
      await slow;
      return { kind: 'ok' };
    };
    await world.run(2000);
    world.coordinator.trouble = { kind: 'unreachable', detail: 'down' };
    await world.run(LEASE_TTL_MS + 5000);
    release();
    await world.run(5000);
    expect(world.backend.submissions).toEqual([]);
    expect(await world.types()).toEqual(['job.created']);
    world.coordinator.trouble = null;
    await world.until(() => world.backend.submissions.length === 1);
  });

  test('INV-7 what a renewal says about the old lease does not end the job of the new one', async () => {
    const world = await running();
    const { coordinator, backend } = world;
    const renew = coordinator.renew.bind(coordinator);
    // While the renewal of epoch 1 is on its way, the task comes back under epoch 2.
    coordinator.renew = async (leases) => {
      if (leases.some((lease) => lease.epoch === 1) && coordinator.grants.length === 0) {
        coordinator.renew = renew;
        coordinator.grants.push(grant({ epoch: epoch(2) }));
        await world.worker.acquire(new AbortController().signal);
        return {
          kind: 'answered',
          value: { ttlMs: LEASE_TTL_MS, lost: [taskId()], cancel: [], abandon: [], wantLogs: [] },
        };
      }
      return renew(leases);
    };
    await world.until((jobs) => jobs.length === 2);
    await world.until(() => backend.submissions.length === 2);
    const [older, newer] = await world.jobs();
    if (older === undefined || newer === undefined) throw new Error('two jobs expected');
    expect(contextOf(older).reason).toBe('LEASE_LOST');
    expect(contextOf(newer).cancel).toBeNull();
  });

  test('INV-3 after a restart the newer of two jobs of one task keeps its lease', async () => {
    const world = await running();
    const { backend, coordinator } = world;
    backend.obeysCancel = false;
    coordinator.grants.push(grant({ epoch: epoch(2) }));
    await world.until((jobs) => jobs.length === 2);
    await world.crash();
    await world.start();
    await world.run(5000);
    expect(coordinator.renewals.at(-1)).toEqual([{ taskId: taskId(), epoch: 2 }]);
  });

  test('a wish that comes while the request is under way cancels the job that it makes', async () => {
    const world = await offered();
    let release = (): void => undefined;
    world.backend.plans.push({ lands: true, until: new Promise((resolve) => (release = resolve)) });
    await world.until(() => world.backend.submissions.length === 1);
    world.coordinator.wishes = {
      lost: [],
      cancel: [{ taskId: taskId(), by: 'ada', asAdmin: true }],
      abandon: [],
      wantLogs: [],
    };
    await world.run(5000);
    expect(phaseOf(await world.job())).toBe('Submitting');
    release();
    await world.until(isDelivered);
    expect(world.backend.jobs[0]?.state?.phase).toBe('Cancelled');
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'cancelled', reason: 'ADMIN_CANCELLED' }]);
  });

  test('an abandon that comes while the request is under way ends the watch, whatever it makes', async () => {
    const world = await offered();
    let release = (): void => undefined;
    world.backend.plans.push({ lands: true, until: new Promise((resolve) => (release = resolve)) });
    await world.until(() => world.backend.submissions.length === 1);
    world.coordinator.wishes = { lost: [], cancel: [], abandon: [{ taskId: taskId(), by: 'ada' }], wantLogs: [] };
    await world.run(5000);
    release();
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason: 'ABANDONED' }]);
    expect(world.backend.cancels).toEqual([]);
  });

  test('a held job is shown as held at once, though its phase stays', async () => {
    const world = await offered();
    await world.until(isIn('Pending'));
    const observe = world.backend.observe.bind(world.backend);
    world.backend.observe = async (items) => {
      const seen = await observe(items);
      const jobs = new Map(
        [...seen.jobs].map(([id, answer]) => [
          id,
          answer.kind === 'seen' ? { ...answer, why: 'held by root' } : answer,
        ]),
      );
      return { ...seen, jobs };
    };
    world.backend.setAll({ phase: 'Pending', waiting: 'held' });
    await world.until(() =>
      world.coordinator.reports.some((item) => item.type === 'progressed' && item.detail === 'held by root'),
    );
  });

  test('a backend call that throws stops nothing: the others go on, and it is asked again later', async () => {
    const world = await running();
    const observe = world.backend.observe.bind(world.backend);
    world.backend.observe = () => Promise.reject(new Error('a bug'));
    await world.run(HOUR / 6);
    expect(isIn('Running')(await world.jobs())).toBe(true);
    expect(world.coordinator.calls.renew).toBeGreaterThan(100);
    world.backend.observe = observe;
    world.backend.setAll(COMPLETED);
    await world.until(isDelivered);
  });
});

describe('job directories that can not be reached', () => {
  const io = { kind: 'io', detail: 'ESTALE' } as const;

  test("another worker's job that has completed is seen to its end, though its directory is out of reach", async () => {
    const world = new WorkerWorld();
    const { backend, coordinator, directories } = world;
    const result = directories.collectReply;
    directories.collectReply = (id) => (id === jobId(7) ? io : result(id));
    await world.start();
    backend.land(token(7), COMPLETED);
    const open = { jobId: jobId(7), token: token(7), epoch: epoch(1), worker: 'other', site: 'here' };
    coordinator.grants.push(grant({ epoch: epoch(2), openJobs: [open] }));
    await world.until(() => backend.submissions.length === 1, HOUR);
    backend.setAll(COMPLETED);
    await world.until(() => coordinator.outcomes.length === 1);
    expect(coordinator.outcomes).toMatchObject([{ type: 'completed', epoch: 2 }]);
  });

  test('a directory that is gone before its result was delivered is a failure with that reason, not a wait without end', async () => {
    const world = await running();
    const { backend, coordinator, directories } = world;
    coordinator.outcomeAnswer = () => ({ kind: 'unreachable', detail: 'away' });
    backend.setAll(COMPLETED);
    await world.until(isIn('Completed'));
    directories.collectReply = () => ({ kind: 'missing', detail: 'the job directory is gone' });
    coordinator.outcomeAnswer = () => ({ kind: 'answered', value: null });
    await world.until(isDelivered, HOUR);
    expect(coordinator.outcomes.at(-1)).toMatchObject({ type: 'failed', reason: 'RESULT_MISSING' });
  });

  test('a result that the coordinator did not take is kept for a while: it may be the only copy', async () => {
    const world = await running(new WorkerWorld({ keepDirectoryMs: HOUR }));
    const { backend, coordinator, directories } = world;
    coordinator.outcomeAnswer = () => ({ kind: 'stale', detail: 'an old epoch' });
    backend.setAll(COMPLETED);
    await world.until(isDelivered);
    await world.run(HOUR - 2 * MINUTE);
    expect(directories.removed).toEqual([]);
    await world.run(5 * MINUTE);
    expect(directories.removed).toHaveLength(1);
  });

  test('INV-8 a claim that can not be read disproves nothing, however long it takes', async () => {
    const world = await offered();
    const { backend, directories } = world;
    backend.plans.push({ lands: false });
    directories.claimTrouble = 'EIO';
    await world.until(isIn('Unknown'));
    await world.run(HOUR);
    expect(isIn('Unknown')(await world.jobs())).toBe(true);
    expect(backend.submissions).toHaveLength(1);
    directories.claimTrouble = null;
    await world.until(() => backend.submissions.length === 2, HOUR);
  });

  test('a runs directory that hangs holds up no renewal', async () => {
    const world = await running();
    const { coordinator, directories } = world;
    let back = (): void => undefined;
    directories.takeWakes = () => new Promise((resolve) => (back = () => resolve([])));
    await world.round();
    const before = coordinator.calls.renew;
    await world.run(10 * MINUTE);
    expect(coordinator.calls.renew - before).toBeGreaterThan(1);
    back();
  });
});
