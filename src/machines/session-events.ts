import type { CancelReason, Epoch, JobId, Phase, Reason, StepId, TaskId } from './vocabulary.js';

interface At {
  readonly v: 1;
  /** Unix epoch ms, by the worker's clock. */
  readonly atMs: number;
}

/** How a command was started: on the nodes of the allocation, or by one rank's agent. */
export const STEP_MODES = ['run', 'exec'] as const;
export type StepMode = (typeof STEP_MODES)[number];

/** `refused`: nothing was started. `unknown`: what became of it can not be said any more. */
export const STEP_ENDS = ['exited', 'cancelled', 'timeLimit', 'refused', 'unknown'] as const;
export type StepEndKind = (typeof STEP_ENDS)[number];

/** How a step ended. `droppedBytes`: what it wrote beyond its output limit, both streams together. */
export interface StepEnd {
  readonly how: StepEndKind;
  readonly exitCode: number | null;
  /** Such as `SIGKILL` or `9`, as far as the backend says. */
  readonly signal: string | null;
  readonly detail: string;
  readonly droppedBytes: number;
}

/**
 * The first event of every session stream; the machine's input. A session is a task of kind `session`, and has its id.
 * The limits are data in the log, so a replay needs no configuration.
 */
export interface SessionRequested extends At {
  readonly type: 'session.requested';
  readonly taskId: TaskId;
  readonly profile: string;
  /** One per node. */
  readonly ranks: number;
  readonly idleLimitMs: number;
  readonly maxLifetimeMs: number;
}

export type SessionProgress =
  /** A job for the session: the first one, or the one that follows a lost one. Agents of older epochs are refused. */
  | (At & { readonly type: 'session.jobAssigned'; readonly jobId: JobId; readonly epoch: Epoch })
  /** The backend says that the job runs: nodes are held from here on. */
  | (At & { readonly type: 'allocation.granted' })
  /** The backend took the nodes back, and will run the same job again. */
  | (At & { readonly type: 'allocation.withdrawn'; readonly detail: string })
  /** The session's directory is there, with everything that an agent needs. */
  | (At & { readonly type: 'workspace.prepared' })
  | (At & { readonly type: 'rank.registered'; readonly epoch: Epoch; readonly rank: number; readonly node: string })
  /** Its agent answered: it takes commands. */
  | (At & { readonly type: 'rank.answered'; readonly epoch: Epoch; readonly rank: number })
  | (At & { readonly type: 'rank.left'; readonly epoch: Epoch; readonly rank: number; readonly detail: string });

export type StepEvent =
  /** The intention, durable before anything is started. It is a user's activity. */
  | (At & {
      readonly type: 'step.requested';
      readonly stepId: StepId;
      readonly mode: StepMode;
      /** Of `exec`; null for `run`. */
      readonly rank: number | null;
      readonly argv: readonly string[];
      readonly by: string;
    })
  | (At & { readonly type: 'step.cancelRequested'; readonly stepId: StepId; readonly by: string })
  | (At & ({ readonly type: 'step.ended'; readonly stepId: StepId } & StepEnd))
  /** What a user did beside asking for a step, such as typing; noted once in a while. */
  | (At & { readonly type: 'activity.seen'; readonly what: string });

export type SessionEnding =
  /** No new steps; those that run are ended, and then the allocation. */
  | (At & { readonly type: 'session.ending'; readonly reason: CancelReason; readonly by: string })
  /** Its job was taken away through no fault of its own: another one may follow, at a higher epoch. */
  | (At & {
      readonly type: 'session.interrupted';
      readonly jobId: JobId;
      readonly reason: Reason;
      readonly detail: string;
    })
  | (At & {
      readonly type: 'session.ended';
      readonly phase: Phase;
      readonly reason: Reason | null;
      readonly detail: string;
    });

export type SessionMachineEvent = SessionProgress | StepEvent | SessionEnding;
export type SessionEvent = SessionRequested | SessionMachineEvent;

export const SESSION_STATES = ['Waiting', 'Starting', 'Ready', 'Ending', 'Interrupted', 'Ended'] as const;
export type SessionState = (typeof SESSION_STATES)[number];
