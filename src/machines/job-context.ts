import type { JobCreated, JobPolicy, LostCause } from './job-events.js';
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

/** What is known about the newest submission attempt. `open`: started, and no outcome on record. */
export interface Attempt {
  readonly number: number;
  readonly startedAtMs: number;
  readonly open: boolean;
}

/** What speaks for "the lost submission never landed" (INV-8); complete only when `isDisproved` says so. */
export interface LookupEvidence {
  readonly cause: LostCause;
  readonly lostAtMs: number;
  readonly hint: string | null;
  readonly endedAtMs: number | null;
  readonly queueLooks: number;
  readonly accountingLooks: number;
  readonly firstLookAtMs: number | null;
  readonly lastLookAtMs: number | null;
}

/** What speaks for "the job is gone" (INV-11). */
export interface LossEvidence {
  readonly reason: 'NOT_FOUND' | 'NODE_FAILED' | 'PREEMPTED';
  readonly looks: number;
  readonly firstAtMs: number;
  readonly lastAtMs: number;
}

export interface Seen {
  readonly phase: Phase;
  readonly waiting: Waiting | null;
  readonly why: string;
  readonly source: Source;
  readonly atMs: number;
  /** Since when it waits in this way; for `held` limits. */
  readonly waitingSinceMs: number;
}

export interface CancelWish {
  readonly reason: CancelReason;
  readonly by: string;
  readonly atMs: number;
  readonly sent: number;
  readonly nextAtMs: number;
}

/** Plain JSON: it is stored in checkpoints as it is. All times are Unix epoch ms. */
export interface JobContext {
  readonly jobId: JobId;
  readonly taskId: TaskId;
  readonly epoch: Epoch;
  readonly token: Token;
  readonly kind: string;
  readonly profile: string;
  readonly inherited: boolean;
  readonly createdAtMs: number;
  readonly watchUntilMs: number | null;
  readonly policy: JobPolicy;
  readonly attempt: Attempt | null;
  readonly notBeforeMs: number;
  readonly deferral: string | null;
  readonly handle: Handle | null;
  readonly lookup: LookupEvidence | null;
  readonly seen: Seen | null;
  readonly loss: LossEvidence | null;
  readonly requeues: number;
  readonly completion: { readonly atMs: number; readonly warnings: readonly string[] } | null;
  readonly cancel: CancelWish | null;
  readonly reason: Reason | null;
  readonly detail: string;
  readonly result: { readonly bytes: number; readonly sha256: string } | null;
  readonly endedAtMs: number | null;
}

/** The state of knowledge right after `job.created`. */
export function initialContext(created: JobCreated): JobContext {
  return {
    jobId: created.jobId,
    taskId: created.taskId,
    epoch: created.epoch,
    token: created.token,
    kind: created.kind,
    profile: created.profile,
    inherited: created.inherited,
    createdAtMs: created.atMs,
    watchUntilMs: created.watchUntilMs,
    policy: created.policy,
    attempt: null,
    notBeforeMs: 0,
    deferral: null,
    handle: null,
    lookup: null,
    seen: null,
    loss: null,
    requeues: 0,
    completion: null,
    cancel: null,
    reason: null,
    detail: '',
    result: null,
    endedAtMs: null,
  };
}
