import type {
  CancelReason,
  Epoch,
  Handle,
  JobId,
  Phase,
  Reason,
  Source,
  TaskId,
  Token,
  Waiting,
} from './vocabulary.js';

/**
 * The rules a job lives by, fixed when it is created: they are data in its log, so a replay needs no configuration.
 * `settleMs`, `looks`, `sources`: the conclusive negative (INV-8). `lossGraceMs`, `lossLooks`: when absence is Lost
 * (INV-11). `heldFailsAfterMs`: null leaves a held job to the administrator.
 */
export interface JobPolicy {
  readonly settleMs: number;
  readonly looks: number;
  readonly sources: readonly Source[];
  readonly lossGraceMs: number;
  readonly lossLooks: number;
  readonly heldFailsAfterMs: number | null;
}

interface At {
  readonly v: 1;
  /** Unix epoch ms, by the writer's clock. */
  readonly atMs: number;
}

/** The first event of every job stream; the machine's input. */
export interface JobCreated extends At {
  readonly type: 'job.created';
  readonly jobId: JobId;
  readonly taskId: TaskId;
  readonly epoch: Epoch;
  readonly token: Token;
  readonly kind: string;
  readonly profile: string;
  /** A worker that takes over from another one records the other's job, to end it, before it starts its own. */
  readonly inherited: boolean;
  /** What the profile is called with: data, never text of a command. Not kept in the snapshot: read it from here. */
  readonly parameters: unknown;
  readonly watchUntilMs: number | null;
  readonly policy: JobPolicy;
}

export type LostCause =
  /** No answer within the time limit; the request may have taken effect. */
  | 'timedOut'
  /** The call failed in a way that proves nothing. */
  | 'unreachable'
  /** Exit 0, but no line that is wholly an id. */
  | 'unreadable'
  /** The worker stopped between the intention and the outcome. */
  | 'interrupted'
  /** Another worker's job, known only by its token. */
  | 'inherited';

export type SubmissionEvent =
  /** The intention, durable before the request is sent. */
  | (At & { readonly type: 'submission.started'; readonly attempt: number })
  | (At & { readonly type: 'submission.accepted'; readonly handle: Handle })
  | (At & {
      readonly type: 'submission.rejected';
      readonly reason: 'BACKEND_REJECTED' | 'INVALID_SPEC';
      readonly detail: string;
    })
  /** "Not now": a submit limit. Burns no attempt. */
  | (At & {
      readonly type: 'submission.deferred';
      readonly notBeforeMs: number;
      readonly limit: string;
      readonly detail: string;
    })
  | (At & {
      readonly type: 'submission.lost';
      readonly cause: LostCause;
      readonly detail: string;
      /** A complete id line in an answer that is otherwise not to be trusted: to be confirmed by token. */
      readonly hint: string | null;
    })
  /** No process of the attempt is left that could still send the request. */
  | (At & { readonly type: 'attempt.ended'; readonly how: string })
  /** One healthy answer "not here". `healthySinceMs`: the backend has answered without a break since then. */
  | (At & {
      readonly type: 'lookup.absent';
      readonly source: Source;
      readonly askedAtMs: number;
      readonly healthySinceMs: number;
      readonly detail: string;
    })
  /** `directory`: neither queue nor accounting knows it, but its claim in the job's directory shows that it ran. */
  | (At & { readonly type: 'submission.found'; readonly handle: Handle; readonly source: Source | 'directory' })
  /** The conclusive negative: legal only when the evidence in the log is complete. */
  | (At & { readonly type: 'submission.disproved' });

export type Diagnostics = Readonly<Record<string, string>>;

export type ObservationEvent =
  | (At & {
      readonly type: 'job.observed';
      readonly phase: 'Pending' | 'Running' | 'Failed' | 'Cancelled';
      readonly reason: Reason | null;
      readonly source: Source;
      readonly waiting: Waiting | null;
      /** For people: why it waits or how it ended. */
      readonly why: string;
      readonly handle: Handle;
      /** The scheduler's own words; no code branches on them. */
      readonly diagnostics: Diagnostics;
    })
  /** The backend says that the job completed. It counts only with its result: `result.collected` makes it Completed. */
  | (At & {
      readonly type: 'completion.reported';
      readonly source: Source;
      readonly handle: Handle;
      readonly warnings: readonly string[];
      readonly diagnostics: Diagnostics;
    })
  | (At & { readonly type: 'result.collected'; readonly bytes: number; readonly sha256: string })
  | (At & {
      readonly type: 'result.unusable';
      readonly reason: 'RESULT_MISSING' | 'RESULT_INVALID';
      readonly detail: string;
    })
  /** One healthy piece of evidence that the job is gone. */
  | (At & {
      readonly type: 'loss.noted';
      readonly reason: 'NOT_FOUND' | 'NODE_FAILED' | 'PREEMPTED';
      readonly healthySinceMs: number;
      readonly detail: string;
    })
  /** Legal only when the evidence in the log is complete. */
  | (At & { readonly type: 'loss.confirmed'; readonly reason: 'NOT_FOUND' | 'NODE_FAILED' | 'PREEMPTED' });

export type WishEvent =
  | (At & { readonly type: 'cancel.requested'; readonly reason: CancelReason; readonly by: string })
  /** The intention to send the nth cancel; the next one is not sent before `nextAtMs`. */
  | (At & { readonly type: 'cancel.sent'; readonly attempt: number; readonly nextAtMs: number })
  /** Stop watching, loudly: the backend's job may live on. */
  | (At & { readonly type: 'job.abandoned'; readonly by: string });

/** Two jobs carry one token: INV-8 is broken from outside. `keep` is ours from here on. */
export type DuplicateEvent =
  | (At & {
      readonly type: 'duplicate.found';
      readonly keep: Handle;
      readonly cancel: readonly Handle[];
    })
  | (At & { readonly type: 'duplicate.ended'; readonly handle: Handle });

/** What is still to be done, and what still arrives, after a job has ended; changes no phase (INV-6). */
export type AftermathEvent =
  | (At & { readonly type: 'outcome.delivered'; readonly accepted: boolean; readonly detail: string })
  | (At & { readonly type: 'directory.removed'; readonly kept: string | null })
  | (At & {
      readonly type: 'late.observed';
      readonly phase: Phase;
      readonly reason: Reason | null;
      readonly diagnostics: Diagnostics;
    });

/** A poll that nobody answered: a no-op in every state (INV-10). Part of the machine, never of a job's log. */
export interface BackendUnreachable {
  readonly type: 'backend.unreachable';
}

export type MachineEvent =
  | SubmissionEvent
  | ObservationEvent
  | WishEvent
  | Extract<DuplicateEvent, { type: 'duplicate.found' }>
  | BackendUnreachable;

/** Everything a job stream may hold. */
export type JobEvent = JobCreated | SubmissionEvent | ObservationEvent | WishEvent | DuplicateEvent | AftermathEvent;
