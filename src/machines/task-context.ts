import type { OpenJob, TaskSubmitted } from './task-events.js';
import type { Epoch, JobId, Phase, Reason, TaskId } from './vocabulary.js';

/** How many jobs a task's context remembers; the log keeps them all. */
export const JOBS_KEPT = 20;

/** The kinds whose payload is not opaque: it names a profile. A session waits for steps; a training runs to an end. */
export const TRAINING_KIND = 'training';
export const SESSION_KIND = 'session';

/** Whether a payload of this kind names a profile. */
export const namesProfile = (kind: string): boolean => kind === TRAINING_KIND || kind === SESSION_KIND;

/** A worker's right to run the task. `workerId`: its credential; `worker`: the credential's name. */
export interface Lease {
  readonly epoch: Epoch;
  readonly workerId: string;
  readonly worker: string;
  readonly site: string;
  readonly atMs: number;
}

/** One attempt, for people: where it is, or how it ended. */
export interface TaskJob {
  readonly jobId: JobId;
  readonly epoch: Epoch;
  readonly worker: string;
  readonly openedAtMs: number;
  readonly phase: Phase;
  readonly reason: Reason | null;
  readonly detail: string;
  readonly closedAtMs: number | null;
}

export interface Progress {
  readonly jobId: JobId;
  readonly phase: Phase;
  readonly reason: Reason | null;
  readonly detail: string;
  readonly atMs: number;
}

/** The newest outcome that a worker delivered: its repetition is answered like the first one. */
export interface DeliveredOutcome {
  readonly type: 'completed' | 'failed' | 'cancelled' | 'lost';
  readonly epoch: Epoch;
  readonly jobId: JobId | null;
  readonly workerId: string;
}

/**
 * Plain JSON: it is stored in checkpoints as it is. All times are Unix epoch ms. Payload and result are not here: they
 * may be large, and the log has them.
 */
export interface TaskContext {
  readonly taskId: TaskId;
  readonly kind: string;
  /** null: the payload names none. */
  readonly profile: string | null;
  readonly by: string;
  readonly submissionKey: string | null;
  readonly lossesMax: number;
  readonly submittedAtMs: number;
  /** Of the newest lease; 0 before the first one. Only grows (INV-7). */
  readonly epoch: number;
  /** In Leased the live lease; at the end the one under which the task ended. */
  readonly lease: Lease | null;
  /** Jobs whose end nobody has reported. At most one of them is sent to a backend: the older ones end first (INV-3). */
  readonly openJobs: readonly OpenJob[];
  /** Open jobs that an abandon has left to themselves: they may live on. */
  readonly forgotten: readonly OpenJob[];
  /** The newest `JOBS_KEPT`, oldest first. */
  readonly jobs: readonly TaskJob[];
  readonly jobsTotal: number;
  readonly losses: number;
  readonly progress: Progress | null;
  readonly cancel: { readonly by: string; readonly asAdmin: boolean; readonly atMs: number } | null;
  readonly abandon: { readonly by: string; readonly atMs: number } | null;
  readonly outcome: DeliveredOutcome | null;
  readonly reason: Reason | null;
  readonly detail: string;
  readonly warnings: readonly string[];
  readonly endedAtMs: number | null;
}

/** The profile that a payload names; null for every other kind of work, and for a payload without one. */
export function profileOf(kind: string, payload: unknown): string | null {
  if (!namesProfile(kind) || typeof payload !== 'object' || payload === null || !('profile' in payload)) return null;
  return typeof payload.profile === 'string' ? payload.profile : null;
}

/** What is known right after `task.submitted`. */
export function initialTaskContext(submitted: TaskSubmitted): TaskContext {
  return {
    taskId: submitted.taskId,
    kind: submitted.kind,
    profile: profileOf(submitted.kind, submitted.payload),
    by: submitted.by,
    submissionKey: submitted.submissionKey,
    lossesMax: submitted.lossesMax,
    submittedAtMs: submitted.atMs,
    epoch: 0,
    lease: null,
    openJobs: [],
    forgotten: [],
    jobs: [],
    jobsTotal: 0,
    losses: 0,
    progress: null,
    cancel: null,
    abandon: null,
    outcome: null,
    reason: null,
    detail: '',
    warnings: [],
    endedAtMs: null,
  };
}
