import { describe, expect, test } from '@jest/globals';
import { disproofConditions, isDisproved } from '../../src/machines/evidence.js';
import {
  contextOf,
  createJob,
  evolveJob,
  foldJob,
  IllegalEventError,
  phaseOf,
  type Job,
} from '../../src/machines/job-aggregate.js';
import type { JobEvent, JobPolicy } from '../../src/machines/job-events.js';
import { CANCEL_REASONS, TERMINAL_PHASES } from '../../src/machines/vocabulary.js';
import { handle } from '../support/ids.js';
import { at, conclusiveEvidence, created, jobAfter, POLICY } from '../support/job-events.js';
import { EVENTS, SITUATIONS, type EventName, type Situation } from '../support/job-situations.js';

const EVENT_NAMES = Object.keys(EVENTS) as readonly EventName[];

type Row = Partial<Record<EventName, string>>;

/** Legal everywhere before the end: they concern no phase, or end it in every phase alike. */
const ALIVE = { abandoned: 'Lost', duplicateEnded: '=' } as const satisfies Row;
const OBSERVED = {
  pending: 'Pending',
  running: 'Running',
  failed: 'Failed',
  cancelled: 'Cancelled',
  lossNoted: '=',
  duplicateFound: '=',
} as const satisfies Row;
const WISHES = { cancelRequested: '=', watchLimit: '=' } as const satisfies Row;
const UNSENT_WISHES = { cancelRequested: 'Cancelled', watchLimit: 'Failed' } as const satisfies Row;
const LOOKED_UP = {
  attemptEnded: '=',
  absent: '=',
  found: 'Pending',
  duplicateFound: 'Pending',
} as const satisfies Row;
const ENDED = {
  duplicateFound: '=',
  duplicateEnded: '=',
  delivered: '=',
  directoryRemoved: '=',
  lateObserved: '=',
} as const satisfies Row;

/** Situation × event → phase; `=`: legal, the phase stays; what is not named is illegal. */
const TABLE: Readonly<Record<Situation, Row>> = {
  'Submitting, nothing sent': { ...ALIVE, ...UNSENT_WISHES, started: '=', rejected: 'Failed' },
  'Submitting, sent': {
    ...ALIVE,
    ...WISHES,
    accepted: 'Pending',
    rejected: 'Failed',
    deferred: '=',
    lost: 'Unknown',
  },
  'Submitting, sent and wished away': {
    ...ALIVE,
    accepted: 'Pending',
    rejected: 'Failed',
    deferred: 'Cancelled',
    lost: 'Unknown',
  },
  'Submitting, sent and past the watch limit': {
    ...ALIVE,
    accepted: 'Pending',
    rejected: 'Failed',
    deferred: 'Failed',
    lost: 'Unknown',
  },
  'Submitting, deferred': { ...ALIVE, ...UNSENT_WISHES, started: '=', rejected: 'Failed' },
  'Unknown, nothing shown': { ...ALIVE, ...WISHES, ...LOOKED_UP },
  'Unknown, evidence complete': { ...ALIVE, ...WISHES, ...LOOKED_UP, disproved: 'Submitting' },
  'Unknown, evidence complete, wished away': { ...ALIVE, ...LOOKED_UP, disproved: 'Cancelled' },
  'Unknown, evidence complete, past the watch limit': { ...ALIVE, ...LOOKED_UP, disproved: 'Failed' },
  Pending: { ...ALIVE, ...WISHES, ...OBSERVED, completion: 'Running' },
  'Pending, wished away': { ...ALIVE, ...OBSERVED, completion: 'Running', cancelSent: '=' },
  'Pending, past the watch limit': {
    ...ALIVE,
    ...OBSERVED,
    cancelled: 'Failed',
    completion: 'Running',
    cancelSent: '=',
  },
  'Pending, loss confirmed': { ...ALIVE, ...WISHES, ...OBSERVED, completion: 'Running', lossConfirmed: 'Lost' },
  Running: { ...ALIVE, ...WISHES, ...OBSERVED, completion: 'Running' },
  'Running, wished away': { ...ALIVE, ...OBSERVED, completion: 'Running', cancelSent: '=' },
  'Running, past the watch limit': {
    ...ALIVE,
    ...OBSERVED,
    cancelled: 'Failed',
    completion: 'Running',
    cancelSent: '=',
  },
  'Running, loss confirmed': { ...ALIVE, ...WISHES, ...OBSERVED, completion: 'Running', lossConfirmed: 'Lost' },
  'Running, completion reported': {
    ...ALIVE,
    ...WISHES,
    ...OBSERVED,
    collected: 'Completed',
    unusable: 'Failed',
  },
  Completed: ENDED,
  Failed: ENDED,
  Cancelled: ENDED,
  Lost: ENDED,
};

function outcomeOf(job: Job, event: JobEvent): string {
  try {
    const next = phaseOf(evolveJob(job, event));
    return next === phaseOf(job) ? '=' : next;
  } catch (error) {
    if (error instanceof IllegalEventError) return 'illegal';
    throw error;
  }
}

describe('every event in every situation', () => {
  test.each(Object.entries(TABLE))('INV-12 %s: takes what the table says and throws on the rest', (situation, row) => {
    const job = jobAfter(...SITUATIONS[situation as Situation]);
    const expected = EVENT_NAMES.map((name) => {
      const to = row[name] ?? 'illegal';
      return [name, to === phaseOf(job) ? '=' : to];
    });
    expect(EVENT_NAMES.map((name) => [name, outcomeOf(job, EVENTS[name])])).toEqual(expected);
  });

  test('INV-12 an illegal event names the event, the state, the job and the version', () => {
    const job = jobAfter(at(1).started());
    expect(() => evolveJob(job, at(2).collected())).toThrow(
      `result.collected is illegal in Submitting (${contextOf(job).jobId}, after version 2)`,
    );
  });

  test('INV-12 a stream begins with job.created, once', () => {
    expect(() => evolveJob(null, at(1).started())).toThrow('submission.started before job.created');
    expect(() => evolveJob(jobAfter(), created())).toThrow(IllegalEventError);
    expect(() => foldJob([])).toThrow('without events');
  });

  test('INV-6 what still arrives after the end is counted and changes neither phase nor reason', () => {
    for (const phase of TERMINAL_PHASES) {
      const ended = jobAfter(...SITUATIONS[phase]);
      const later = [at(6000).lateObserved(), at(6001).duplicateFound(), at(6002).duplicateEnded()].reduce<Job>(
        evolveJob,
        ended,
      );
      expect(later.snapshot).toBe(ended.snapshot);
      expect(later.aftermath.lateObservations).toBe(1);
      expect(later.version).toBe(ended.version + 3);
    }
  });

  test('INV-6 an outcome is delivered once, a directory removed once, and neither before the end', () => {
    const ended = jobAfter(...SITUATIONS.Failed, at(50).delivered(), at(60).directoryRemoved());
    expect(() => evolveJob(ended, at(70).delivered())).toThrow(IllegalEventError);
    expect(() => evolveJob(ended, at(70).directoryRemoved())).toThrow(IllegalEventError);
    expect(() => evolveJob(jobAfter(...SITUATIONS.Running), at(70).delivered())).toThrow(IllegalEventError);
  });
});

describe('INV-8 the conclusive negative', () => {
  const lost = [at(1).started(), at(10).lost()];
  const tryDisproof = (evidence: readonly JobEvent[], policy: JobPolicy = POLICY): string => {
    const job = foldJob([created({ policy }), ...lost, ...evidence]);
    return outcomeOf(job, at(9000).disproved());
  };
  const looks = (timesMs: readonly number[], sources = POLICY.sources, healthySinceMs = 0): readonly JobEvent[] =>
    timesMs.flatMap((ms) => sources.map((source) => at(ms).absent(source, healthySinceMs)));
  const ended = at(20).attemptEnded();

  test('complete evidence lets the job be submitted again, under the next attempt number', () => {
    expect(tryDisproof(conclusiveEvidence())).toBe('Submitting');
    const job = jobAfter(...lost, ...conclusiveEvidence(), at(1200).disproved());
    expect(contextOf(job)).toMatchObject({ attempt: { number: 1, open: false }, lookup: null });
    expect(phaseOf(evolveJob(job, at(1300).started(2)))).toBe('Submitting');
  });

  test.each([
    ['a process of the attempt may still be alive', looks([100, 600, 1100])],
    ['each source gave one look too few', [ended, ...looks([100, 1100])]],
    ['accounting was never asked', [ended, ...looks([100, 600, 1100], ['queue'])]],
    ['the queue was never asked', [ended, ...looks([100, 600, 1100], ['accounting'])]],
    ['accounting gave one look too few', [ended, ...looks([100, 1100]), at(1100).absent('queue')]],
    ['the settling time is one millisecond short', [ended, ...looks([100, 600, 1099])]],
    ['the attempt ended too late in the looks', [...looks([100, 600]), at(700).attemptEnded(), ...looks([1699])]],
    ['an outage lay between the looks', [ended, ...looks([100, 600]), ...looks([1200], POLICY.sources, 700)]],
    [
      'an outage of accounting alone lay between the looks',
      [ended, ...looks([100, 600]), at(1200).absent('queue', 0), at(1200).absent('accounting', 700)],
    ],
  ])('INV-8 it is illegal to give the submission up when %s', (_why, evidence) => {
    expect(tryDisproof(evidence)).toBe('illegal');
  });

  test('INV-8 after an outage the counting starts again, and completes', () => {
    const after = looks([1200, 1700, 2200], POLICY.sources, 700);
    expect(tryDisproof([ended, ...looks([100, 600]), ...after])).toBe('Submitting');
    expect(tryDisproof([ended, ...looks([100, 600]), ...after.slice(0, -1)])).toBe('illegal');
  });

  test('a clock that went back an hour, before the looks or between them, makes the settling time start again', () => {
    const late = at(3_600_000).attemptEnded();
    expect(tryDisproof([late, ...looks([100, 600, 1100])])).toBe('Submitting');
    expect(tryDisproof([late, ...looks([100, 600, 1099])])).toBe('illegal');
    expect(tryDisproof([late, ...looks([3_600_100, 3_600_600]), ...looks([100, 600, 1100])])).toBe('Submitting');
    expect(tryDisproof([late, ...looks([3_600_100, 3_600_600]), ...looks([100, 1100])])).toBe('illegal');
  });

  test('INV-8 a backend without accounting is asked as often in its queue alone', () => {
    const policy: JobPolicy = { ...POLICY, sources: ['queue'] };
    expect(tryDisproof([ended, ...looks([100, 600, 1100], ['queue'])], policy)).toBe('Submitting');
    expect(tryDisproof([ended, ...looks([100, 1100], ['queue'])], policy)).toBe('illegal');
  });

  test('INV-8 a second lost attempt needs evidence of its own', () => {
    const again = jobAfter(
      ...lost,
      ...conclusiveEvidence(),
      at(1200).disproved(),
      at(1300).started(2),
      at(1400).lost(),
    );
    expect(isDisproved(contextOf(again))).toBe(false);
    expect(outcomeOf(again, at(9000).disproved())).toBe('illegal');
  });

  test('INV-8 the conditions say in words what is missing', () => {
    const conditions = (job: Job): readonly string[] =>
      disproofConditions(contextOf(job)).flatMap(({ what, met }) => (met ? [] : [what]));
    expect(conditions(jobAfter())).toEqual(['the submission is not in doubt']);
    expect(conditions(jobAfter(...lost, ended, ...looks([100, 600])))).toEqual([
      'queue said "not here" 2 of 3 times',
      'accounting said "not here" 2 of 3 times',
      'the answers span 500 of 1000 ms of settling time',
    ]);
    expect(conditions(jobAfter(...lost, ...conclusiveEvidence()))).toEqual([]);
  });

  test('INV-8 an intention is recorded once per attempt: no second request while one is open', () => {
    expect(outcomeOf(jobAfter(at(1).started()), at(2).started(2))).toBe('illegal');
  });
});

describe('INV-11 loss', () => {
  const tryLoss = (...signs: readonly JobEvent[]): string =>
    outcomeOf(jobAfter(...SITUATIONS.Running, ...signs), at(9000).lossConfirmed());
  const three = [at(100).lossNoted(), at(400).lossNoted(), at(700).lossNoted()];

  test('INV-11 three signs over the grace period are a loss', () => {
    expect(tryLoss(...three)).toBe('Lost');
  });

  test.each([
    ['nothing was noted', []],
    ['there was one sign too few', [at(100).lossNoted(), at(900).lossNoted()]],
    ['the grace period is one millisecond short', [at(100).lossNoted(), at(400).lossNoted(), at(699).lossNoted()]],
    ['an outage lay between the signs', [at(100).lossNoted(), at(400).lossNoted(), at(900).lossNoted(500)]],
    ['the job was seen in between', [...three, at(800).running()]],
    ['completion was reported in between', [...three, at(800).completion()]],
    ['the signs say different things', [at(100).lossNoted(), at(400).lossNoted(), at(700).lossNoted(0, 'PREEMPTED')]],
  ])('INV-11 it is illegal to call a job lost when %s', (_why, signs) => {
    expect(tryLoss(...signs)).toBe('illegal');
  });

  test('INV-11 absence is never a completion: no result counts before the backend reported the end', () => {
    const job = jobAfter(...SITUATIONS.Running, ...three);
    expect(outcomeOf(job, at(800).collected())).toBe('illegal');
  });
});

describe('wishes to cancel', () => {
  const reasonOf = (job: Job): unknown => contextOf(job).reason;

  test.each(CANCEL_REASONS)('%s before anything was sent ends the job at once, with that reason', (reason) => {
    const job = jobAfter(at(5).cancelRequested(reason));
    const failed = reason === 'WATCH_LIMIT_EXCEEDED' || reason === 'UNSCHEDULABLE';
    expect(phaseOf(job)).toBe(failed ? 'Failed' : 'Cancelled');
    expect(contextOf(job)).toMatchObject({ reason, endedAtMs: 5, attempt: null });
  });

  test.each(CANCEL_REASONS)('%s on a running job ends as that reason when the backend says cancelled', (reason) => {
    const wished = jobAfter(...SITUATIONS.Running, at(30).cancelRequested(reason), at(31).cancelSent());
    expect(phaseOf(wished)).toBe('Running');
    const failed = reason === 'WATCH_LIMIT_EXCEEDED' || reason === 'UNSCHEDULABLE';
    const job = evolveJob(wished, at(40).cancelled());
    expect(phaseOf(job)).toBe(failed ? 'Failed' : 'Cancelled');
    expect(reasonOf(job)).toBe(reason);
  });

  test('a cancel from outside keeps the reason that the backend gave', () => {
    expect(reasonOf(jobAfter(...SITUATIONS.Cancelled))).toBe('ADMIN_CANCELLED');
  });

  test('a wish while Unknown cancels what turns up, and nothing else', () => {
    const found = jobAfter(...SITUATIONS['Unknown, nothing shown'], at(20).cancelRequested(), at(30).found());
    expect(phaseOf(found)).toBe('Pending');
    expect(contextOf(found).cancel).toMatchObject({ reason: 'USER_CANCELLED', sent: 0 });
  });

  test.each([
    ['USER_CANCELLED', 'Cancelled'],
    ['WATCH_LIMIT_EXCEEDED', 'Failed'],
  ] as const)('a wish (%s) while Unknown ends as %s when nothing landed', (reason, phase) => {
    const unknown = [...SITUATIONS['Unknown, nothing shown'], at(15).cancelRequested(reason)];
    const job = jobAfter(...unknown, ...conclusiveEvidence(), at(1200).disproved());
    expect([phaseOf(job), reasonOf(job)]).toEqual([phase, reason]);
    expect(outcomeOf(jobAfter(...unknown), at(20).disproved())).toBe('illegal');
  });

  test.each([
    ['USER_CANCELLED', 'Cancelled'],
    ['WATCH_LIMIT_EXCEEDED', 'Failed'],
  ] as const)(
    'a wish (%s) while the request is under way ends as %s when the backend says "not now"',
    (reason, phase) => {
      const job = jobAfter(at(1).started(), at(2).cancelRequested(reason), at(3).deferred());
      expect([phaseOf(job), reasonOf(job)]).toEqual([phase, reason]);
    },
  );

  test('completion that wins the race against a cancel is Completed', () => {
    const job = jobAfter(
      ...SITUATIONS.Running,
      at(30).cancelRequested(),
      at(31).cancelSent(),
      at(32).completion(),
      at(33).collected(),
    );
    expect([phaseOf(job), reasonOf(job)]).toEqual(['Completed', null]);
  });

  test('a failure that wins the race keeps its own reason', () => {
    const job = jobAfter(...SITUATIONS.Running, at(30).cancelRequested(), at(32).failed());
    expect([phaseOf(job), reasonOf(job)]).toEqual(['Failed', 'EXIT_NONZERO']);
  });

  test('the first wish counts', () => {
    const job = jobAfter(...SITUATIONS['Running, wished away']);
    expect(outcomeOf(job, at(40).cancelRequested('LEASE_LOST'))).toBe('illegal');
  });

  test('each cancel that is sent is counted, with the time before which no other one goes', () => {
    const job = jobAfter(...SITUATIONS['Running, wished away'], at(40).cancelSent(1), at(200).cancelSent(2));
    expect(contextOf(job).cancel).toMatchObject({ sent: 2, nextAtMs: 300 });
    expect(outcomeOf(jobAfter(...SITUATIONS.Running), at(40).cancelSent())).toBe('illegal');
  });

  test('abandon stops the watch in every live phase and says that the job may live on', () => {
    const job = jobAfter(...SITUATIONS.Running, at(30).abandoned());
    expect([phaseOf(job), reasonOf(job)]).toEqual(['Lost', 'ABANDONED']);
    expect(contextOf(job).detail).toMatch(/ada.*may live on/);
  });
});

describe('the way to a running job', () => {
  test('a submit limit burns no attempt', () => {
    const deferred = jobAfter(at(1).started(), at(2).deferred(500));
    expect(contextOf(deferred)).toMatchObject({ attempt: { number: 0, open: false }, notBeforeMs: 500 });
    expect(contextOf(deferred).deferral).toBe('MaxJobs');
    const again = evolveJob(deferred, at(500).started(1));
    expect(contextOf(again)).toMatchObject({ attempt: { number: 1, open: true }, deferral: null });
  });

  test('a requeue goes back to Pending under the same handle and is counted', () => {
    const job = jobAfter(...SITUATIONS.Running, at(30).pending(), at(40).running(), at(50).pending());
    expect(phaseOf(job)).toBe('Pending');
    expect(contextOf(job)).toMatchObject({ requeues: 2, handle: handle() });
  });

  test('waiting is counted from when it began to wait in this way', () => {
    const held = jobAfter(
      ...SITUATIONS.Pending,
      at(20).pending(),
      at(30).pending('held'),
      at(90).pending('held', 'still'),
    );
    expect(contextOf(held).seen).toMatchObject({ waiting: 'held', waitingSinceMs: 30, atMs: 90, why: 'still' });
  });

  test('a duplicate that is older takes the place of the one we knew, which is to be cancelled', () => {
    const job = jobAfter(...SITUATIONS.Pending, at(20).duplicateFound(handle('41'), [handle('42')]));
    expect(contextOf(job).handle).toEqual(handle('41'));
    expect(job.aftermath.duplicates).toEqual([handle('42')]);
    const twice = evolveJob(job, at(30).duplicateFound(handle('41'), [handle('42'), handle('43')]));
    expect(twice.aftermath.duplicates).toEqual([handle('42'), handle('43')]);
    expect(evolveJob(twice, at(40).duplicateEnded()).aftermath.duplicates).toEqual([handle('43')]);
  });

  test('two jobs found while Unknown settle the doubt: the oldest is ours', () => {
    const job = jobAfter(...SITUATIONS['Unknown, nothing shown'], at(30).duplicateFound());
    expect(phaseOf(job)).toBe('Pending');
    expect(contextOf(job)).toMatchObject({ handle: handle('41'), lookup: null, attempt: { open: false } });
  });

  test('a job without a usable result has failed, whatever the backend said', () => {
    const job = jobAfter(...SITUATIONS['Running, completion reported'], at(40).unusable('RESULT_INVALID'));
    expect([phaseOf(job), contextOf(job).reason]).toEqual(['Failed', 'RESULT_INVALID']);
  });

  test('the version counts every event', () => {
    expect(createJob(created()).version).toBe(1);
    expect(jobAfter(...SITUATIONS.Running).version).toBe(4);
  });
});
