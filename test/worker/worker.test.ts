import { describe, expect, jest, test } from '@jest/globals';
import { contextOf, phaseOf, type Job } from '../../src/machines/job-aggregate.js';
import { WorkerStartError } from '../../src/worker/context.js';
import { Worker } from '../../src/worker/worker.js';
import { grant } from '../support/fake-coordinator.js';
import { epoch, jobId, taskId, token } from '../support/ids.js';
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

/** A started worker that will be given one task. */
async function offered(world = new WorkerWorld()): Promise<WorkerWorld> {
  await world.start();
  world.coordinator.grants.push(grant());
  return world;
}

/** … and whose job runs at the backend. */
async function running(world = new WorkerWorld()): Promise<WorkerWorld> {
  await offered(world);
  await world.until(isIn('Pending'));
  world.backend.setAll(RUNNING);
  await world.until(isIn('Running'));
  return world;
}

describe('the main path', () => {
  test('a task becomes one job, its result is delivered, its directory goes, and nothing is left in memory', async () => {
    const world = await running();
    const { backend, coordinator, directories } = world;
    backend.setAll(COMPLETED);
    await world.until((jobs) => jobs.every((job) => job.aftermath.directoryRemoved));
    expect(await world.types()).toEqual([
      'job.created',
      'submission.started',
      'submission.accepted',
      'job.observed',
      'completion.reported',
      'result.collected',
      'outcome.delivered',
      'directory.removed',
    ]);
    const job = await world.job();
    const { jobId: id } = contextOf(job);
    expect(coordinator.outcomes).toEqual([
      { type: 'completed', taskId: taskId(), epoch: 1, jobId: id, result: { message: 'hello' }, warnings: [] },
    ]);
    expect(coordinator.reports.map((item) => (item.type === 'progressed' ? item.phase : item.type))).toEqual([
      'opened',
      'Pending',
      'Running',
    ]);
    expect(coordinator.logs).toEqual([{ taskId: taskId(), epoch: 1, stdout: 'out', stderr: 'err' }]);
    expect(directories.prepared.get(id)).toEqual({ message: 'hello' });
    expect(directories.removed).toEqual([id]);
    expect(backend.submissions).toHaveLength(1);
    expect(world.worker.status().jobs).toEqual({});
    await world.run(5000);
    expect(coordinator.renewals.at(-1)).toEqual([]);
  });

  test('the job is known to the coordinator before it is submitted', async () => {
    const world = new WorkerWorld();
    await world.start();
    world.coordinator.grants.push(grant());
    await world.until(() => world.backend.submissions.length > 0);
    expect(world.coordinator.reports[0]).toMatchObject({ type: 'opened', jobId: contextOf(await world.job()).jobId });
  });

  test('INV-8 the intention is in the log before the request goes out', async () => {
    const world = await offered();
    let release = (): void => undefined;
    world.backend.plans.push({ lands: true, until: new Promise((resolve) => (release = resolve)) });
    await world.until(() => world.backend.submissions.length > 0);
    expect(await world.types()).toEqual(['job.created', 'submission.started']);
    release();
    await world.until(isIn('Pending'));
  });

  test('no more submissions are under way than the configuration says; the next ones get ready, and a wish still stops them', async () => {
    const world = new WorkerWorld({ submitConcurrency: 1 });
    await world.start();
    const { backend, coordinator, directories } = world;
    const tasks = [1, 2, 3, 4, 5].map((n) => taskId(n));
    coordinator.grants.push(...tasks.map((id) => grant({ taskId: id })));
    let release = (): void => undefined;
    backend.plans.push({ lands: true, until: new Promise((resolve) => (release = resolve)) });
    await world.until(() => directories.prepared.size === 3);
    await world.run(1_000);
    expect([backend.submissions.length, directories.prepared.size]).toEqual([1, 3]);
    const waiting = [...directories.prepared.keys()].filter((jobId) => jobId !== backend.submissions[0]?.jobId);
    const [stopped] = (await world.jobs()).filter((job) => waiting.includes(contextOf(job).jobId));
    if (stopped === undefined) throw new Error('no job waits its turn');
    expect(contextOf(stopped).attempt).toBeNull();
    coordinator.wishes = { lost: [contextOf(stopped).taskId], cancel: [], abandon: [], wantLogs: [] };
    await world.run(MINUTE);
    release();
    await world.until(() => backend.submissions.length === 4);
    await world.run(1_000);
    expect(backend.submissions.map(({ jobId }) => jobId)).not.toContain(contextOf(stopped).jobId);
  });

  test('a task that can not run is delivered as failed and never submitted', async () => {
    const world = new WorkerWorld();
    await world.start();
    world.coordinator.grants.push(grant({ payload: { profile: 'unknown' } }));
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason: 'INVALID_SPEC' }]);
    expect(world.backend.submissions).toEqual([]);
  });

  test('INV-2: a refusal is delivered without the words of the backend, which stay in the log', async () => {
    const world = await offered();
    world.backend.plans.push({
      lands: false,
      reply: { kind: 'refused', reason: 'BACKEND_REJECTED', detail: 'no account' },
    });
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason: 'BACKEND_REJECTED' }]);
    expect(JSON.stringify(world.coordinator.outcomes)).not.toContain('no account');
    expect(contextOf(await world.job()).detail).toBe('no account');
    expect(world.backend.submissions).toHaveLength(1);
  });

  test('a grant that comes twice makes one job', async () => {
    const world = await offered();
    world.coordinator.grants.push(grant());
    await world.until(isIn('Pending'));
    await world.run(5000);
    expect(await world.jobs()).toHaveLength(1);
    expect(world.backend.submissions).toHaveLength(1);
  });

  test('no more tasks are asked for than there is room', async () => {
    const world = new WorkerWorld({ capacity: 2 });
    await world.start();
    world.coordinator.grants.push(...[1, 2, 3].map((n) => grant({ taskId: taskId(n) })));
    await world.run(2000);
    expect(await world.jobs()).toHaveLength(2);
    world.backend.setAll(COMPLETED);
    await world.until((jobs) => jobs.length === 3, MINUTE);
  });

  test('a backend that does not fit is refused at the start; one that does not answer is waited for', async () => {
    const world = new WorkerWorld();
    world.backend.selfTestAnswer = { kind: 'unfit', problems: ['no such column'] };
    await expect(world.start()).rejects.toThrow(WorkerStartError);
    world.backend.selfTestAnswer = { kind: 'unreachable', detail: 'nobody there' };
    const starting = world.start();
    await flush();
    await world.clock.advance(3000);
    world.backend.selfTestAnswer = { kind: 'fit', report: {}, warnings: [] };
    for (let i = 0; i < 10; i += 1) {
      await world.clock.advance(5000);
      await flush();
    }
    await expect(starting).resolves.toBeInstanceOf(Worker);
  });
});

describe('INV-8 a submission happens once', () => {
  test('P01 an answer that is lost after landing: the job is found by its token and adopted', async () => {
    const world = await offered();
    world.backend.plans.push({
      lands: true,
      reply: { kind: 'timedOut', afterMs: 1, detail: 'socket timed out', hint: null },
    });
    await world.until(isIn('Unknown'));
    await world.until(isIn('Pending'));
    world.backend.setAll(COMPLETED);
    await world.until(isDelivered);
    expect(world.backend.jobs).toHaveLength(1);
    expect(world.backend.submissions).toHaveLength(1);
    expect(await world.types()).toContain('submission.found');
  });

  test('an answer that is lost before landing: exactly one more submission, after the conclusive negative', async () => {
    const world = await offered();
    const { backend } = world;
    backend.plans.push({ lands: false });
    await world.until(isIn('Unknown'));
    const lostAtMs = world.clock.monotonicMs();
    await world.until(() => backend.submissions.length === 2);
    expect(world.clock.monotonicMs() - lostAtMs).toBeGreaterThanOrEqual(backend.timing.settleMs);
    expect(backend.attemptsEnded).toEqual([contextOf(await world.job()).token]);
    const types = await world.types();
    expect(types.filter((type) => type === 'lookup.absent')).toHaveLength(2 * backend.timing.looks);
    expect(types.indexOf('submission.disproved')).toBeLessThan(types.lastIndexOf('submission.started'));
    backend.setAll(COMPLETED);
    await world.until(isDelivered);
    expect([backend.jobs.length, backend.submissions.length]).toEqual([1, 2]);
  });

  test('a request that lands late, within the settling time, is found and not repeated', async () => {
    const world = await offered();
    const { backend } = world;
    backend.plans.push({ lands: false });
    await world.until(isIn('Unknown'));
    await world.run(40_000);
    backend.land(contextOf(await world.job()).token);
    await world.until(isIn('Pending'));
    expect([backend.jobs.length, backend.submissions.length]).toEqual([1, 1]);
  });

  test('nothing is concluded while a process of the attempt is alive', async () => {
    const world = await offered();
    world.backend.attemptAlive = true;
    world.backend.plans.push({ lands: false });
    await world.until(isIn('Unknown'));
    await world.run(10 * MINUTE);
    expect(await world.types()).not.toContain('lookup.absent');
    world.backend.attemptAlive = false;
    await world.until(() => world.backend.submissions.length === 2);
  });

  test('submissions that come to nothing are further and further apart, and after the last the job is rejected', async () => {
    const world = await offered(new WorkerWorld({ attemptsMax: 3 }));
    for (let i = 0; i < 9; i += 1) world.backend.plans.push({ lands: false });
    await world.until(isDelivered, 3_600_000);
    expect(world.backend.submissions).toHaveLength(3);
    const startedAtMs = (await world.recorded()).flatMap(({ event }) =>
      event.type === 'submission.started' ? [event.atMs] : [],
    );
    const [first = 0, second = 0, third = 0] = startedAtMs;
    expect(second - first).toBeGreaterThanOrEqual(5_000);
    expect(third - second).toBeGreaterThanOrEqual(10_000);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason: 'BACKEND_REJECTED' }]);
  });

  test('a claim in the directory shows that the lost submission ran, though nobody lists it any more', async () => {
    const world = await offered();
    world.backend.plans.push({ lands: false });
    await world.until(isIn('Unknown'));
    world.directories.claims.set(contextOf(await world.job()).jobId, '77');
    await world.until(isIn('Pending'));
    expect(contextOf(await world.job()).handle?.id).toBe('77');
    expect(world.backend.submissions).toHaveLength(1);
  });

  test.each([
    ['landed', true, 1],
    ['did not land', false, 2],
  ])('a worker that stops between the intention and the outcome: the request %s', async (_what, lands, submissions) => {
    const world = await offered();
    const { backend } = world;
    let release = (): void => undefined;
    backend.plans.push({ lands, until: new Promise((resolve) => (release = resolve)) });
    await world.until(() => backend.submissions.length === 1);
    await world.crash();
    release();
    await flush();
    await world.start();
    await world.until(isIn('Unknown'));
    expect((await world.types()).slice(1)).toEqual(['submission.started', 'submission.lost']);
    await world.until(isIn('Pending'));
    world.backend.setAll(COMPLETED);
    await world.until(isDelivered);
    expect([backend.jobs.length, backend.submissions.length]).toEqual([1, submissions]);
  });

  test('two jobs with one token: the oldest lives, the other one is cancelled until it is gone', async () => {
    const world = await running();
    const { backend } = world;
    const extra = backend.land(contextOf(await world.job()).token, RUNNING);
    await world.until(() => extra.state?.phase === 'Cancelled');
    await world.until((jobs) => jobs.every((job) => job.aftermath.duplicates.length === 0));
    expect(backend.cancels.flat()).toEqual([extra.handle]);
    expect(world.logged.join('\n')).toMatch(/two jobs carry one token/);
    expect(isIn('Running')(await world.jobs())).toBe(true);
  });
});

describe('a restart', () => {
  test('a running job is adopted and completes, without another submission', async () => {
    const world = await running();
    await world.crash();
    await world.start();
    world.backend.setAll(COMPLETED);
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'completed', epoch: 1 }]);
    expect(world.backend.submissions).toHaveLength(1);
  });

  test('INV-7 a job that was leased and not submitted is submitted once its lease is renewed, not before', async () => {
    const world = await offered();
    const { backend, coordinator, directories } = world;
    directories.prepareReply = () => Promise.resolve({ kind: 'io', detail: 'the disk is away' });
    await world.run(2000);
    await world.crash();
    directories.prepareReply = () => Promise.resolve({ kind: 'ok' });
    coordinator.trouble = { kind: 'unreachable', detail: 'down' };
    await world.start();
    await world.run(MINUTE);
    expect(backend.submissions).toEqual([]);
    coordinator.trouble = null;
    await world.until(() => backend.submissions.length === 1);
  });

  test('run: the loop takes tasks by itself, and SIGTERM leaves jobs running', async () => {
    const world = new WorkerWorld();
    const stop = new AbortController();
    const worker = await world.start();
    world.coordinator.grants.push(grant());
    const ended = worker.run(stop.signal);
    for (let i = 0; i < 40 && world.backend.jobs.length === 0; i += 1) {
      for (let turn = 0; turn < 20; turn += 1) await flush();
      await world.clock.advance(200);
    }
    expect(world.backend.jobs).toHaveLength(1);
    stop.abort();
    await ended;
    expect(isIn('Pending')(await world.jobs())).toBe(true);
    expect(world.backend.cancels).toEqual([]);
  });
});

describe('the lease', () => {
  const lost = { lost: [taskId()], cancel: [], abandon: [], wantLogs: [] };

  test('INV-7 a lost lease cancels the job; when it is over, that is reported, and no outcome is sent', async () => {
    const world = await running();
    world.coordinator.wishes = lost;
    await world.until(isDelivered);
    const job = await world.job();
    expect([phaseOf(job), contextOf(job).reason]).toEqual(['Cancelled', 'LEASE_LOST']);
    expect(world.backend.cancels.flat()).toEqual([world.backend.jobs[0]?.handle]);
    expect(world.coordinator.reports.at(-1)).toMatchObject({
      type: 'closed',
      phase: 'Cancelled',
      reason: 'LEASE_LOST',
    });
    expect(world.coordinator.outcomes).toEqual([]);
    await world.run(5000);
    expect(world.coordinator.renewals.at(-1)).toEqual([]);
  });

  test('INV-7 a result that is refused as late is closed, not sent again', async () => {
    const world = await running();
    world.coordinator.outcomeAnswer = () => ({ kind: 'stale', detail: 'epoch 1 is not in force' });
    world.backend.setAll(COMPLETED);
    await world.until(isDelivered);
    const { calls, reports } = world.coordinator;
    expect(reports.at(-1)).toMatchObject({ type: 'closed', phase: 'Completed' });
    await world.run(MINUTE);
    expect(calls.outcome).toBe(1);
  });

  test('INV-7 news that is refused as stale gives the job up', async () => {
    const world = await running();
    world.coordinator.staleTasks.add(taskId());
    world.backend.setAll({ phase: 'Pending', waiting: 'queued' });
    await world.until(isDelivered);
    expect(contextOf(await world.job()).reason).toBe('LEASE_LOST');
  });

  test('a coordinator that can not be reached changes nothing for a running job, and its result waits', async () => {
    const world = await running();
    world.coordinator.trouble = { kind: 'unreachable', detail: 'down' };
    await world.run(5 * MINUTE);
    world.backend.setAll(COMPLETED);
    await world.run(5 * MINUTE);
    expect(isIn('Completed')(await world.jobs())).toBe(true);
    expect(world.backend.cancels).toEqual([]);
    world.coordinator.trouble = null;
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toHaveLength(1);
  });

  test('INV-3 nothing is submitted past a lease that could not be renewed', async () => {
    const world = await offered();
    const { backend, coordinator } = world;
    const later = { lands: false, reply: { kind: 'deferred', limit: 'MaxJobs', detail: 'later' } } as const;
    backend.plans.push(later);
    await world.until(() => backend.submissions.length === 1);
    coordinator.trouble = { kind: 'unreachable', detail: 'down' };
    backend.plans.push(...Array.from({ length: 50 }, () => later));
    await world.run(MINUTE);
    const sent = backend.submissions.length;
    await world.run(10 * MINUTE);
    expect(backend.submissions).toHaveLength(sent);
  });

  test('INV-3 a second grant of a task waits until the older job is over', async () => {
    const world = await running();
    const { backend, coordinator } = world;
    backend.obeysCancel = false;
    coordinator.grants.push(grant({ epoch: epoch(2) }));
    await world.until(() => backend.cancels.length > 0);
    await world.run(2 * MINUTE);
    expect(backend.submissions).toHaveLength(1);
    backend.setAll({ phase: 'Cancelled', reason: 'ADMIN_CANCELLED' });
    await world.until(() => backend.submissions.length === 2);
    const [older, newer] = await world.jobs();
    if (older === undefined || newer === undefined) throw new Error('two jobs expected');
    expect([phaseOf(older), contextOf(older).reason]).toEqual(['Cancelled', 'LEASE_LOST']);
    backend.jobs.filter((job) => job.token === contextOf(newer).token).forEach((job) => (job.state = COMPLETED));
    await world.until(isDelivered);
    expect(coordinator.outcomes).toMatchObject([{ type: 'completed', epoch: 2 }]);
  });

  test("INV-3 another worker's open job is ended before the task's next one starts", async () => {
    const world = new WorkerWorld();
    const { backend, coordinator } = world;
    await world.start();
    const foreign = backend.land(token(7), RUNNING);
    const open = { jobId: jobId(7), token: token(7), epoch: epoch(1), worker: 'other', site: 'here' };
    coordinator.grants.push(grant({ epoch: epoch(2), openJobs: [open] }));
    backend.obeysCancel = false;
    await world.until(() => backend.cancels.length > 0);
    await world.run(MINUTE);
    expect(backend.submissions).toEqual([]);
    foreign.state = { phase: 'Cancelled', reason: 'ADMIN_CANCELLED' };
    await world.until(() => backend.submissions.length === 1);
    expect(coordinator.reports).toContainEqual(
      expect.objectContaining({ type: 'closed', jobId: jobId(7), phase: 'Cancelled' }),
    );
  });

  test("INV-3 another worker's open job that never landed is waited for, longer than its worker could still send it", async () => {
    const world = new WorkerWorld();
    const { backend, coordinator } = world;
    await world.start();
    const open = { jobId: jobId(7), token: token(7), epoch: epoch(1), worker: 'other', site: 'here' };
    coordinator.grants.push(grant({ epoch: epoch(2), openJobs: [open] }));
    await world.run(3 * MINUTE);
    expect(backend.submissions).toEqual([]);
    await world.until(() => backend.submissions.length === 1);
    expect(backend.cancels).toEqual([]);
  });
});

describe('wishes', () => {
  const cancelled = { lost: [], cancel: [{ taskId: taskId(), by: 'ada', asAdmin: false }], abandon: [], wantLogs: [] };

  test('P43 a cancel is repeated with growing pauses until the end is observed, also across a restart', async () => {
    const world = await running();
    const { backend, coordinator } = world;
    backend.obeysCancel = false;
    backend.setAll({ phase: 'Running', ending: true });
    coordinator.wishes = cancelled;
    await world.until(() => backend.cancels.length === 3);
    await world.crash();
    await world.start();
    await world.run(HOUR);
    expect(isIn('Running')(await world.jobs())).toBe(true);
    expect(backend.cancels.length).toBeLessThanOrEqual(11);
    expect(backend.cancels.length).toBeGreaterThanOrEqual(8);
    backend.setAll({ phase: 'Cancelled', reason: 'ADMIN_CANCELLED' });
    await world.until(isDelivered);
    expect(coordinator.outcomes).toMatchObject([{ type: 'cancelled', reason: 'USER_CANCELLED' }]);
    expect((await world.types()).length).toBeLessThan(30);
  });

  test('INV-13 nothing is cancelled, and nothing counts as sent, while the backend does not know whose the ids are', async () => {
    const world = await running();
    const { backend, coordinator } = world;
    backend.cancellable = false;
    coordinator.wishes = cancelled;
    await world.run(HOUR);
    expect(backend.cancels).toEqual([]);
    expect(await world.types()).not.toContain('cancel.sent');
    backend.cancellable = true;
    await world.run(1_000);
    expect(backend.cancels).toHaveLength(1);
    await world.until(isDelivered);
    expect(coordinator.outcomes).toMatchObject([{ type: 'cancelled', reason: 'USER_CANCELLED' }]);
  });

  test('a wish before anything was sent means that nothing is sent', async () => {
    const world = new WorkerWorld();
    await world.start();
    world.coordinator.grants.push(grant());
    world.coordinator.wishes = cancelled;
    world.directories.prepareReply = () => Promise.resolve({ kind: 'io', detail: 'the disk is away' });
    await world.until(isDelivered);
    expect(world.backend.submissions).toEqual([]);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'cancelled', reason: 'USER_CANCELLED' }]);
  });

  test('completion that wins the race is delivered as completed', async () => {
    const world = await running();
    world.backend.obeysCancel = false;
    world.coordinator.wishes = cancelled;
    await world.until(() => world.backend.cancels.length === 1);
    world.backend.setAll(COMPLETED);
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'completed' }]);
  });

  test('a wish while Unknown cancels what turns up', async () => {
    const world = await offered();
    world.backend.plans.push({ lands: false });
    await world.until(isIn('Unknown'));
    world.coordinator.wishes = cancelled;
    await world.run(10_000);
    expect(world.backend.cancels).toEqual([]);
    const late = world.backend.land(contextOf(await world.job()).token);
    await world.until(isDelivered);
    expect(late.state).toEqual({ phase: 'Cancelled', reason: 'ADMIN_CANCELLED' });
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'cancelled', reason: 'USER_CANCELLED' }]);
  });

  test('abandon stops the watch at once, says so loudly, and leaves the job alone', async () => {
    const world = await running();
    world.coordinator.wishes = { lost: [], cancel: [], abandon: [{ taskId: taskId(), by: 'ada' }], wantLogs: [] };
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason: 'ABANDONED' }]);
    expect(world.logged.join('\n')).toMatch(/may live on/);
    const { observe } = world.backend.callCounts();
    await world.run(5 * MINUTE);
    expect(world.backend.callCounts()['observe']).toBe(observe);
    expect(world.backend.cancels).toEqual([]);
  });

  test('somebody who reads the output gets its newest part while the job runs', async () => {
    const world = await running();
    world.coordinator.wishes = { lost: [], cancel: [], abandon: [], wantLogs: [taskId()] };
    await world.until(() => world.coordinator.logs.length > 0);
  });

  test('past the watch limit a job is cancelled and has failed, also one that was never submitted', async () => {
    const world = await running(new WorkerWorld({ watchLimitMs: 10 * MINUTE }));
    const unsent = grant({ taskId: taskId(2) });
    world.backend.plans.push(
      ...Array.from({ length: 99 }, () => ({
        lands: false,
        reply: { kind: 'deferred', limit: 'MaxJobs', detail: 'later' } as const,
      })),
    );
    world.coordinator.grants.push(unsent);
    await world.until(isDelivered, 20 * MINUTE);
    expect(world.coordinator.outcomes).toMatchObject([
      { type: 'failed', reason: 'WATCH_LIMIT_EXCEEDED' },
      { type: 'failed', reason: 'WATCH_LIMIT_EXCEEDED' },
    ]);
    expect(world.backend.cancels.flat()).toHaveLength(1);
  });
});

describe('a submit limit', () => {
  test('P10 holds the whole profile, with growing pauses, burns no attempt, and is shown', async () => {
    const world = new WorkerWorld();
    const { backend, coordinator } = world;
    await world.start();
    const later = { lands: false, reply: { kind: 'deferred', limit: 'MaxJobs', detail: 'later' } } as const;
    backend.plans.push(...Array.from({ length: 10 }, () => later));
    coordinator.grants.push(grant());
    await world.until(() => backend.submissions.length === 1);
    coordinator.grants.push(...[2, 3, 4, 5].map((n) => grant({ taskId: taskId(n) })));
    await world.run(14_000);
    expect(backend.submissions).toHaveLength(1);
    await world.run(3000);
    expect(backend.submissions).toHaveLength(6);
    expect(coordinator.reports).toContainEqual(
      expect.objectContaining({ type: 'progressed', phase: 'Submitting', detail: expect.stringContaining('limit') }),
    );
    await world.run(25_000);
    expect(backend.submissions).toHaveLength(6);
    await world.until(isIn('Pending'));
    const jobs = await world.jobs();
    expect(jobs.map((job) => contextOf(job).attempt?.number)).toEqual([1, 1, 1, 1, 1]);
    expect(backend.jobs).toHaveLength(5);
  });
});

describe('INV-10 an outage', () => {
  test('changes no phase, is one event when it begins and one when it ends, and slows the questions down', async () => {
    const world = new WorkerWorld();
    const { backend, coordinator } = world;
    await world.start();
    coordinator.grants.push(...[1, 2, 3].map((n) => grant({ taskId: taskId(n) })));
    await world.until(isIn('Pending'));
    const events = (await world.recorded()).length;
    backend.outage = 'queue';
    backend.setAll(null);
    const before = backend.callCounts()['observe'] ?? 0;
    await world.run(2 * HOUR);
    expect((backend.callCounts()['observe'] ?? 0) - before).toBeLessThan(130);
    const during = (await world.recorded()).slice(events);
    expect(during.map(({ stream, event }) => [stream, event.type])).toEqual([['backend/fake', 'outage.began']]);
    expect(during[0]?.event).toMatchObject({ jobsKept: 3 });
    backend.setAll(RUNNING);
    backend.outage = 'none';
    await world.until(isIn('Running'));
    expect((await world.recorded()).filter(({ event }) => event.type === 'outage.ended')).toHaveLength(1);
  });

  test('P19 while accounting is out, a job that left the queue is kept as it is; then the answer decides', async () => {
    const world = await running();
    world.backend.outage = 'accounting';
    world.backend.setAll(COMPLETED);
    await world.run(HOUR);
    expect(isIn('Running')(await world.jobs())).toBe(true);
    world.backend.outage = 'none';
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'completed' }]);
  });

  test('INV-11 a job that is gone while all answers are healthy is Lost after the grace, and the task may be tried again', async () => {
    const world = await running();
    world.backend.setAll(null);
    await world.run(30_000);
    expect(isIn('Running')(await world.jobs())).toBe(true);
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'lost', reason: 'NOT_FOUND' }]);
  });
});

describe('the result', () => {
  test.each([
    ['missing', 'RESULT_MISSING'],
    ['invalid', 'RESULT_INVALID'],
  ] as const)('one that stays %s makes the job fail, after a grace for a slow file system', async (kind, reason) => {
    const world = await running();
    world.directories.collectReply = () => ({ kind, detail: 'not there' });
    world.backend.setAll(COMPLETED);
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason, detail: 'not there' }]);
    const events = (await world.store.readStream(`job/${contextOf(await world.job()).jobId}`)).map(
      ({ event }) => event,
    );
    const reported = events.find(({ type }) => type === 'completion.reported');
    const unusable = events.find(({ type }) => type === 'result.unusable');
    expect((unusable?.atMs ?? 0) - (reported?.atMs ?? 0)).toBeGreaterThanOrEqual(world.config.resultGraceMs);
  });

  test('one that shows up late counts', async () => {
    const world = await running();
    const { collectReply } = world.directories;
    world.directories.collectReply = () => ({ kind: 'missing', detail: 'not there yet' });
    world.backend.setAll(COMPLETED);
    await world.run(3000);
    world.directories.collectReply = collectReply;
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'completed' }]);
  });

  test('a file system that does not answer is waited for', async () => {
    const world = await running();
    const { collectReply } = world.directories;
    world.directories.collectReply = () => ({ kind: 'io', detail: 'stale handle' });
    world.backend.setAll(COMPLETED);
    await world.run(HOUR);
    expect(isIn('Running')(await world.jobs())).toBe(true);
    world.directories.collectReply = collectReply;
    await world.until(isDelivered);
  });

  test('one that the coordinator refuses for what it holds is a failure, not a loop', async () => {
    const world = await running();
    world.coordinator.outcomeAnswer = ({ type }) =>
      type === 'completed' ? { kind: 'refused', status: 413, detail: 'too large' } : { kind: 'answered', value: null };
    world.backend.setAll(COMPLETED);
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason: 'RESULT_INVALID' }]);
  });

  test('without one the directory is kept for a while, then it goes too', async () => {
    const world = await running(new WorkerWorld({ keepDirectoryMs: HOUR }));
    world.backend.setAll({ phase: 'Failed', reason: 'EXIT_NONZERO' });
    await world.until(isDelivered);
    await world.run(30 * MINUTE);
    expect(world.directories.removed).toEqual([]);
    await world.run(31 * MINUTE);
    expect(world.directories.removed).toHaveLength(1);
    expect(world.worker.status().jobs).toEqual({});
  });

  test('a job whose own script could not start its profile says so', async () => {
    const world = await running();
    world.directories.markers.set(contextOf(await world.job()).jobId, {
      stage: 'bootstrap',
      exitCode: 3,
      signal: null,
    });
    world.backend.setAll({ phase: 'Failed', reason: 'EXIT_NONZERO' });
    await world.until(isDelivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason: 'BOOTSTRAP_FAILED' }]);
  });
});

describe('the number of questions', () => {
  test.each([1, 300])('at rest twice a minute at most, with %i jobs', async (count) => {
    const world = new WorkerWorld();
    await world.start();
    world.coordinator.grants.push(...Array.from({ length: count }, (_, n) => grant({ taskId: taskId(n + 1) })));
    await world.until(isIn('Pending'));
    world.backend.setAll(RUNNING);
    await world.until(isIn('Running'));
    await world.run(2 * MINUTE);
    const before = world.backend.callCounts()['observe'] ?? 0;
    await world.run(5 * MINUTE);
    const polls = (world.backend.callCounts()['observe'] ?? 0) - before;
    expect(polls).toBeLessThanOrEqual(10);
    expect(polls).toBeGreaterThanOrEqual(9);
  });

  test('the end marker of a job brings its result within half a second', async () => {
    const world = await running();
    await world.run(10 * MINUTE);
    world.backend.setAll(COMPLETED);
    const { jobId: id } = contextOf(await world.job());
    world.directories.markers.set(id, { stage: 'profile', exitCode: 0, signal: null });
    world.directories.wakes.push(id);
    const endedAtMs = world.clock.monotonicMs();
    await world.until(isDelivered);
    expect(world.clock.monotonicMs() - endedAtMs).toBeLessThanOrEqual(600);
  });
});
