import type { SessionRequested, StepEnd, StepMode } from './session-events.js';
import type { CancelReason, Epoch, JobId, Phase, Reason, StepId, TaskId } from './vocabulary.js';

/** How many ended steps a session's context remembers; the log keeps them all. */
export const STEPS_KEPT = 20;

/** A rank that is in. `answered`: its agent takes commands. */
export interface RankIn {
  readonly rank: number;
  readonly node: string;
  readonly answered: boolean;
}

export interface Step {
  readonly stepId: StepId;
  readonly mode: StepMode;
  readonly rank: number | null;
  readonly argv: readonly string[];
  readonly by: string;
  readonly requestedAtMs: number;
  readonly cancelBy: string | null;
  /** null: under way. */
  readonly end: StepEnd | null;
  readonly endedAtMs: number | null;
}

/** Plain JSON. All times are Unix epoch ms. */
export interface SessionContext {
  readonly taskId: TaskId;
  readonly profile: string;
  readonly ranks: number;
  readonly idleLimitMs: number;
  readonly maxLifetimeMs: number;
  readonly requestedAtMs: number;
  /** The job that holds, or is to hold, the session's nodes; null before the first one. */
  readonly jobId: JobId | null;
  readonly epoch: Epoch | null;
  /** Since when this job holds nodes; null: it holds none. */
  readonly grantedAtMs: number | null;
  /** Since when the session has had nodes for the first time: its lifetime counts from here. */
  readonly firstGrantedAtMs: number | null;
  readonly workspace: boolean;
  /** By rank. */
  readonly ranksIn: readonly RankIn[];
  /** The newest that a user did, or the newest end of a step. */
  readonly activeAtMs: number | null;
  /** Under way, oldest first. */
  readonly openSteps: readonly Step[];
  /** The newest `STEPS_KEPT` that have ended, oldest first. */
  readonly pastSteps: readonly Step[];
  readonly ending: { readonly reason: CancelReason; readonly by: string; readonly atMs: number } | null;
  /** Jobs that were taken away and replaced. */
  readonly recoveries: number;
  readonly lastLoss: string | null;
  /** Its users have not yet been told that what processes had in memory is gone. */
  readonly noticeDue: boolean;
  readonly end: { readonly phase: Phase; readonly reason: Reason | null; readonly detail: string } | null;
  readonly endedAtMs: number | null;
}

/** What is known right after `session.requested`. */
export function initialSessionContext(requested: SessionRequested): SessionContext {
  return {
    taskId: requested.taskId,
    profile: requested.profile,
    ranks: requested.ranks,
    idleLimitMs: requested.idleLimitMs,
    maxLifetimeMs: requested.maxLifetimeMs,
    requestedAtMs: requested.atMs,
    jobId: null,
    epoch: null,
    grantedAtMs: null,
    firstGrantedAtMs: null,
    workspace: false,
    ranksIn: [],
    activeAtMs: null,
    openSteps: [],
    pastSteps: [],
    ending: null,
    recoveries: 0,
    lastLoss: null,
    noticeDue: false,
    end: null,
    endedAtMs: null,
  };
}
