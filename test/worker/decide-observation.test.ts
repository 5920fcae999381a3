import { describe, expect, test } from '@jest/globals';
import type { JobAnswer } from '../../src/backend.js';
import { contextOf, evolveJob, phaseOf, type Job } from '../../src/machines/job-aggregate.js';
import type { JobEvent } from '../../src/machines/job-events.js';
import { decideObservation, type PollTime } from '../../src/worker/decide-observation.js';
import { absent, seen, unanswered } from '../support/answers.js';
import { handle } from '../support/ids.js';
import { at, created, jobAfter, POLICY } from '../support/job-events.js';
import { SITUATIONS } from '../support/job-situations.js';

const poll = (ms: number, healthySinceMs = 0): PollTime => ({
  askedAtMs: ms,
  nowMs: ms,
  healthySinceMs: { queue: healthySinceMs, accounting: healthySinceMs },
});

const typesOf = (events: readonly JobEvent[]): readonly string[] => events.map(({ type }) => type);

/** What one answer adds in a situation, by type. */
const news = (job: Job, answer: JobAnswer, ms = 2000): readonly string[] =>
  typesOf(decideObservation(job, answer, poll(ms)));

/** Polls one after the other; gives the job and what was recorded. */
function record(
  start: Job,
  polls: readonly (readonly [ms: number, answer: JobAnswer, healthySinceMs?: number])[],
): { readonly job: Job; readonly events: readonly JobEvent[] } {
  let job = start;
  const events: JobEvent[] = [];
  for (const [ms, answer, healthySinceMs] of polls) {
    const added = decideObservation(job, answer, poll(ms, healthySinceMs));
    job = added.reduce<Job>(evolveJob, job);
    events.push(...added);
  }
  return { job, events };
}

const pending = jobAfter(...SITUATIONS.Pending);
const running = jobAfter(...SITUATIONS.Running);
const lost = jobAfter(...SITUATIONS['Unknown, nothing shown'], at(20).attemptEnded());
const RUNNING = seen({ phase: 'Running', ending: false });
const QUEUED = seen({ phase: 'Pending', waiting: 'queued' });

describe('one answer', () => {
  test.each(Object.entries(SITUATIONS))('INV-10 no answer adds nothing: %s', (_name, log) => {
    expect(news(jobAfter(...log), unanswered)).toEqual([]);
    expect(news(jobAfter(...log), { ...unanswered, kind: 'unanswered', detail: '', queueAbsent: true })).toEqual([]);
  });

  test.each([
    ['waits in the queue', QUEUED, ['job.observed'], 'Pending'],
    ['runs', RUNNING, ['job.observed'], 'Running'],
    ['is being cleaned up', seen({ phase: 'Running', ending: true }), ['job.observed'], 'Running'],
    ['completed', seen({ phase: 'Completed' }), ['completion.reported'], 'Running'],
    ['failed', seen({ phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' }), ['job.observed'], 'Failed'],
    ['was cancelled', seen({ phase: 'Cancelled', reason: 'ADMIN_CANCELLED' }), ['job.observed'], 'Cancelled'],
    ['lost its node', seen({ phase: 'Lost', reason: 'NODE_FAILED' }), ['loss.noted'], 'Pending'],
    ['is held', seen({ phase: 'Pending', waiting: 'held' }), ['job.observed'], 'Pending'],
    [
      'can never start',
      seen({ phase: 'Pending', waiting: 'never' }, { why: 'y'.repeat(500) }),
      ['job.observed', 'cancel.requested'],
      'Pending',
    ],
    ['is nowhere', absent(), ['loss.noted'], 'Pending'],
  ])('a pending job that %s', (_what, answer, types, phase) => {
    const { job, events } = record(pending, [[2000, answer]]);
    expect(typesOf(events)).toEqual(types);
    expect(phaseOf(job)).toBe(phase);
  });

  test('a job that is not submitted yet is not judged', () => {
    expect(news(jobAfter(at(1).started()), RUNNING)).toEqual([]);
    expect(news(jobAfter(), absent())).toEqual([]);
  });

  test('INV-8 a lost submission that is found is adopted, whatever it is doing by now', () => {
    expect(news(lost, QUEUED)).toEqual(['submission.found', 'job.observed']);
    expect(news(lost, seen({ phase: 'Completed' }, { source: 'accounting' }))).toEqual([
      'submission.found',
      'completion.reported',
    ]);
  });

  test('the reported completion is not reported again while the result is read', () => {
    const reported = jobAfter(...SITUATIONS['Running, completion reported']);
    expect(news(reported, seen({ phase: 'Completed' }))).toEqual([]);
    expect(news(reported, absent())).toEqual([]);
  });

  test('a requeued job goes back to Pending', () => {
    const { job } = record(running, [[2000, QUEUED]]);
    expect([phaseOf(job), contextOf(job).requeues]).toEqual(['Pending', 1]);
  });

  test('INV-6 after the end one late word is kept, and only if it says something else', () => {
    const ended = jobAfter(...SITUATIONS.Cancelled);
    const { job, events } = record(ended, [
      [2000, seen({ phase: 'Cancelled', reason: 'ADMIN_CANCELLED' })],
      [3000, RUNNING],
      [4000, seen({ phase: 'Completed' })],
      [5000, absent()],
    ]);
    expect(typesOf(events)).toEqual(['late.observed']);
    expect(phaseOf(job)).toBe('Cancelled');
  });
});

describe('a job that waits', () => {
  test('a held job is the administrator’s, unless its profile says for how long', () => {
    const held = seen({ phase: 'Pending', waiting: 'held' });
    expect(
      typesOf(
        record(pending, [
          [2000, held],
          [9_000_000, held],
        ]).events,
      ),
    ).toEqual(['job.observed']);

    const limited = [
      created({ policy: { ...POLICY, heldFailsAfterMs: 5000 } }),
      ...SITUATIONS.Pending,
    ].reduce<Job | null>(evolveJob, null);
    if (limited === null) throw new Error('no job');
    const { events } = record(limited, [
      [2000, held],
      [6999, held],
      [7000, held],
      [8000, held],
    ]);
    expect(typesOf(events)).toEqual(['job.observed', 'cancel.requested']);
    expect(events[1]).toMatchObject({ reason: 'UNSCHEDULABLE', atMs: 7000 });
  });

  test('P43 10,000 polls of reasons that flicker add an event in ten minutes at most', () => {
    const polls = Array.from({ length: 10_000 }, (_, i) => {
      const answer = seen({ phase: 'Pending', waiting: 'queued' }, { why: i % 2 === 0 ? 'Priority' : 'Resources' });
      return [2000 + i * 1000, answer] as const;
    });
    const { events } = record(pending, polls);
    expect(events.length).toBeLessThanOrEqual(1 + 10_000_000 / 600_000);
    expect(events.length).toBeGreaterThan(10);
  });

  test('P43 10,000 polls of a job that is being cleaned up add one event', () => {
    const ending = seen({ phase: 'Running', ending: true });
    const { events } = record(
      pending,
      Array.from({ length: 10_000 }, (_, i) => [2000 + i * 1000, ending]),
    );
    expect(events).toHaveLength(1);
  });
});

describe('INV-8 looking for a lost submission', () => {
  test('absence is looked at over the settling time, then the submission is disproved', () => {
    const times = Array.from({ length: 30 }, (_, i) => 100 + i * 50);
    const { job, events } = record(
      lost,
      times.map((ms) => [ms, absent()]),
    );
    expect(typesOf(events)).toEqual([...Array.from({ length: 6 }, () => 'lookup.absent'), 'submission.disproved']);
    expect(events.map(({ atMs }) => atMs)).toEqual([100, 100, 600, 600, 1100, 1100, 1100]);
    expect(phaseOf(job)).toBe('Submitting');
  });

  test('looks before the attempt’s processes have ended do not count', () => {
    const alive = jobAfter(...SITUATIONS['Unknown, nothing shown']);
    expect(
      record(alive, [
        [100, absent()],
        [700, absent()],
        [1300, absent()],
        [1900, absent()],
      ]).events,
    ).toEqual([]);
  });

  test('an outage in between starts the counting again', () => {
    const { job, events } = record(lost, [
      [100, absent()],
      [600, absent()],
      [900, unanswered],
      [1200, absent(), 1200],
      [1700, absent(), 1200],
      [2199, absent(), 1200],
    ]);
    expect(typesOf(events)).not.toContain('submission.disproved');
    expect(typesOf(record(job, [[2200, absent(), 1200]]).events)).toContain('submission.disproved');
  });

  test('a row that says active is no absence, and accounting that is not kept is no answer of accounting', () => {
    const times = [100, 600, 1100, 1600];
    expect(
      record(
        lost,
        times.map((ms) => [ms, absent({ accounting: 'stillActive' })]),
      ).events,
    ).toEqual([]);
    const kept = record(
      lost,
      times.map((ms) => [ms, absent({ accounting: 'notKept' })]),
    );
    expect(typesOf(kept.events)).not.toContain('submission.disproved');
  });
});

describe('INV-11 a job that is nowhere', () => {
  test('is Lost after the grace period, not before', () => {
    const { job, events } = record(running, [
      [1000, absent()],
      [1300, absent()],
      [1599, absent()],
    ]);
    expect(phaseOf(job)).toBe('Running');
    expect(typesOf(events)).toEqual(['loss.noted', 'loss.noted']);
    const end = record(job, [[1600, absent()]]);
    expect(typesOf(end.events)).toEqual(['loss.noted', 'loss.confirmed']);
    expect([phaseOf(end.job), contextOf(end.job).reason]).toEqual(['Lost', 'NOT_FOUND']);
  });

  test('an outage in between starts the counting again', () => {
    const polls = [
      [1000, absent()],
      [1300, absent()],
      [1400, unanswered],
      [1700, absent(), 1650],
    ] as const;
    expect(phaseOf(record(running, polls).job)).toBe('Running');
  });

  test('a job that shows up again is not lost', () => {
    const { job } = record(running, [
      [1000, absent()],
      [1300, absent()],
      [1500, RUNNING],
      [1700, absent()],
    ]);
    expect(phaseOf(job)).toBe('Running');
    expect(contextOf(job).loss?.looks).toBe(1);
  });

  test('a node that failed is a loss only if the scheduler does not bring the job back', () => {
    const failed = seen({ phase: 'Lost', reason: 'NODE_FAILED' });
    const back = record(running, [
      [1000, failed],
      [1300, failed],
      [1500, QUEUED],
    ]);
    expect([phaseOf(back.job), contextOf(back.job).requeues]).toEqual(['Pending', 1]);
    const gone = record(running, [
      [1000, failed],
      [1300, failed],
      [1600, failed],
    ]);
    expect([phaseOf(gone.job), contextOf(gone.job).reason]).toEqual(['Lost', 'NODE_FAILED']);
  });

  test('a row left active in accounting proves nothing until its time limit and the grace have passed', () => {
    const open = absent({ accounting: 'stillActive', limitEndsAtMs: 5000 });
    const times = [1000, 2000, 3000, 5599].map((ms) => [ms, open] as const);
    expect(record(running, times).events).toEqual([]);
    const after = record(running, [
      [5600, open],
      [5900, open],
      [6200, open],
    ]);
    expect(phaseOf(after.job)).toBe('Lost');
  });

  test('a row left active without a known limit proves nothing until the job is watched no longer', () => {
    const open = absent({ accounting: 'stillActive' });
    const endsAtMs = (contextOf(running).watchUntilMs ?? contextOf(running).createdAtMs + 86_400_000) + 600;
    expect(
      record(
        running,
        [1000, 2000, endsAtMs - 1].map((ms) => [ms, open] as const),
      ).events,
    ).toEqual([]);
    const after = record(
      running,
      [0, 300, 600].map((ms) => [endsAtMs + ms, open] as const),
    );
    expect([phaseOf(after.job), contextOf(after.job).reason]).toEqual(['Lost', 'NOT_FOUND']);
  });
});

describe('INV-8 two jobs with one token', () => {
  test('the oldest becomes ours, the other one is to be cancelled until it is seen to be gone', () => {
    const answer = seen({ phase: 'Running', ending: false }, { handle: handle('41', 5), duplicates: [handle('42')] });
    const first = record(pending, [[2000, answer]]);
    expect(typesOf(first.events)).toEqual(['duplicate.found', 'job.observed']);
    expect(contextOf(first.job).handle).toEqual(handle('41', 5));
    expect(first.job.aftermath.duplicates).toEqual([handle('42')]);
    const again = record(first.job, [
      [3000, answer],
      [4000, unanswered],
    ]);
    expect(again.events).toEqual([]);
    const gone = record(again.job, [[5000, { ...answer, duplicates: [] }]]);
    expect(typesOf(gone.events)).toEqual(['duplicate.ended']);
  });

  test('duplicates of a job that is over are followed to their end', () => {
    const ended = jobAfter(...SITUATIONS.Running, at(30).duplicateFound(handle('42'), [handle('43')]), at(40).failed());
    const failed = seen({ phase: 'Failed', reason: 'EXIT_NONZERO' }, { duplicates: [handle('43')] });
    expect(news(ended, failed)).toEqual([]);
    expect(news(ended, unanswered)).toEqual([]);
    expect(news(ended, { ...failed, duplicates: [] })).toEqual(['duplicate.ended']);
    expect(news(ended, absent())).toEqual(['duplicate.ended']);
  });
});
