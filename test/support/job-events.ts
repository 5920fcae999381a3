import { foldJob, type Job } from '../../src/machines/job-aggregate.js';
import type { JobCreated, JobEvent, JobPolicy, LostCause } from '../../src/machines/job-events.js';
import type { CancelReason, Handle, Source, Waiting } from '../../src/machines/vocabulary.js';
import { epoch, handle, jobId, taskId, token } from './ids.js';

/** Small numbers, so that a test can write down every step: three looks over 1 s, three signs of loss over 600 ms. */
export const POLICY: JobPolicy = {
  settleMs: 1000,
  looks: 3,
  sources: ['queue', 'accounting'],
  lossGraceMs: 600,
  lossLooks: 3,
  heldFailsAfterMs: null,
};

export function created(over: Partial<Omit<JobCreated, 'type'>> = {}): JobCreated {
  return {
    type: 'job.created',
    v: 1,
    atMs: 0,
    jobId: jobId(),
    taskId: taskId(),
    epoch: epoch(),
    token: token(),
    kind: 'training',
    profile: 'smoke',
    inherited: false,
    parameters: {},
    watchUntilMs: null,
    policy: POLICY,
    ...over,
  };
}

type LossReason = Extract<JobEvent, { type: 'loss.noted' }>['reason'];

/** Every event that a job's stream may hold after its first, as it is written at `atMs`. */
export function at(atMs: number) {
  const head = { v: 1, atMs } as const;
  const observed = (
    over: Partial<Extract<JobEvent, { type: 'job.observed' }>> & {
      phase: 'Pending' | 'Running' | 'Failed' | 'Cancelled';
    },
  ): JobEvent => ({
    type: 'job.observed',
    ...head,
    reason: null,
    source: 'queue',
    waiting: null,
    why: '',
    handle: handle(),
    diagnostics: {},
    ...over,
  });
  return {
    started: (attempt = 1): JobEvent => ({ type: 'submission.started', ...head, attempt }),
    accepted: (to: Handle = handle()): JobEvent => ({ type: 'submission.accepted', ...head, handle: to }),
    rejected: (reason: 'BACKEND_REJECTED' | 'INVALID_SPEC' = 'BACKEND_REJECTED'): JobEvent => ({
      type: 'submission.rejected',
      ...head,
      reason,
      detail: 'no',
    }),
    deferred: (notBeforeMs = atMs + 100): JobEvent => ({
      type: 'submission.deferred',
      ...head,
      notBeforeMs,
      limit: 'MaxJobs',
      detail: 'not now',
    }),
    lost: (cause: LostCause = 'timedOut'): JobEvent => ({
      type: 'submission.lost',
      ...head,
      cause,
      detail: 'no answer',
      hint: null,
    }),
    attemptEnded: (): JobEvent => ({ type: 'attempt.ended', ...head, how: 'no process is left' }),
    absent: (source: Source, healthySinceMs = 0, askedAtMs = atMs): JobEvent => ({
      type: 'lookup.absent',
      ...head,
      source,
      askedAtMs,
      healthySinceMs,
      detail: 'not here',
    }),
    found: (to: Handle = handle(), source: Source = 'queue'): JobEvent => ({
      type: 'submission.found',
      ...head,
      handle: to,
      source,
    }),
    disproved: (): JobEvent => ({ type: 'submission.disproved', ...head }),
    pending: (waiting: Waiting = 'queued', why = ''): JobEvent => observed({ phase: 'Pending', waiting, why }),
    running: (): JobEvent => observed({ phase: 'Running' }),
    failed: (): JobEvent => observed({ phase: 'Failed', reason: 'EXIT_NONZERO', why: 'exit 3' }),
    cancelled: (): JobEvent => observed({ phase: 'Cancelled', reason: 'ADMIN_CANCELLED', why: 'by somebody' }),
    completion: (): JobEvent => ({
      type: 'completion.reported',
      ...head,
      source: 'accounting',
      handle: handle(),
      warnings: [],
      diagnostics: {},
    }),
    collected: (): JobEvent => ({ type: 'result.collected', ...head, bytes: 2, sha256: 'a'.repeat(64) }),
    unusable: (reason: 'RESULT_MISSING' | 'RESULT_INVALID' = 'RESULT_MISSING'): JobEvent => ({
      type: 'result.unusable',
      ...head,
      reason,
      detail: 'no file',
    }),
    lossNoted: (healthySinceMs = 0, reason: LossReason = 'NOT_FOUND'): JobEvent => ({
      type: 'loss.noted',
      ...head,
      reason,
      healthySinceMs,
      detail: 'nowhere',
    }),
    lossConfirmed: (reason: LossReason = 'NOT_FOUND'): JobEvent => ({ type: 'loss.confirmed', ...head, reason }),
    cancelRequested: (reason: CancelReason = 'USER_CANCELLED'): JobEvent => ({
      type: 'cancel.requested',
      ...head,
      reason,
      by: 'ada',
    }),
    cancelSent: (attempt = 1): JobEvent => ({ type: 'cancel.sent', ...head, attempt, nextAtMs: atMs + 100 }),
    abandoned: (): JobEvent => ({ type: 'job.abandoned', ...head, by: 'ada' }),
    duplicateFound: (keep: Handle = handle('41'), cancel: readonly Handle[] = [handle('42')]): JobEvent => ({
      type: 'duplicate.found',
      ...head,
      keep,
      cancel,
    }),
    duplicateEnded: (gone: Handle = handle('42')): JobEvent => ({ type: 'duplicate.ended', ...head, handle: gone }),
    delivered: (): JobEvent => ({ type: 'outcome.delivered', ...head, accepted: true, detail: '' }),
    directoryRemoved: (): JobEvent => ({ type: 'directory.removed', ...head, kept: null }),
    lateObserved: (): JobEvent => ({
      type: 'late.observed',
      ...head,
      phase: 'Running',
      reason: null,
      diagnostics: {},
    }),
  };
}

/** A job after its creation and these events. */
export const jobAfter = (...events: readonly JobEvent[]): Job => foldJob([created(), ...events]);

/** Everything that the conclusive negative asks for, after an attempt that was lost at 10 ms (INV-8). */
export function conclusiveEvidence(): readonly JobEvent[] {
  const looks = [100, 600, 1100].flatMap((ms) => [at(ms).absent('queue'), at(ms).absent('accounting')]);
  return [at(20).attemptEnded(), ...looks];
}
