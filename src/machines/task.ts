import { assign, setup, type SnapshotFrom } from 'xstate';
import { initialTaskContext, type TaskContext } from './task-context.js';
import type { TaskMachineEvent, TaskSubmitted } from './task-events.js';
import {
  noteAbandoned,
  noteAbandonWish,
  noteCancelled,
  noteCancelWish,
  noteDeadLetter,
  noteJobClosed,
  noteJobOpened,
  noteLeased,
  noteLeaseGone,
  noteLoss,
  noteOutcome,
  noteProgress,
  noteTriedAgain,
  type TaskNote,
} from './task-notes.js';

/** Runs a pure note on the events it is declared for; any other event leaves the context alone. */
const note = <T extends TaskMachineEvent['type']>(
  types: readonly T[],
  write: TaskNote<Extract<TaskMachineEvent, { type: T }>>,
) => {
  const isMine = (event: TaskMachineEvent): event is Extract<TaskMachineEvent, { type: T }> =>
    types.some((type) => type === event.type);
  return assign<TaskContext, TaskMachineEvent, undefined, TaskMachineEvent, never>(({ context, event }) =>
    isMine(event) ? write(context, event) : {},
  );
};

const always = (write: TaskNote<TaskMachineEvent>) =>
  assign<TaskContext, TaskMachineEvent, undefined, TaskMachineEvent, never>(({ context, event }) =>
    write(context, event),
  );

interface Args {
  readonly context: TaskContext;
  readonly event: TaskMachineEvent;
}

/** The event comes from the incarnation that holds the lease now (INV-7). */
const isCurrent = ({ context, event }: Args): boolean => 'epoch' in event && event.epoch === context.lease?.epoch;

/** The outcome's own job, or none, is all that is still open: nothing lives on behind an announced end (INV-3). */
const settles = ({ context, event }: Args): boolean =>
  isCurrent({ context, event }) && 'jobId' in event && context.openJobs.every((job) => job.jobId === event.jobId);

const closes = ({ context, event }: Args): boolean =>
  event.type === 'task.jobClosed' && context.openJobs.some((job) => job.jobId === event.jobId);

const machineSetup = setup({
  types: {
    context: {} as TaskContext,
    events: {} as TaskMachineEvent,
    input: {} as TaskSubmitted,
    tags: {} as 'dispatch' | 'run' | 'over',
  },
  guards: {
    // While a job is open, only a worker that can see it may take over (INV-3); the epoch only grows (INV-7).
    mayLease: ({ context, event }) =>
      event.type === 'task.leased' &&
      event.epoch > context.epoch &&
      context.openJobs.every((job) => job.site === event.site),
    // One job per lease, where the lease was given; older ones that are open still are its holder's to end before this
    // one is sent (INV-3).
    mayOpenJob: ({ context, event }) =>
      event.type === 'task.jobOpened' &&
      event.job.epoch === context.lease?.epoch &&
      event.job.site === context.lease.site &&
      context.openJobs.every((job) => job.epoch < event.job.epoch) &&
      context.jobs.every((job) => job.jobId !== event.job.jobId),
    isCurrent,
    isCurrentAndAbandonWished: (args) => isCurrent(args) && args.context.abandon !== null,
    isCurrentAndCancelWishedAndNothingOpen: (args) =>
      isCurrent(args) && args.context.cancel !== null && args.context.openJobs.length === 0,
    closesJob: closes,
    closesLastJobAndCancelWished: (args) =>
      closes(args) && args.context.openJobs.length === 1 && args.context.cancel !== null,
    nothingOpen: ({ context }) => context.openJobs.length === 0,
    noCancelWishYet: ({ context }) => context.cancel === null,
    noAbandonWishYet: ({ context }) => context.abandon === null,
    settles,
    lostAndAbandoned: (args) =>
      settles(args) &&
      args.event.type === 'task.lost' &&
      (args.context.abandon !== null || args.event.reason === 'ABANDONED'),
    lostAndCancelWished: (args) => settles(args) && args.context.cancel !== null,
    lostTooOften: (args) => settles(args) && args.context.losses + 1 >= args.context.lossesMax,
  },
  actions: {
    noteLeased: note(['task.leased'], noteLeased),
    noteJobOpened: note(['task.jobOpened'], noteJobOpened),
    noteProgress: note(['task.progressed'], noteProgress),
    noteJobClosed: note(['task.jobClosed'], noteJobClosed),
    noteLeaseGone: always(noteLeaseGone),
    noteCancelWish: note(['task.cancelRequested'], noteCancelWish),
    noteAbandonWish: note(['task.abandonRequested'], noteAbandonWish),
    noteCancelled: always(noteCancelled),
    noteAbandoned: always(noteAbandoned),
    noteOutcome: note(['task.completed', 'task.failed', 'task.cancelled', 'task.lost'], noteOutcome),
    noteLoss: note(['task.lost'], noteLoss),
    noteTriedAgain: note(['task.lost'], noteTriedAgain),
    noteDeadLetter: note(['task.lost'], noteDeadLetter),
  },
});

const leaseGone = [
  { guard: 'isCurrentAndAbandonWished', target: 'Failed', actions: 'noteAbandoned' },
  { guard: 'isCurrentAndCancelWishedAndNothingOpen', target: 'Cancelled', actions: 'noteCancelled' },
  { guard: 'isCurrent', target: 'Queued', actions: 'noteLeaseGone' },
] as const;

/**
 * What a client asked for, over all attempts at it. Pure, like the job machine: time comes in on events, leases expire
 * by an event, and `machine.config` is plain JSON.
 */
export const taskMachine = machineSetup.createMachine({
  id: 'task',
  context: ({ input }) => initialTaskContext(input),
  initial: 'Queued',
  states: {
    Queued: {
      tags: 'dispatch',
      on: {
        'task.leased': { guard: 'mayLease', target: 'Leased', actions: 'noteLeased' },
        'task.jobClosed': [
          { guard: 'closesLastJobAndCancelWished', target: 'Cancelled', actions: ['noteJobClosed', 'noteCancelled'] },
          { guard: 'closesJob', actions: 'noteJobClosed' },
        ],
        'task.cancelRequested': [
          { guard: 'nothingOpen', target: 'Cancelled', actions: ['noteCancelWish', 'noteCancelled'] },
          { guard: 'noCancelWishYet', actions: 'noteCancelWish' },
        ],
        'task.abandonRequested': { target: 'Failed', actions: ['noteAbandonWish', 'noteAbandoned'] },
      },
    },
    Leased: {
      tags: 'run',
      on: {
        'task.jobOpened': { guard: 'mayOpenJob', actions: 'noteJobOpened' },
        'task.progressed': { guard: 'isCurrent', actions: 'noteProgress' },
        'task.jobClosed': { guard: 'closesJob', actions: 'noteJobClosed' },
        'task.leaseExpired': leaseGone,
        'task.released': leaseGone,
        'task.cancelRequested': { guard: 'noCancelWishYet', actions: 'noteCancelWish' },
        'task.abandonRequested': { guard: 'noAbandonWishYet', actions: 'noteAbandonWish' },
        'task.completed': { guard: 'settles', target: 'Completed', actions: 'noteOutcome' },
        'task.failed': { guard: 'settles', target: 'Failed', actions: 'noteOutcome' },
        'task.cancelled': { guard: 'settles', target: 'Cancelled', actions: 'noteOutcome' },
        'task.lost': [
          { guard: 'lostAndAbandoned', target: 'Failed', actions: ['noteOutcome', 'noteLoss', 'noteAbandoned'] },
          { guard: 'lostAndCancelWished', target: 'Cancelled', actions: ['noteOutcome', 'noteLoss', 'noteCancelled'] },
          { guard: 'lostTooOften', target: 'DeadLetter', actions: ['noteOutcome', 'noteLoss', 'noteDeadLetter'] },
          { guard: 'settles', target: 'Queued', actions: ['noteOutcome', 'noteLoss', 'noteTriedAgain'] },
        ],
      },
    },
    Completed: { type: 'final', tags: 'over' },
    Failed: { type: 'final', tags: 'over' },
    Cancelled: { type: 'final', tags: 'over' },
    DeadLetter: { type: 'final', tags: 'over' },
  },
});

export type TaskSnapshot = SnapshotFrom<typeof taskMachine>;
