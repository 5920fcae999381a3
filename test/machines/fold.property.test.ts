import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { isDeepStrictEqual } from 'node:util';
import { initialTransition, transition } from 'xstate';
import { createFold } from '../../src/machines/fold.js';
import {
  createJob,
  evolveJob,
  foldJob,
  IllegalEventError,
  isTerminal,
  phaseOf,
  restoreJob,
  storeJob,
  type Job,
  type StoredJob,
} from '../../src/machines/job-aggregate.js';
import type { JobCreated, JobEvent, MachineEvent } from '../../src/machines/job-events.js';
import { jobMachine, type JobSnapshot } from '../../src/machines/job.js';
import { PHASES, type Phase } from '../../src/machines/vocabulary.js';
import { created } from '../support/job-events.js';
import { firstEvents, laterEvents } from '../support/job-event-arbitrary.js';
import { EVENTS, SITUATIONS } from '../support/job-situations.js';

/**
 * A known way to somewhere, or none, and then anything: long enough to come to an end on most ways. What is illegal where
 * it comes is left out.
 */
const attempts = fc
  .tuple(fc.constantFrom(...Object.values(SITUATIONS)), fc.array(laterEvents, { minLength: 30, maxLength: 100 }))
  .map(([way, events]): readonly JobEvent[] => [...way, ...events]);

const AFTERMATH = new Set([
  'duplicate.ended',
  'outcome.delivered',
  'directory.removed',
  'late.observed',
  'job.created',
]);

const isMachineEvent = (event: JobEvent): event is Extract<JobEvent, MachineEvent> => !AFTERMATH.has(event.type);

/** The job after the event, or null where it is illegal. Anything else that is thrown is a failure. */
function tryEvolve(job: Job, event: JobEvent): Job | null {
  try {
    return evolveJob(job, event);
  } catch (error) {
    if (error instanceof IllegalEventError) return null;
    throw error;
  }
}

/** The legal part of a sequence, and every job on the way. */
function live(
  first: JobCreated,
  events: readonly JobEvent[],
): { readonly log: readonly JobEvent[]; readonly jobs: readonly Job[] } {
  const log: JobEvent[] = [first];
  const jobs = [createJob(first)];
  let job = createJob(first);
  for (const event of events) {
    const after = tryEvolve(job, event);
    if (after === null) continue;
    job = after;
    log.push(event);
    jobs.push(job);
  }
  return { log, jobs };
}

const seen = (snapshot: JobSnapshot) => ({
  value: snapshot.value,
  context: snapshot.context,
  status: snapshot.status,
  tags: [...snapshot.tags],
});

/** Cheap where things are equal, which is nearly always: jest's own comparison takes most of the time of 10,000 steps. */
function expectSame(ours: unknown, right: unknown): void {
  if (!isDeepStrictEqual(ours, right)) expect(ours).toStrictEqual(right);
}

const viaJson = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

describe('the fast fold', () => {
  test("gives exactly what XState's own transition gives, and refuses exactly what that ignores", () => {
    const reached = new Set<Phase>();
    const taken = new Set<string>();
    const refused = new Set<string>();
    fc.assert(
      fc.property(firstEvents, attempts, (first, events) => {
        let job = createJob(first);
        let [slow] = initialTransition(jobMachine, first);
        expectSame(seen(job.snapshot), seen(slow));
        for (const event of events) {
          const after = tryEvolve(job, event);
          if (!isMachineEvent(event)) {
            // Beside the machine: no snapshot changes.
            expectSame((after ?? job).snapshot === job.snapshot, true);
          } else {
            const [slowAfter] = transition(jobMachine, slow, event);
            const isIgnored = slowAfter === slow;
            const isAftermath = event.type === 'duplicate.found' && isTerminal(job);
            if (!isAftermath)
              expectSame([event.type, phaseOf(job), after === null], [event.type, phaseOf(job), isIgnored]);
            (after === null ? refused : taken).add(event.type);
            slow = slowAfter;
          }
          job = after ?? job;
          expectSame(seen(job.snapshot), seen(slow));
          reached.add(phaseOf(job));
        }
      }),
      { numRuns: 250 },
    );
    // The law was tried everywhere, with events that are taken and with events that are not.
    expect([...reached].toSorted()).toEqual([...PHASES].toSorted());
    const machineEvents = Object.values(EVENTS).filter(isMachineEvent);
    for (const { type } of machineEvents) expect([type, taken.has(type)]).toEqual([type, true]);
    expect(refused.size).toBeGreaterThan(10);
  });

  test('INV-10 a backend that cannot be reached leaves every job exactly as it is', () => {
    const fold = createFold(jobMachine, created());
    const leaves = (job: Job): void => {
      expect(fold.next(job.snapshot, { type: 'backend.unreachable' })).toBe(job.snapshot);
      expect(transition(jobMachine, job.snapshot, { type: 'backend.unreachable' })[0]).toBe(job.snapshot);
    };
    for (const events of Object.values(SITUATIONS)) leaves(foldJob([created(), ...events]));
    fc.assert(
      fc.property(firstEvents, attempts, (first, events) => {
        live(first, events).jobs.forEach(leaves);
      }),
      { numRuns: 50 },
    );
  });
});

describe('any log', () => {
  test('INV-6 nothing leads out of the end, or changes anything about it but what is left to be done', () => {
    let ended = 0;
    fc.assert(
      fc.property(
        firstEvents,
        attempts,
        fc.array(laterEvents, { minLength: 20, maxLength: 40 }),
        (first, events, late) => {
          const end = live(first, events).jobs.at(-1);
          if (end === undefined || !isTerminal(end)) return;
          ended += 1;
          let job = end;
          for (const event of late) {
            const after = tryEvolve(job, event);
            if (isMachineEvent(event) && event.type !== 'duplicate.found')
              expectSame([event.type, after], [event.type, null]);
            job = after ?? job;
            expectSame(job.snapshot === end.snapshot, true);
          }
        },
      ),
      { numRuns: 200 },
    );
    expect(ended).toBeGreaterThan(100);
  });

  test('INV-12 a log replayed from its beginning gives the state that the incremental fold had, at every cut', () => {
    fc.assert(
      fc.property(firstEvents, attempts, (first, events) => {
        const { log, jobs } = live(first, events);
        const stored = viaJson(log);
        jobs.forEach((job, index) => {
          const replayed = foldJob(stored.slice(0, index + 1));
          expectSame(storeJob(replayed), storeJob(job));
          expectSame(replayed.version, index + 1);
        });
      }),
      { numRuns: 60 },
    );
  });

  test('INV-12 a job that was stored and restored in the middle goes on like the one that was not', () => {
    fc.assert(
      fc.property(firstEvents, attempts, fc.nat(), (first, events, place) => {
        const { log, jobs } = live(first, events);
        const cut = place % jobs.length;
        const middle = jobs[cut];
        const end = jobs.at(-1);
        if (middle === undefined || end === undefined) throw new Error('a log has its first event');
        let job = restoreJob(viaJson<StoredJob>(storeJob(middle)));
        expectSame(seen(job.snapshot), seen(middle.snapshot));
        for (const event of log.slice(cut + 1)) job = evolveJob(job, event);
        expectSame(storeJob(job), storeJob(end));
        expectSame(seen(job.snapshot), seen(end.snapshot));
      }),
      { numRuns: 200 },
    );
  });

  test('INV-12 an event that is illegal in its state throws, and leaves the job as it was', () => {
    let refused = 0;
    fc.assert(
      fc.property(firstEvents, attempts, (first, events) => {
        const job = live(first, events).jobs.at(-1) ?? createJob(first);
        const before = viaJson(storeJob(job));
        for (const event of Object.values(EVENTS)) {
          if (!isMachineEvent(event) || tryEvolve(job, event) !== null) continue;
          refused += 1;
          expect(() => evolveJob(job, event)).toThrow(new RegExp(`${event.type} is illegal in ${phaseOf(job)}`));
        }
        expect(() => evolveJob(job, first)).toThrow(IllegalEventError);
        expect(viaJson(storeJob(job))).toEqual(before);
      }),
      { numRuns: 50 },
    );
    expect(refused).toBeGreaterThan(200);
  });
});
