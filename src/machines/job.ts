import { assign, setup, type SnapshotFrom } from 'xstate';
import { CANCEL_OUTCOME, isDisproved, isLossConfirmed } from './evidence.js';
import { initialContext, type JobContext } from './job-context.js';
import type { JobCreated, MachineEvent } from './job-events.js';
import {
  noteAbandoned,
  noteAbsentLook,
  noteAccepted,
  noteAttemptEnded,
  noteCancelSent,
  noteCancelWish,
  noteCollected,
  noteCompletion,
  noteDeferred,
  noteDisproved,
  noteDuplicate,
  noteEndedByWish,
  noteFailedResult,
  noteFound,
  noteLoss,
  noteLost,
  noteLostSubmission,
  noteObservedEnd,
  noteRejected,
  noteRequeue,
  noteSeen,
  noteStarted,
  type Note,
} from './job-notes.js';

/** Runs a pure note on the event it is declared for; any other event leaves the context alone. */
const note = <E extends MachineEvent>(type: E['type'], write: Note<E>) =>
  assign<JobContext, MachineEvent, undefined, MachineEvent, never>(({ context, event }) =>
    event.type === type ? write(context, event as E) : {},
  );

const wishEndsAs = (context: JobContext, phase: 'Cancelled' | 'Failed'): boolean =>
  context.cancel !== null && CANCEL_OUTCOME[context.cancel.reason] === phase;

const machineSetup = setup({
  types: {
    context: {} as JobContext,
    events: {} as MachineEvent,
    input: {} as JobCreated,
    tags: {} as 'submit' | 'lookup' | 'observe' | 'settle',
  },
  guards: {
    noAttemptOpen: ({ context }) => context.attempt?.open !== true,
    attemptOpen: ({ context }) => context.attempt?.open === true,
    attemptOpenAndWishIsCancelled: ({ context }) => context.attempt?.open === true && wishEndsAs(context, 'Cancelled'),
    attemptOpenAndWishIsFailed: ({ context }) => context.attempt?.open === true && wishEndsAs(context, 'Failed'),
    disproved: ({ context }) => isDisproved(context),
    disprovedAndWishIsCancelled: ({ context }) => isDisproved(context) && wishEndsAs(context, 'Cancelled'),
    disprovedAndWishIsFailed: ({ context }) => isDisproved(context) && wishEndsAs(context, 'Failed'),
    unsentAndWishIsCancelled: ({ context, event }) =>
      event.type === 'cancel.requested' &&
      context.attempt?.open !== true &&
      CANCEL_OUTCOME[event.reason] === 'Cancelled',
    unsentAndWishIsFailed: ({ context, event }) =>
      event.type === 'cancel.requested' && context.attempt?.open !== true && CANCEL_OUTCOME[event.reason] === 'Failed',
    noWishYet: ({ context }) => context.cancel === null,
    wished: ({ context }) => context.cancel !== null,
    seenPending: ({ event }) => event.type === 'job.observed' && event.phase === 'Pending',
    seenRunning: ({ event }) => event.type === 'job.observed' && event.phase === 'Running',
    seenFailed: ({ event }) => event.type === 'job.observed' && event.phase === 'Failed',
    seenCancelled: ({ event }) => event.type === 'job.observed' && event.phase === 'Cancelled',
    seenCancelledAndWishIsFailed: ({ context, event }) =>
      event.type === 'job.observed' && event.phase === 'Cancelled' && wishEndsAs(context, 'Failed'),
    completionReported: ({ context }) => context.completion !== null,
    completionUnreported: ({ context }) => context.completion === null,
    lossConfirmed: ({ context }) => isLossConfirmed(context),
  },
  actions: {
    noteStarted: note('submission.started', noteStarted),
    noteAccepted: note('submission.accepted', noteAccepted),
    noteRejected: note('submission.rejected', noteRejected),
    noteDeferred: note('submission.deferred', noteDeferred),
    noteLostSubmission: note('submission.lost', noteLostSubmission),
    noteAttemptEnded: note('attempt.ended', noteAttemptEnded),
    noteAbsentLook: note('lookup.absent', noteAbsentLook),
    noteFound: note('submission.found', noteFound),
    noteDisproved: note('submission.disproved', noteDisproved),
    noteSeen: note('job.observed', noteSeen),
    noteRequeue: note('job.observed', noteRequeue),
    noteObservedEnd: note('job.observed', noteObservedEnd),
    noteCompletion: note('completion.reported', noteCompletion),
    noteCollected: note('result.collected', noteCollected),
    noteFailedResult: note('result.unusable', noteFailedResult),
    noteLoss: note('loss.noted', noteLoss),
    noteLost: note('loss.confirmed', noteLost),
    noteCancelWish: note('cancel.requested', noteCancelWish),
    noteCancelSent: note('cancel.sent', noteCancelSent),
    noteAbandoned: note('job.abandoned', noteAbandoned),
    noteDuplicate: note('duplicate.found', noteDuplicate),
    noteEndedByWish: assign(({ context, event }) => noteEndedByWish(context, event)),
  },
});

const observedWhileLive = [
  { guard: 'seenFailed', target: 'Failed', actions: 'noteObservedEnd' },
  { guard: 'seenCancelledAndWishIsFailed', target: 'Failed', actions: ['noteObservedEnd', 'noteEndedByWish'] },
  { guard: 'seenCancelled', target: 'Cancelled', actions: 'noteObservedEnd' },
] as const;

/**
 * One attempt at a task on a backend. Pure: time comes in on events, deadlines are data; there is no `invoke` and no
 * `after`, so replaying an old stream starts nothing. Guards and actions are named, so `machine.config` is plain JSON
 * that pastes into the XState visualizer. The tag of a state is what it asks the worker's loop for.
 */
export const jobMachine = machineSetup.createMachine({
  id: 'job',
  context: ({ input }) => initialContext(input),
  initial: 'Submitting',
  on: {
    // An outage changes nothing (INV-10): a transition without target and action returns the very same snapshot.
    'backend.unreachable': {},
  },
  states: {
    Submitting: {
      tags: 'submit',
      on: {
        'submission.started': { guard: 'noAttemptOpen', actions: 'noteStarted' },
        'submission.accepted': { guard: 'attemptOpen', target: 'Pending', actions: 'noteAccepted' },
        'submission.rejected': { target: 'Failed', actions: 'noteRejected' },
        'submission.deferred': [
          // Nothing landed, and nobody wants it any more.
          { guard: 'attemptOpenAndWishIsCancelled', target: 'Cancelled', actions: 'noteEndedByWish' },
          { guard: 'attemptOpenAndWishIsFailed', target: 'Failed', actions: 'noteEndedByWish' },
          { guard: 'attemptOpen', actions: 'noteDeferred' },
        ],
        'submission.lost': { guard: 'attemptOpen', target: 'Unknown', actions: 'noteLostSubmission' },
        'cancel.requested': [
          { guard: 'unsentAndWishIsCancelled', target: 'Cancelled', actions: ['noteCancelWish', 'noteEndedByWish'] },
          { guard: 'unsentAndWishIsFailed', target: 'Failed', actions: ['noteCancelWish', 'noteEndedByWish'] },
          { guard: 'noWishYet', actions: 'noteCancelWish' },
        ],
        'job.abandoned': { target: 'Lost', actions: 'noteAbandoned' },
      },
    },
    Unknown: {
      tags: 'lookup',
      on: {
        'attempt.ended': { actions: 'noteAttemptEnded' },
        'lookup.absent': { actions: 'noteAbsentLook' },
        'submission.found': { target: 'Pending', actions: 'noteFound' },
        'submission.disproved': [
          { guard: 'disprovedAndWishIsCancelled', target: 'Cancelled', actions: 'noteEndedByWish' },
          { guard: 'disprovedAndWishIsFailed', target: 'Failed', actions: 'noteEndedByWish' },
          { guard: 'disproved', target: 'Submitting', actions: 'noteDisproved' },
        ],
        'duplicate.found': { target: 'Pending', actions: 'noteDuplicate' },
        'cancel.requested': { guard: 'noWishYet', actions: 'noteCancelWish' },
        'job.abandoned': { target: 'Lost', actions: 'noteAbandoned' },
      },
    },
    Pending: {
      tags: 'observe',
      on: {
        'job.observed': [
          { guard: 'seenPending', actions: 'noteSeen' },
          { guard: 'seenRunning', target: 'Running', actions: 'noteSeen' },
          ...observedWhileLive,
        ],
        'completion.reported': { guard: 'completionUnreported', target: 'Running', actions: 'noteCompletion' },
        'loss.noted': { actions: 'noteLoss' },
        'loss.confirmed': { guard: 'lossConfirmed', target: 'Lost', actions: 'noteLost' },
        'duplicate.found': { actions: 'noteDuplicate' },
        'cancel.requested': { guard: 'noWishYet', actions: 'noteCancelWish' },
        'cancel.sent': { guard: 'wished', actions: 'noteCancelSent' },
        'job.abandoned': { target: 'Lost', actions: 'noteAbandoned' },
      },
    },
    Running: {
      tags: 'observe',
      on: {
        'job.observed': [
          { guard: 'seenRunning', actions: 'noteSeen' },
          { guard: 'seenPending', target: 'Pending', actions: ['noteSeen', 'noteRequeue'] },
          ...observedWhileLive,
        ],
        'completion.reported': { guard: 'completionUnreported', actions: 'noteCompletion' },
        'result.collected': { guard: 'completionReported', target: 'Completed', actions: 'noteCollected' },
        'result.unusable': { guard: 'completionReported', target: 'Failed', actions: 'noteFailedResult' },
        'loss.noted': { actions: 'noteLoss' },
        'loss.confirmed': { guard: 'lossConfirmed', target: 'Lost', actions: 'noteLost' },
        'duplicate.found': { actions: 'noteDuplicate' },
        'cancel.requested': { guard: 'noWishYet', actions: 'noteCancelWish' },
        'cancel.sent': { guard: 'wished', actions: 'noteCancelSent' },
        'job.abandoned': { target: 'Lost', actions: 'noteAbandoned' },
      },
    },
    Completed: { type: 'final', tags: 'settle' },
    Failed: { type: 'final', tags: 'settle' },
    Cancelled: { type: 'final', tags: 'settle' },
    Lost: { type: 'final', tags: 'settle' },
  },
});

export type JobSnapshot = SnapshotFrom<typeof jobMachine>;
