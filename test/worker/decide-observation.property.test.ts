import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { JobAnswer } from '../../src/backend.js';
import { readEvent } from '../../src/events/schemas.js';
import { contextOf, evolveJob, foldJob, isTerminal, phaseOf, type Job } from '../../src/machines/job-aggregate.js';
import type { JobEvent } from '../../src/machines/job-events.js';
import { decideObservation, type PollTime } from '../../src/worker/decide-observation.js';
import { absentAnswers, answers, unansweredAnswers } from '../support/answers.js';
import { at, created, POLICY } from '../support/job-events.js';
import { SITUATIONS } from '../support/job-situations.js';

/** One thing that happens to a job: an answer, an outage that has just ended, or what the loop does in between. */
type Step =
  | { readonly kind: 'answer'; readonly afterMs: number; readonly answer: JobAnswer }
  | { readonly kind: 'outage'; readonly afterMs: number }
  | {
      readonly kind: 'loop';
      readonly afterMs: number;
      readonly does: 'attemptEnded' | 'cancelRequested' | 'collected' | 'started';
    };

const afterMs = fc.constantFrom(0, 50, 300, 500, 1000, 700_000);
const stepsOf = (what: fc.Arbitrary<JobAnswer>): fc.Arbitrary<readonly Step[]> =>
  fc.array(
    fc.oneof(
      { weight: 6, arbitrary: fc.record({ kind: fc.constant('answer'), afterMs, answer: what }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant('outage'), afterMs }) },
      {
        weight: 2,
        arbitrary: fc.record({
          kind: fc.constant('loop'),
          afterMs,
          does: fc.constantFrom('attemptEnded', 'cancelRequested', 'collected', 'started'),
        }),
      },
    ),
    { maxLength: 40 },
  );

const starts = fc.constantFrom(...Object.values(SITUATIONS)).map((log): readonly JobEvent[] => [created(), ...log]);

/** What the loop records in between, where the job asks for it. */
function loopEvents(job: Job, does: Extract<Step, { kind: 'loop' }>['does'], nowMs: number): readonly JobEvent[] {
  const { lookup, cancel, completion, attempt } = contextOf(job);
  const phase = phaseOf(job);
  switch (does) {
    case 'attemptEnded':
      return phase === 'Unknown' && lookup?.endedAtMs === null ? [at(nowMs).attemptEnded()] : [];
    case 'cancelRequested':
      return !isTerminal(job) && cancel === null ? [at(nowMs).cancelRequested()] : [];
    case 'collected':
      return phase === 'Running' && completion !== null ? [at(nowMs).collected()] : [];
    case 'started': {
      if (phase !== 'Submitting' || attempt?.open === true) return [];
      return [at(nowMs).started((attempt?.number ?? 0) + 1), at(nowMs).lost()];
    }
  }
}

/** Runs decide and fold step by step; `onPoll` sees each poll with the job before it. */
function play(
  log: readonly JobEvent[],
  steps: readonly Step[],
  onPoll: (before: Job, answer: JobAnswer, time: PollTime, added: readonly JobEvent[]) => void = () => undefined,
): readonly JobEvent[] {
  const events = [...log];
  let job = foldJob(events);
  let nowMs = 6000;
  let healthySinceMs = 0;
  for (const step of steps) {
    nowMs += step.afterMs;
    if (step.kind === 'outage') {
      healthySinceMs = nowMs;
      continue;
    }
    let added: readonly JobEvent[];
    if (step.kind === 'loop') added = loopEvents(job, step.does, nowMs);
    else {
      const time = { askedAtMs: nowMs, nowMs, healthySinceMs: { queue: healthySinceMs, accounting: healthySinceMs } };
      added = decideObservation(job, step.answer, time);
      onPoll(job, step.answer, time, added);
    }
    job = added.reduce<Job>(evolveJob, job);
    events.push(...added);
  }
  return events;
}

/** Counts evidence in the log itself, without the machine: healthy signs in a row before the verdict at `index`. */
function evidenceBefore(
  events: readonly JobEvent[],
  index: number,
  type: 'lookup.absent' | 'loss.noted',
): readonly number[] {
  const signs: number[] = [];
  for (const event of events.slice(0, index).reverse()) {
    if (event.type === 'lookup.absent' || event.type === 'loss.noted') {
      if (event.type === type) signs.push(event.atMs);
    } else if (event.type !== 'cancel.requested' && event.type !== 'duplicate.ended') break;
  }
  return signs;
}

const spanMs = (times: readonly number[]): number => Math.max(...times) - Math.min(...times);

describe('laws of observation', () => {
  test('INV-12 whatever is answered, each event is legal where it is recorded, and one that the log takes', () => {
    fc.assert(
      fc.property(starts, stepsOf(answers), (log, steps) => {
        const events = play(log, steps);
        expect(() => foldJob(events)).not.toThrow();
        for (const event of events) expect(readEvent(JSON.parse(JSON.stringify(event)))).toEqual(event);
      }),
      { numRuns: 400 },
    );
  });

  test('INV-10 no answer ever adds an event', () => {
    fc.assert(
      fc.property(starts, stepsOf(fc.oneof(answers, unansweredAnswers)), (log, steps) => {
        play(log, steps, (_before, answer, _time, added) => {
          if (answer.kind === 'unanswered') expect(added).toEqual([]);
        });
      }),
    );
  });

  test('a repeated observation adds nothing', () => {
    fc.assert(
      fc.property(starts, stepsOf(answers), (log, steps) => {
        play(log, steps, (before, answer, time, added) => {
          const after = added.reduce<Job>(evolveJob, before);
          const again = decideObservation(after, answer, time);
          // The answer that ended a job may be kept once more, as the one late word that says something else.
          const late = isTerminal(after) && !isTerminal(before) && again[0]?.type === 'late.observed';
          expect(late ? again.slice(1) : again).toEqual([]);
          expect(decideObservation(again.reduce<Job>(evolveJob, after), answer, time)).toEqual([]);
        });
      }),
      { numRuns: 200 },
    );
  });

  test('INV-6 a finished job stays finished, with its reason', () => {
    fc.assert(
      fc.property(starts, stepsOf(answers), (log, steps) => {
        play(log, steps, (before, _answer, _time, added) => {
          if (!isTerminal(before)) return;
          const after = added.reduce<Job>(evolveJob, before);
          expect(after.snapshot).toBe(before.snapshot);
          expect(added.every(({ type }) => type === 'late.observed' || type === 'duplicate.ended')).toBe(true);
        });
      }),
    );
  });

  test('INV-11 absence never completes a job', () => {
    fc.assert(
      fc.property(starts, stepsOf(fc.oneof(absentAnswers, unansweredAnswers)), (log, steps) => {
        play(log, steps, (_before, _answer, _time, added) => {
          expect(added.map(({ type }) => type)).not.toContain('completion.reported');
        });
      }),
    );
  });

  test('INV-11 a loss is confirmed only on enough signs over the grace period; INV-8 a disproof likewise', () => {
    let losses = 0;
    let disproofs = 0;
    fc.assert(
      fc.property(starts, stepsOf(absentAnswers), (log, steps) => {
        const events = play(log, steps);
        for (const [index, event] of events.entries()) {
          if (event.type === 'loss.confirmed') {
            losses += 1;
            const signs = evidenceBefore(events, index, 'loss.noted');
            expect(signs.length).toBeGreaterThanOrEqual(POLICY.lossLooks);
            expect(spanMs(signs)).toBeGreaterThanOrEqual(POLICY.lossGraceMs);
          } else if (event.type === 'submission.disproved') {
            disproofs += 1;
            const signs = evidenceBefore(events, index, 'lookup.absent');
            expect(signs.length).toBeGreaterThanOrEqual(2 * POLICY.looks);
            expect(spanMs(signs)).toBeGreaterThanOrEqual(POLICY.settleMs);
          }
        }
      }),
      { numRuns: 400 },
    );
    expect(Math.min(losses, disproofs)).toBeGreaterThan(5);
  });
});
