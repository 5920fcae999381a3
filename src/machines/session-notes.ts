import { STEPS_KEPT, type RankIn, type SessionContext, type Step } from './session-context.js';
import type { SessionMachineEvent } from './session-events.js';

/**
 * What each event leaves in a session's context. Pure functions from (context, event) to the changed fields; the machine
 * says when they apply.
 */
export type SessionNote<E> = (context: SessionContext, event: E) => Partial<SessionContext>;

export type Of<T extends SessionMachineEvent['type']> = Extract<SessionMachineEvent, { type: T }>;

/** Of what a job held, nothing is left when it is gone. */
const NOTHING_HELD = { grantedAtMs: null, workspace: false, ranksIn: [] } as const;

/** The first job of this stream, but not of the session: its log up to now is another worker's. */
const atAnotherWorker = (epoch: number): Partial<SessionContext> =>
  epoch > 1 ? { noticeDue: true, lastLoss: 'another worker had it before' } : {};

export const noteAssigned: SessionNote<Of<'session.jobAssigned'>> = (context, { jobId, epoch }) => ({
  ...NOTHING_HELD,
  jobId,
  epoch,
  ending: null,
  ...(context.jobId === null ? atAnotherWorker(epoch) : { recoveries: context.recoveries + 1, noticeDue: true }),
});

export const noteGranted: SessionNote<Of<'allocation.granted'>> = ({ firstGrantedAtMs }, { atMs }) => ({
  grantedAtMs: atMs,
  firstGrantedAtMs: firstGrantedAtMs ?? atMs,
});

/** The job's directory stays; whoever was in is not any more. What processes had in memory is gone. */
export const noteWithdrawn: SessionNote<Of<'allocation.withdrawn'>> = ({ recoveries }, { detail }) => ({
  grantedAtMs: null,
  ranksIn: [],
  recoveries: recoveries + 1,
  lastLoss: detail,
  noticeDue: true,
});

export const noteWorkspace: SessionNote<Of<'workspace.prepared'>> = () => ({ workspace: true });

const withRank = (ranks: readonly RankIn[], rank: RankIn): readonly RankIn[] =>
  [...ranks.filter((known) => known.rank !== rank.rank), rank].sort((a, b) => a.rank - b.rank);

export const noteRegistered: SessionNote<Of<'rank.registered'>> = ({ ranksIn }, { rank, node }) => ({
  ranksIn: withRank(ranksIn, { rank, node, answered: false }),
});

export const noteAnswered: SessionNote<Of<'rank.answered'>> = ({ ranksIn }, { rank }) => ({
  ranksIn: ranksIn.map((known) => (known.rank === rank ? { ...known, answered: true } : known)),
});

export const noteLeft: SessionNote<Of<'rank.left'>> = ({ ranksIn }, { rank }) => ({
  ranksIn: ranksIn.filter((known) => known.rank !== rank),
});

export const noteStep: SessionNote<Of<'step.requested'>> = ({ openSteps }, event) => {
  const { stepId, mode, rank, argv, by, atMs } = event;
  const step: Step = {
    stepId,
    mode,
    rank,
    argv,
    by,
    requestedAtMs: atMs,
    cancelBy: null,
    end: null,
    endedAtMs: null,
  };
  return { openSteps: [...openSteps, step], activeAtMs: atMs, noticeDue: false };
};

export const noteStepCancel: SessionNote<Of<'step.cancelRequested'>> = ({ openSteps }, { stepId, by, atMs }) => ({
  openSteps: openSteps.map((step) => (step.stepId === stepId ? { ...step, cancelBy: by } : step)),
  activeAtMs: atMs,
});

export const noteStepEnd: SessionNote<Of<'step.ended'>> = ({ openSteps, pastSteps }, event) => {
  const { stepId, how, exitCode, signal, detail, droppedBytes, atMs } = event;
  const ended = openSteps
    .filter((step) => step.stepId === stepId)
    .map((step) => ({ ...step, end: { how, exitCode, signal, detail, droppedBytes }, endedAtMs: atMs }));
  return {
    openSteps: openSteps.filter((step) => step.stepId !== stepId),
    pastSteps: [...pastSteps, ...ended].slice(-STEPS_KEPT),
    activeAtMs: atMs,
  };
};

export const noteActivity: SessionNote<Of<'activity.seen'>> = (_context, { atMs }) => ({ activeAtMs: atMs });

export const noteEnding: SessionNote<Of<'session.ending'>> = (_context, { reason, by, atMs }) => ({
  ending: { reason, by, atMs },
});

export const noteInterrupted: SessionNote<Of<'session.interrupted'>> = (_context, { reason, detail }) => ({
  ...NOTHING_HELD,
  ending: null,
  lastLoss: detail === '' ? reason : `${reason}: ${detail}`,
});

export const noteEnd: SessionNote<Of<'session.ended'>> = (_context, { phase, reason, detail, atMs }) => ({
  ...NOTHING_HELD,
  end: { phase, reason, detail },
  endedAtMs: atMs,
});
