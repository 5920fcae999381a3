import { z } from 'zod';
import { TRAINING_KIND } from '../machines/task-context.js';
import { Epoch, JobId, Phase, Reason, SafeName, TaskId, Token } from '../machines/vocabulary.js';

/**
 * What a worker and the coordinator say to each other: zod schemas for the wire, and the port that the worker's loop
 * uses. Every call may be repeated: a repeated outcome of the same job is answered like the first one.
 */

/** A profile as everybody may see it: no scheduler setting, no script path (INV-2). */
export const PublicProfile = z.strictObject({
  name: SafeName,
  description: z.string().max(1000),
  cpus: z.number().nullable(),
  memoryMiB: z.number().nullable(),
  gpus: z.number().nullable(),
  nodes: z.number().nullable(),
  walltimeS: z.number().nullable(),
  parametersSchema: z.record(z.string(), z.unknown()).nullable(),
  /** Kinds of task that it serves. A worker from before there were sessions says nothing: it has this one only. */
  kinds: z.array(SafeName).max(100).default([TRAINING_KIND]),
});
export type PublicProfile = z.infer<typeof PublicProfile>;

/** `site`: workers with one site see each other's jobs. */
export const Hello = z.strictObject({
  site: z.string().min(1).max(200),
  kinds: z.array(SafeName).max(100),
  profiles: z.array(PublicProfile).max(1000),
  capacity: z.number().int().positive().max(100_000),
});
export type Hello = z.infer<typeof Hello>;
export const HelloAnswer = z.strictObject({ worker: z.string(), leaseTtlMs: z.number().int().positive() });
export type HelloAnswer = z.infer<typeof HelloAnswer>;

/** `waitMs`: how long the coordinator may hold the call until a task turns up (long poll), at most 60 s. */
export const AcquireRequest = z.strictObject({
  count: z.number().int().positive().max(1000),
  waitMs: z.number().int().nonnegative().max(60_000),
});
export const OpenJobWire = z.strictObject({
  jobId: JobId,
  token: Token,
  epoch: Epoch,
  worker: z.string(),
  site: z.string(),
});
export const LeaseGrant = z.strictObject({
  taskId: TaskId,
  epoch: Epoch,
  kind: z.string(),
  payload: z.unknown(),
  ttlMs: z.number().int().positive(),
  /** Jobs of earlier epochs whose end nobody has reported: to be ended before a new one starts (INV-3). */
  openJobs: z.array(OpenJobWire),
});
export type LeaseGrant = z.infer<typeof LeaseGrant>;
export const AcquireAnswer = z.strictObject({ grants: z.array(LeaseGrant) });

export const HeldLease = z.strictObject({ taskId: TaskId, epoch: Epoch });
export type HeldLease = z.infer<typeof HeldLease>;
export const RenewRequest = z.strictObject({ leases: z.array(HeldLease).max(100_000) });
export const RenewAnswer = z.strictObject({
  ttlMs: z.number().int().positive(),
  /** Not held any more, or at an old epoch (INV-7). */
  lost: z.array(TaskId),
  cancel: z.array(z.strictObject({ taskId: TaskId, by: z.string(), asAdmin: z.boolean() })),
  abandon: z.array(z.strictObject({ taskId: TaskId, by: z.string() })),
  /** Somebody is reading these tasks' output now. */
  wantLogs: z.array(TaskId),
});
export type RenewAnswer = z.infer<typeof RenewAnswer>;

export const ProgressItem = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('opened'), taskId: TaskId, epoch: Epoch, jobId: JobId, token: Token }),
  z.strictObject({
    type: z.literal('progressed'),
    taskId: TaskId,
    epoch: Epoch,
    jobId: JobId,
    phase: Phase,
    reason: Reason.nullable(),
    detail: z.string().max(2000),
  }),
  z.strictObject({ type: z.literal('closed'), taskId: TaskId, jobId: JobId, phase: Phase, reason: Reason.nullable() }),
  z.strictObject({ type: z.literal('released'), taskId: TaskId, epoch: Epoch, detail: z.string().max(2000) }),
]);
export type ProgressItem = z.infer<typeof ProgressItem>;
export const ReportRequest = z.strictObject({ items: z.array(ProgressItem).max(10_000) });
/** One verdict per item, in order. `stale`: an old epoch, refused (INV-7). */
export const ReportAnswer = z.strictObject({ verdicts: z.array(z.enum(['ok', 'stale'])) });
export type ReportAnswer = z.infer<typeof ReportAnswer>;

export const OutcomeRequest = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('completed'),
    taskId: TaskId,
    epoch: Epoch,
    jobId: JobId,
    result: z.unknown(),
    warnings: z.array(z.string().max(2000)).max(100),
  }),
  z.strictObject({
    type: z.literal('failed'),
    taskId: TaskId,
    epoch: Epoch,
    jobId: JobId.nullable(),
    reason: Reason,
    detail: z.string().max(4000),
  }),
  z.strictObject({
    type: z.literal('cancelled'),
    taskId: TaskId,
    epoch: Epoch,
    jobId: JobId.nullable(),
    reason: Reason,
  }),
  z.strictObject({
    type: z.literal('lost'),
    taskId: TaskId,
    epoch: Epoch,
    jobId: JobId,
    reason: Reason,
    detail: z.string().max(4000),
  }),
]);
export type OutcomeRequest = z.infer<typeof OutcomeRequest>;

export const LogsUpload = z.strictObject({
  taskId: TaskId,
  epoch: Epoch,
  stdout: z.string().max(512 * 1024),
  stderr: z.string().max(512 * 1024),
});
export type LogsUpload = z.infer<typeof LogsUpload>;

/** Answered; stale (an old epoch or a task that is over: stop, this is final); refused (a bug or a revoked credential); unreachable (try again). */
export type PortAnswer<T> =
  | { readonly kind: 'answered'; readonly value: T }
  | { readonly kind: 'stale'; readonly detail: string }
  | { readonly kind: 'refused'; readonly status: number; readonly detail: string }
  | { readonly kind: 'unreachable'; readonly detail: string };

/** The coordinator as a worker sees it. Never throws for what a network or a coordinator can do. */
export interface WorkerPort {
  hello(hello: Hello): Promise<PortAnswer<HelloAnswer>>;
  acquire(request: z.infer<typeof AcquireRequest>, signal?: AbortSignal): Promise<PortAnswer<readonly LeaseGrant[]>>;
  renew(leases: readonly HeldLease[]): Promise<PortAnswer<RenewAnswer>>;
  report(items: readonly ProgressItem[]): Promise<PortAnswer<ReportAnswer>>;
  /** The end of a lease. `answered` also when the same job's outcome was taken before. */
  outcome(outcome: OutcomeRequest): Promise<PortAnswer<null>>;
  putLogs(logs: LogsUpload): Promise<PortAnswer<null>>;
}
