import { assign, setup, type SnapshotFrom } from 'xstate';
import { initialSessionContext, type SessionContext } from './session-context.js';
import type { SessionMachineEvent, SessionRequested } from './session-events.js';
import {
  noteActivity,
  noteAnswered,
  noteAssigned,
  noteEnd,
  noteEnding,
  noteGranted,
  noteInterrupted,
  noteLeft,
  noteRegistered,
  noteStep,
  noteStepCancel,
  noteStepEnd,
  noteWithdrawn,
  noteWorkspace,
  type Of,
  type SessionNote,
} from './session-notes.js';
import { isReady } from './session-rules.js';

/** Runs a pure note on the event it is declared for; any other event leaves the context alone. */
const note = <T extends SessionMachineEvent['type']>(type: T, write: SessionNote<Of<T>>) =>
  assign<SessionContext, SessionMachineEvent, undefined, SessionMachineEvent, never>(({ context, event }) =>
    isOf(event, type) ? write(context, event) : {},
  );

const isOf = <T extends SessionMachineEvent['type']>(event: SessionMachineEvent, type: T): event is Of<T> =>
  event.type === type;

interface Args {
  readonly context: SessionContext;
  readonly event: SessionMachineEvent;
}

/** The event comes from an agent of the job that the session has now (INV-7), and names one of its ranks. */
const isOwnRank = ({ context, event }: Args): boolean =>
  'rank' in event && 'epoch' in event && event.epoch === context.epoch && event.rank < context.ranks;

const isKnownRank = (args: Args): boolean =>
  isOwnRank(args) && args.context.ranksIn.some(({ rank }) => 'rank' in args.event && rank === args.event.rank);

/** What the context will be after the event, for the question whether it makes the session ready. */
const readyWith = (context: SessionContext, change: Partial<SessionContext>): boolean =>
  isReady({ ...context, ...change });

const isOpenStep = ({ context, event }: Args): boolean =>
  'stepId' in event && context.openSteps.some(({ stepId }) => stepId === event.stepId);

const machineSetup = setup({
  types: {
    context: {} as SessionContext,
    events: {} as SessionMachineEvent,
    input: {} as SessionRequested,
    tags: {} as 'start' | 'serve' | 'end' | 'over',
  },
  guards: {
    isNewerJob: ({ context, event }) =>
      event.type === 'session.jobAssigned' && event.epoch > (context.epoch ?? 0) && event.jobId !== context.jobId,
    hasJob: ({ context }) => context.jobId !== null,
    grantCompletes: ({ context, event }) =>
      event.type === 'allocation.granted' && context.jobId !== null && readyWith(context, noteGranted(context, event)),
    workspaceCompletes: ({ context, event }) =>
      event.type === 'workspace.prepared' && readyWith(context, noteWorkspace(context, event)),
    isOwnRank,
    isKnownRank,
    answerCompletes: (args) =>
      isKnownRank(args) &&
      args.event.type === 'rank.answered' &&
      readyWith(args.context, noteAnswered(args.context, args.event)),
    isNewStep: ({ context, event }) =>
      event.type === 'step.requested' &&
      [...context.openSteps, ...context.pastSteps].every(({ stepId }) => stepId !== event.stepId),
    isOpenStep,
    isOwnJob: ({ context, event }) => event.type === 'session.interrupted' && event.jobId === context.jobId,
  },
  actions: {
    noteAssigned: note('session.jobAssigned', noteAssigned),
    noteGranted: note('allocation.granted', noteGranted),
    noteWithdrawn: note('allocation.withdrawn', noteWithdrawn),
    noteWorkspace: note('workspace.prepared', noteWorkspace),
    noteRegistered: note('rank.registered', noteRegistered),
    noteAnswered: note('rank.answered', noteAnswered),
    noteLeft: note('rank.left', noteLeft),
    noteStep: note('step.requested', noteStep),
    noteStepCancel: note('step.cancelRequested', noteStepCancel),
    noteStepEnd: note('step.ended', noteStepEnd),
    noteActivity: note('activity.seen', noteActivity),
    noteEnding: note('session.ending', noteEnding),
    noteInterrupted: note('session.interrupted', noteInterrupted),
    noteEnd: note('session.ended', noteEnd),
  },
});

/** Steps that are under way end in every state but the last. */
const ofSteps = {
  'step.cancelRequested': { guard: 'isOpenStep', actions: 'noteStepCancel' },
  'step.ended': { guard: 'isOpenStep', actions: 'noteStepEnd' },
} as const;

const ends = {
  'session.ending': { target: 'Ending', actions: 'noteEnding' },
  'session.interrupted': { guard: 'isOwnJob', target: 'Interrupted', actions: 'noteInterrupted' },
  'session.ended': { target: 'Ended', actions: 'noteEnd' },
} as const;

/**
 * An interactive job that waits for steps, over all jobs that it had. Pure, like the job machine: time comes in on
 * events, the two clocks are data. Ranks that arrived are kept while others are awaited; a new registration of a rank
 * has to be answered anew, and until then the session is not ready (INV-5).
 */
export const sessionMachine = machineSetup.createMachine({
  id: 'session',
  context: ({ input }) => initialSessionContext(input),
  initial: 'Waiting',
  states: {
    Waiting: {
      tags: 'start',
      on: {
        'session.jobAssigned': { guard: 'isNewerJob', actions: 'noteAssigned' },
        'allocation.granted': [
          { guard: 'grantCompletes', target: 'Ready', actions: 'noteGranted' },
          { guard: 'hasJob', target: 'Starting', actions: 'noteGranted' },
        ],
        'workspace.prepared': { guard: 'hasJob', actions: 'noteWorkspace' },
        // An agent dials in before the backend has been asked whether the job runs.
        'rank.registered': { guard: 'isOwnRank', actions: 'noteRegistered' },
        'rank.answered': { guard: 'isKnownRank', actions: 'noteAnswered' },
        'rank.left': { guard: 'isKnownRank', actions: 'noteLeft' },
        ...ofSteps,
        ...ends,
      },
    },
    Starting: {
      tags: 'start',
      on: {
        'allocation.withdrawn': { target: 'Waiting', actions: 'noteWithdrawn' },
        'workspace.prepared': [
          { guard: 'workspaceCompletes', target: 'Ready', actions: 'noteWorkspace' },
          { actions: 'noteWorkspace' },
        ],
        'rank.registered': { guard: 'isOwnRank', actions: 'noteRegistered' },
        'rank.answered': [
          { guard: 'answerCompletes', target: 'Ready', actions: 'noteAnswered' },
          { guard: 'isKnownRank', actions: 'noteAnswered' },
        ],
        'rank.left': { guard: 'isKnownRank', actions: 'noteLeft' },
        'activity.seen': { actions: 'noteActivity' },
        ...ofSteps,
        ...ends,
      },
    },
    Ready: {
      tags: 'serve',
      on: {
        'allocation.withdrawn': { target: 'Waiting', actions: 'noteWithdrawn' },
        'rank.registered': { guard: 'isOwnRank', target: 'Starting', actions: 'noteRegistered' },
        'rank.left': { guard: 'isKnownRank', target: 'Starting', actions: 'noteLeft' },
        'step.requested': { guard: 'isNewStep', actions: 'noteStep' },
        'activity.seen': { actions: 'noteActivity' },
        ...ofSteps,
        ...ends,
      },
    },
    Ending: {
      tags: 'end',
      on: {
        // The gang falls apart; nobody is let in any more.
        'rank.left': { guard: 'isKnownRank', actions: 'noteLeft' },
        'allocation.withdrawn': { actions: 'noteWithdrawn' },
        ...ofSteps,
        'session.interrupted': { guard: 'isOwnJob', target: 'Interrupted', actions: 'noteInterrupted' },
        'session.ended': { target: 'Ended', actions: 'noteEnd' },
      },
    },
    Interrupted: {
      tags: 'end',
      on: {
        'session.jobAssigned': { guard: 'isNewerJob', target: 'Waiting', actions: 'noteAssigned' },
        ...ofSteps,
        'session.ended': { target: 'Ended', actions: 'noteEnd' },
      },
    },
    Ended: { type: 'final', tags: 'over' },
  },
});

export type SessionSnapshot = SnapshotFrom<typeof sessionMachine>;
