import type { JobContext, LookupEvidence } from './job-context.js';
import type { DuplicateEvent, MachineEvent, ObservationEvent, SubmissionEvent, WishEvent } from './job-events.js';
import { CANCEL_OUTCOME } from './evidence.js';

/**
 * What each event leaves in the context. Pure functions from (context, event) to the changed fields; the machine says
 * when they apply.
 */
export type Note<E> = (context: JobContext, event: E) => Partial<JobContext>;

type Of<U, T> = Extract<U, { type: T }>;

export const noteStarted: Note<Of<SubmissionEvent, 'submission.started'>> = (_context, event) => ({
  attempt: { number: event.attempt, startedAtMs: event.atMs, open: true },
  deferral: null,
});

const closed = ({ attempt }: JobContext): Pick<JobContext, 'attempt'> => ({
  attempt: attempt === null ? null : { ...attempt, open: false },
});

export const noteAccepted: Note<Of<SubmissionEvent, 'submission.accepted'>> = (context, event) => ({
  ...closed(context),
  handle: event.handle,
});

export const noteRejected: Note<Of<SubmissionEvent, 'submission.rejected'>> = (context, event) => ({
  ...closed(context),
  reason: event.reason,
  detail: event.detail,
  endedAtMs: event.atMs,
});

/** A submit limit burns no attempt: the same number is used again. */
export const noteDeferred: Note<Of<SubmissionEvent, 'submission.deferred'>> = ({ attempt }, event) => ({
  attempt: attempt === null ? null : { ...attempt, number: attempt.number - 1, open: false },
  notBeforeMs: event.notBeforeMs,
  deferral: event.limit,
});

/** A question asked before this long ago was asked by another clock: no poll takes so long, ms. */
const POLL_MAX_MS = 600_000;

const NO_LOOKS = {
  queueLooks: 0,
  accountingLooks: 0,
  firstLookAtMs: null,
  lastLookAtMs: null,
} as const satisfies Partial<LookupEvidence>;

export const noteLostSubmission: Note<Of<SubmissionEvent, 'submission.lost'>> = (_context, event) => ({
  lookup: { cause: event.cause, lostAtMs: event.atMs, hint: event.hint, endedAtMs: null, ...NO_LOOKS },
});

export const noteAttemptEnded: Note<Of<SubmissionEvent, 'attempt.ended'>> = ({ lookup }, event) => ({
  lookup: lookup === null ? null : { ...lookup, endedAtMs: lookup.endedAtMs ?? event.atMs },
});

/**
 * An outage between two looks makes the earlier ones worth nothing, and so does a clock that went back: counting starts
 * again at this one.
 */
export const noteAbsentLook: Note<Of<SubmissionEvent, 'lookup.absent'>> = ({ lookup }, event) => {
  if (lookup === null) return {};
  const { firstLookAtMs, lastLookAtMs, endedAtMs } = lookup;
  const clockWentBack =
    (lastLookAtMs !== null && event.askedAtMs < lastLookAtMs) ||
    (endedAtMs !== null && event.askedAtMs < endedAtMs - POLL_MAX_MS);
  const stale = clockWentBack || (firstLookAtMs !== null && event.healthySinceMs > firstLookAtMs);
  const base = stale ? { ...lookup, ...NO_LOOKS } : lookup;
  return {
    lookup: {
      ...base,
      // The end came before this question, whatever the clock said then: the settling time starts here.
      endedAtMs: clockWentBack && endedAtMs !== null ? Math.min(endedAtMs, event.askedAtMs) : endedAtMs,
      queueLooks: base.queueLooks + (event.source === 'queue' ? 1 : 0),
      accountingLooks: base.accountingLooks + (event.source === 'accounting' ? 1 : 0),
      firstLookAtMs: base.firstLookAtMs ?? event.askedAtMs,
      lastLookAtMs: event.askedAtMs,
    },
  };
};

export const noteFound: Note<Of<SubmissionEvent, 'submission.found'>> = (context, event) => ({
  ...closed(context),
  handle: event.handle,
  lookup: null,
});

export const noteDisproved: Note<Of<SubmissionEvent, 'submission.disproved'>> = (context) => ({
  ...closed(context),
  lookup: null,
});

export const noteSeen: Note<Of<ObservationEvent, 'job.observed'>> = ({ seen }, event) => ({
  handle: event.handle,
  loss: null,
  seen: {
    phase: event.phase,
    waiting: event.waiting,
    why: event.why,
    source: event.source,
    atMs: event.atMs,
    waitingSinceMs: seen !== null && seen.waiting === event.waiting ? seen.waitingSinceMs : event.atMs,
  },
});

export const noteRequeue: Note<Of<ObservationEvent, 'job.observed'>> = ({ requeues }) => ({
  requeues: requeues + 1,
  completion: null,
});

/** A cancelled job's reason is the wish, if there was one; else somebody outside cancelled it. */
export const noteObservedEnd: Note<Of<ObservationEvent, 'job.observed'>> = ({ cancel }, event) => ({
  handle: event.handle,
  loss: null,
  reason: event.phase === 'Cancelled' && cancel !== null ? cancel.reason : event.reason,
  detail: event.why,
  endedAtMs: event.atMs,
});

export const noteCompletion: Note<Of<ObservationEvent, 'completion.reported'>> = (_context, event) => ({
  handle: event.handle,
  loss: null,
  completion: { atMs: event.atMs, warnings: event.warnings },
});

export const noteCollected: Note<Of<ObservationEvent, 'result.collected'>> = (_context, event) => ({
  result: { bytes: event.bytes, sha256: event.sha256 },
  endedAtMs: event.atMs,
});

export const noteFailedResult: Note<Of<ObservationEvent, 'result.unusable'>> = (_context, event) => ({
  reason: event.reason,
  detail: event.detail,
  endedAtMs: event.atMs,
});

/** Like a look-up's, an earlier piece of evidence counts only if the backend answered without a break since. */
export const noteLoss: Note<Of<ObservationEvent, 'loss.noted'>> = ({ loss }, event) => {
  const goesOn =
    loss !== null &&
    loss.reason === event.reason &&
    event.healthySinceMs <= loss.firstAtMs &&
    event.atMs >= loss.lastAtMs;
  return {
    loss: {
      reason: event.reason,
      looks: goesOn ? loss.looks + 1 : 1,
      firstAtMs: goesOn ? loss.firstAtMs : event.atMs,
      lastAtMs: event.atMs,
    },
  };
};

export const noteLost: Note<Of<ObservationEvent, 'loss.confirmed'>> = (_context, event) => ({
  reason: event.reason,
  endedAtMs: event.atMs,
});

export const noteCancelWish: Note<Of<WishEvent, 'cancel.requested'>> = (_context, event) => ({
  cancel: { reason: event.reason, by: event.by, atMs: event.atMs, sent: 0, nextAtMs: event.atMs },
});

export const noteCancelSent: Note<Of<WishEvent, 'cancel.sent'>> = ({ cancel }, event) => ({
  cancel: cancel === null ? null : { ...cancel, sent: event.attempt, nextAtMs: event.nextAtMs },
});

export const noteAbandoned: Note<Of<WishEvent, 'job.abandoned'>> = (_context, event) => ({
  reason: 'ABANDONED',
  detail: `abandoned by ${event.by}: the backend's job may live on`,
  endedAtMs: event.atMs,
});

export const noteDuplicate: Note<Of<DuplicateEvent, 'duplicate.found'>> = (context, event) => ({
  ...closed(context),
  lookup: null,
  handle: event.keep,
});

/** The end of a job that a wish decides: nothing ran, or the backend confirmed the cancel. */
export const noteEndedByWish: Note<MachineEvent> = (context, event) => {
  const { cancel } = context;
  if (cancel === null || event.type === 'backend.unreachable') return {};
  return {
    ...closed(context),
    lookup: null,
    reason: cancel.reason,
    detail: `${CANCEL_OUTCOME[cancel.reason] === 'Failed' ? 'ended' : 'cancelled'} by ${cancel.by}`,
    endedAtMs: event.atMs,
  };
};
