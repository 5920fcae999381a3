import fc from 'fast-check';
import type { JobCreated, JobEvent } from '../../src/machines/job-events.js';
import { CANCEL_REASONS, SOURCES } from '../../src/machines/vocabulary.js';
import { handle } from './ids.js';
import { at, created } from './job-events.js';

const handles = fc.constantFrom(handle('41', 5), handle('42', 10), handle('43', 15));
const sources = fc.constantFrom(...SOURCES);
const lossReasons = fc.constantFrom('NOT_FOUND', 'NODE_FAILED', 'PREEMPTED');
const early = fc.nat(50);

type Head = ReturnType<typeof at>;

/** Every event that may follow the first one, with small values that meet each other. */
export const laterEvents: fc.Arbitrary<JobEvent> = fc
  .tuple(
    fc.nat(2000),
    fc.oneof(
      fc.integer({ min: 1, max: 3 }).map((attempt) => (head: Head) => head.started(attempt)),
      handles.map((to) => (head: Head) => head.accepted(to)),
      fc.constantFrom('BACKEND_REJECTED', 'INVALID_SPEC').map((reason) => (head: Head) => head.rejected(reason)),
      fc.nat(3000).map((notBeforeMs) => (head: Head) => head.deferred(notBeforeMs)),
      fc
        .constantFrom('timedOut', 'unreachable', 'unreadable', 'interrupted', 'inherited')
        .map((cause) => (head: Head) => head.lost(cause)),
      fc.constant((head: Head) => head.attemptEnded()),
      fc.tuple(sources, early, fc.nat(2000)).map(
        ([source, since, asked]) =>
          (head: Head) =>
            head.absent(source, since, asked),
      ),
      fc.tuple(handles, sources).map(
        ([to, source]) =>
          (head: Head) =>
            head.found(to, source),
      ),
      fc.constant((head: Head) => head.disproved()),
      fc.constantFrom('queued', 'held', 'never').map((waiting) => (head: Head) => head.pending(waiting)),
      fc.constant((head: Head) => head.running()),
      fc.constant((head: Head) => head.failed()),
      fc.constant((head: Head) => head.cancelled()),
      fc.constant((head: Head) => head.completion()),
      fc.constant((head: Head) => head.collected()),
      fc.constantFrom('RESULT_MISSING', 'RESULT_INVALID').map((reason) => (head: Head) => head.unusable(reason)),
      fc.tuple(early, lossReasons).map(
        ([since, reason]) =>
          (head: Head) =>
            head.lossNoted(since, reason),
      ),
      lossReasons.map((reason) => (head: Head) => head.lossConfirmed(reason)),
      fc.constantFrom(...CANCEL_REASONS).map((reason) => (head: Head) => head.cancelRequested(reason)),
      fc.integer({ min: 1, max: 3 }).map((attempt) => (head: Head) => head.cancelSent(attempt)),
      fc.constant((head: Head) => head.abandoned()),
      fc.tuple(handles, fc.uniqueArray(handles)).map(
        ([keep, cancel]) =>
          (head: Head) =>
            head.duplicateFound(keep, cancel),
      ),
      handles.map((gone) => (head: Head) => head.duplicateEnded(gone)),
      fc.constant((head: Head) => head.delivered()),
      fc.constant((head: Head) => head.directoryRemoved()),
      fc.constant((head: Head) => head.lateObserved()),
    ),
  )
  .map(([atMs, make]) => make(at(atMs)));

/** A first event whose policy is soon met. */
export const firstEvents: fc.Arbitrary<JobCreated> = fc
  .record({
    settleMs: fc.constantFrom(0, 500),
    looks: fc.constantFrom(1, 2),
    sources: fc.constantFrom([...SOURCES], ['queue'] as const),
    lossGraceMs: fc.constantFrom(0, 500),
    lossLooks: fc.constantFrom(1, 2),
    heldFailsAfterMs: fc.constantFrom(null, 100),
  })
  .map((policy) => created({ policy: { ...policy } }));
