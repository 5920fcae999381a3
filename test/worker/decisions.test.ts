import { describe, expect, test } from '@jest/globals';
import type { Observations, SubmitReply } from '../../src/backend.js';
import type { LeaseGrant } from '../../src/coordinator/worker-api.js';
import { readEvent } from '../../src/events/schemas.js';
import { contextOf, foldJob, phaseOf } from '../../src/machines/job-aggregate.js';
import { silentLog } from '../../src/runtime/log.js';
import { Activities, again, DONE, type ActivityResult } from '../../src/worker/activities.js';
import { resendAfterMs } from '../../src/worker/cancel.js';
import { decideSubmission } from '../../src/worker/decide-submission.js';
import { decideHealth, UNKNOWN_HEALTH, type Health } from '../../src/worker/health.js';
import { inheritedJob, jobForGrant } from '../../src/worker/intake.js';
import { Leases } from '../../src/worker/leases.js';
import { TIMING } from '../support/fake-backend.js';
import { epoch, handle, jobId, taskId, token } from '../support/ids.js';
import { ManualClock } from '../support/manual-clock.js';
import { profile } from '../support/profiles.js';
import { SeededRandom } from '../support/seeded-random.js';

describe('what the answer to a submission means', () => {
  const long = 'x'.repeat(10_000);

  test.each<readonly [SubmitReply, object]>([
    [
      { kind: 'accepted', handle: handle(), notes: '' },
      { type: 'submission.accepted', handle: handle() },
    ],
    [
      { kind: 'refused', reason: 'BACKEND_REJECTED', detail: 'no such account' },
      { type: 'submission.rejected', reason: 'BACKEND_REJECTED', detail: 'no such account' },
    ],
    [
      { kind: 'deferred', limit: 'MaxJobs', detail: 'later' },
      { type: 'submission.deferred', notBeforeMs: 1500, limit: 'MaxJobs' },
    ],
    [
      { kind: 'unreadable', detail: 'Welcome!', hint: '42' },
      { type: 'submission.lost', cause: 'unreadable', hint: '42' },
    ],
    [
      { kind: 'timedOut', afterMs: 10, detail: 'no answer', hint: null },
      { type: 'submission.lost', cause: 'timedOut', hint: null },
    ],
    [
      { kind: 'unreachable', detail: 'nobody there', hint: null },
      { type: 'submission.lost', cause: 'unreachable' },
    ],
  ])('INV-8 P01 P10 only a known "no" is a failure: %j', (reply, event) => {
    expect(decideSubmission(reply, 1000, 500)).toMatchObject({ v: 1, atMs: 1000, ...event });
  });

  test.each<SubmitReply>([
    { kind: 'refused', reason: 'INVALID_SPEC', detail: long },
    { kind: 'deferred', limit: long, detail: long },
    { kind: 'unreadable', detail: long, hint: long },
    { kind: 'timedOut', afterMs: 1, detail: long, hint: null },
  ])('a text without end is cut, so that the log takes it: $kind', (reply) => {
    const event = decideSubmission(reply, 1000, 500);
    expect(readEvent(event)).toEqual(event);
  });
});

describe('INV-10 the health of a backend', () => {
  const outage = { kind: 'unreachable', detail: 'refused' } as const;
  const answered: Observations = { jobs: new Map(), outage: null, queueOutage: null, oddities: [] };
  const queueDown: Observations = { ...answered, outage, queueOutage: outage };
  const accountingDown: Observations = { ...answered, outage };

  function run(polls: readonly Observations[], start: Health = UNKNOWN_HEALTH) {
    let health = start;
    const events: string[] = [];
    for (const [index, seen] of polls.entries()) {
      const step = decideHealth(health, seen, index + 1, 31);
      health = step.health;
      for (const event of step.events)
        events.push(`${String(index + 1)} ${event.type} ${'part' in event ? event.part : ''}`);
    }
    return { health, events };
  }

  test('one event when an outage begins and one when it ends, however many polls and jobs', () => {
    const polls = [answered, ...Array.from({ length: 1000 }, () => queueDown), answered, answered];
    expect(run(polls).events).toEqual(['2 outage.began queue', '1002 outage.ended queue']);
    expect(decideHealth(UNKNOWN_HEALTH, queueDown, 5, 31).events).toEqual([
      { type: 'outage.began', v: 1, atMs: 5, part: 'queue', kind: 'unreachable', detail: 'refused', jobsKept: 31 },
    ]);
  });

  test('P19 accounting alone may be out, and the queue still answers', () => {
    const { health, events } = run([answered, accountingDown, accountingDown, answered]);
    expect(events).toEqual(['2 outage.began accounting', '4 outage.ended accounting']);
    expect(health.queue.healthySinceMs).toBe(1);
    expect(health.accounting.healthySinceMs).toBe(4);
  });

  test('a queue that does not answer says nothing about accounting', () => {
    const { health, events } = run([answered, accountingDown, queueDown, queueDown, answered]);
    expect(events).toEqual([
      '2 outage.began accounting',
      '3 outage.began queue',
      '5 outage.ended queue',
      '5 outage.ended accounting',
    ]);
    expect(health).toEqual({
      queue: { healthySinceMs: 5, outageSinceMs: null },
      accounting: { healthySinceMs: 5, outageSinceMs: null },
    });
  });
});

describe('INV-3 INV-7 leases', () => {
  const TTL = 60_000;

  test('nothing is submitted under a lease that is not held, is old, or is about to end', () => {
    const leases = new Leases();
    expect(leases.maySubmit(taskId(), epoch(1), 0)).toBe(false);
    leases.hold(taskId(), epoch(2), 0, TTL);
    expect(leases.maySubmit(taskId(), epoch(2), 0)).toBe(true);
    expect(leases.maySubmit(taskId(), epoch(1), 0)).toBe(false);
    expect(leases.maySubmit(taskId(), epoch(2), TTL - 10_000)).toBe(false);
    expect(leases.maySubmit(taskId(), epoch(2), TTL + 1)).toBe(false);
  });

  test('a short lease can be used too', () => {
    const leases = new Leases();
    leases.hold(taskId(), epoch(1), 0, 4000);
    expect(leases.maySubmit(taskId(), epoch(1), 2999)).toBe(true);
    expect(leases.maySubmit(taskId(), epoch(1), 3001)).toBe(false);
  });

  test('a lease from the log has to be renewed before anything starts under it', () => {
    const leases = new Leases();
    leases.remember(taskId(), epoch(1));
    expect(leases.maySubmit(taskId(), epoch(1), 0)).toBe(false);
    leases.renewed(leases.list(), { ttlMs: TTL, lost: [], cancel: [], abandon: [], wantLogs: [] }, 0);
    expect(leases.maySubmit(taskId(), epoch(1), 0)).toBe(true);
  });

  test.each([
    [1, 2],
    [2, 1],
  ])('of two jobs of one task in the log, the newer lease is the one that is remembered (%i, %i)', (first, second) => {
    const leases = new Leases();
    leases.remember(taskId(), epoch(first));
    leases.remember(taskId(), epoch(second));
    expect(leases.list()).toEqual([{ taskId: taskId(), epoch: 2 }]);
  });

  test('what a renewal says about an old epoch does not touch the new lease', () => {
    const leases = new Leases();
    leases.hold(taskId(), epoch(1), 0, TTL);
    const sent = leases.list();
    leases.hold(taskId(), epoch(2), 0, TTL);
    leases.renewed(sent, { ttlMs: TTL, lost: [taskId()], cancel: [], abandon: [], wantLogs: [] }, 0);
    expect(leases.epochOf(taskId())).toBe(2);
    leases.drop(taskId(), epoch(1));
    expect(leases.list()).toHaveLength(1);
    leases.drop(taskId(), epoch(2));
    expect(leases.list()).toEqual([]);
  });
});

describe('the first events of a job', () => {
  const grant = (over: Partial<LeaseGrant> = {}): LeaseGrant => ({
    taskId: taskId(),
    epoch: epoch(3),
    kind: 'training',
    payload: { profile: 'smoke', parameters: { message: 'hello' } },
    ttlMs: 60_000,
    openJobs: [],
    ...over,
  });
  const context = {
    profiles: new Map([
      ['smoke', profile()],
      ['strict', profile({ name: 'strict', parametersSchema: { type: 'object', required: ['message'] } })],
    ]),
    backend: { timing: TIMING, sources: ['queue', 'accounting'] as const },
    random: new SeededRandom(1),
    nowMs: 1_800_000_000_000,
    watchLimitMs: 86_400_000,
    kinds: ['training'],
  };

  test('a task that fits becomes a job that waits to be submitted, with the rules it lives by', () => {
    const { created, more } = jobForGrant(grant(), context);
    expect(more).toEqual([]);
    expect(readEvent(created)).toEqual(created);
    expect(created).toMatchObject({
      taskId: taskId(),
      epoch: 3,
      profile: 'smoke',
      parameters: { message: 'hello' },
      watchUntilMs: 1_800_086_400_000,
      policy: { settleMs: TIMING.settleMs, sources: ['queue', 'accounting'], heldFailsAfterMs: null },
    });
    expect(phaseOf(foldJob([created]))).toBe('Submitting');
  });

  test('INV-8 every job has a token and an id of its own', () => {
    const jobs = Array.from({ length: 500 }, () => jobForGrant(grant(), context).created);
    expect(new Set(jobs.flatMap((job) => [job.token, job.jobId.slice(4)])).size).toBe(1000);
  });

  test.each([
    ['another kind', { kind: 'mining' }, /no such kind: mining/],
    ['a kind that no name can have', { kind: 'x\n'.repeat(5000) }, /no such kind/],
    ['no payload', { payload: null }, /payload does not fit/],
    ['an extra key', { payload: { profile: 'smoke', script: 'x' } }, /script/],
    ['a hostile profile name', { payload: { profile: 'smoke; rm -rf /' } }, /profile/],
    ['an unknown profile', { payload: { profile: 'gpu' } }, /unknown profile "gpu"; this worker offers smoke, strict/],
    ['parameters that do not fit', { payload: { profile: 'strict', parameters: {} } }, /message/],
  ] as const)('%s is refused before anything is submitted, with the reason', (_what, over, detail) => {
    const { created, more } = jobForGrant(grant(over), context);
    const events = [created, ...more];
    for (const event of events) expect(readEvent(JSON.parse(JSON.stringify(event)))).toEqual(event);
    const job = foldJob(events);
    expect([phaseOf(job), contextOf(job).reason, contextOf(job).attempt]).toEqual(['Failed', 'INVALID_SPEC', null]);
    expect(contextOf(job).detail).toMatch(detail);
  });

  test("INV-3 another worker's open job is looked for by its token and ended, after a longer settling time", () => {
    const open = { jobId: jobId(7), token: token(7), epoch: epoch(2), worker: 'other', site: 's' };
    const { created, more } = inheritedJob(grant(), open, context);
    for (const event of [created, ...more]) expect(readEvent(event)).toEqual(event);
    const job = foldJob([created, ...more]);
    expect(phaseOf(job)).toBe('Unknown');
    expect(contextOf(job)).toMatchObject({
      jobId: jobId(7),
      token: token(7),
      epoch: 2,
      inherited: true,
      watchUntilMs: null,
      cancel: { reason: 'LEASE_LOST' },
      lookup: { cause: 'inherited' },
    });
    expect(contextOf(job).policy.settleMs).toBeGreaterThanOrEqual(TIMING.settleMs + 120_000);
  });
});

describe('activities', () => {
  function create() {
    const clock = new ManualClock();
    let ends = 0;
    const activities = new Activities(clock, silentLog, () => {
      ends += 1;
    });
    return { clock, activities, ends: () => ends };
  }
  const forever = (): Promise<ActivityResult> => new Promise(() => undefined);

  test('at most one at a time for a job, and at most so many of a kind', () => {
    const { activities } = create();
    expect(activities.start('submit', 2, jobId(1), forever)).toBe(true);
    expect(activities.start('deliver', 2, jobId(1), forever)).toBe(false);
    expect(activities.start('submit', 2, jobId(2), forever)).toBe(true);
    expect(activities.start('submit', 2, jobId(3), forever)).toBe(false);
    expect(activities.start('deliver', 2, jobId(3), forever)).toBe(true);
    expect([1, 2, 3, 4].map((n) => activities.isBusy(jobId(n)))).toEqual([true, true, true, false]);
  });

  test.each([
    ['says so', () => Promise.resolve(again('later'))],
    ['throws', () => Promise.reject(new Error('disk'))],
  ])('one that %s is tried again with growing pauses, and does not stop the others', async (_how, run) => {
    const { clock, activities, ends } = create();
    const pauses: number[] = [];
    for (let i = 0; i < 9; i += 1) {
      expect(activities.start('collect', 1, jobId(1), run)).toBe(true);
      await activities.idle();
      const nextMs = activities.nextRetryAtMs();
      expect(nextMs).not.toBeNull();
      pauses.push((nextMs ?? 0) - clock.monotonicMs());
      await clock.advance((nextMs ?? 0) - clock.monotonicMs() - 1);
      expect(activities.start('collect', 1, jobId(1), run)).toBe(false);
      expect(activities.start('collect', 1, jobId(2), () => Promise.resolve(DONE))).toBe(true);
      await activities.idle();
      await clock.advance(1);
    }
    expect(pauses).toEqual([1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    expect(ends()).toBe(18);
    expect(activities.start('collect', 1, jobId(1), () => Promise.resolve(DONE))).toBe(true);
    await activities.idle();
    expect(activities.nextRetryAtMs()).toBeNull();
  });
});

test('P43 a cancel is repeated with pauses that grow to half an hour, for ever', () => {
  expect([0, 1, 2, 9].map(resendAfterMs)).toEqual([5000, 10_000, 20_000, 1_800_000]);
  expect(resendAfterMs(1_000_000)).toBe(1_800_000);
});
