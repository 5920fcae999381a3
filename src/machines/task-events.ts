import type { Epoch, JobId, Phase, Reason, TaskId, Token } from './vocabulary.js';

interface At {
  readonly v: 1;
  /** Unix epoch ms, by the coordinator's clock. */
  readonly atMs: number;
}

/** A job of a task whose end has not been reported: it must be over before the task's next job starts (INV-3). */
export interface OpenJob {
  readonly jobId: JobId;
  readonly token: Token;
  readonly epoch: Epoch;
  readonly worker: string;
  readonly site: string;
}

/** The first event of every task stream; the machine's input. */
export interface TaskSubmitted extends At {
  readonly type: 'task.submitted';
  readonly taskId: TaskId;
  readonly kind: string;
  readonly payload: unknown;
  /** Credential id of the submitter. */
  readonly by: string;
  /** A client's own key: the same key from the same submitter is the same task, however often it is sent. */
  readonly submissionKey: string | null;
  /** How many jobs may be Lost before the task goes to the dead letters. */
  readonly lossesMax: number;
}

export type TaskProgress =
  | (At & {
      readonly type: 'task.leased';
      readonly epoch: Epoch;
      /** Credential id; `worker` is its name. */
      readonly workerId: string;
      readonly worker: string;
      readonly site: string;
    })
  /** The worker minted a job: from here on it counts as live (INV-3). */
  | (At & { readonly type: 'task.jobOpened'; readonly job: OpenJob })
  | (At & {
      readonly type: 'task.progressed';
      readonly epoch: Epoch;
      readonly jobId: JobId;
      readonly phase: Phase;
      readonly reason: Reason | null;
      readonly detail: string;
    })
  /** A job is over; from any epoch: it is only a fact about an old job. */
  | (At & {
      readonly type: 'task.jobClosed';
      readonly jobId: JobId;
      readonly phase: Phase;
      readonly reason: Reason | null;
    })
  | (At & { readonly type: 'task.leaseExpired'; readonly epoch: Epoch })
  /** The worker gives the task back unstarted. */
  | (At & { readonly type: 'task.released'; readonly epoch: Epoch; readonly detail: string });

export type TaskWish =
  | (At & { readonly type: 'task.cancelRequested'; readonly by: string; readonly asAdmin: boolean })
  | (At & { readonly type: 'task.abandonRequested'; readonly by: string });

/** How the lease's job ended, in the words of the task. */
export type TaskOutcome =
  | (At & {
      readonly type: 'task.completed';
      readonly epoch: Epoch;
      readonly jobId: JobId;
      readonly result: unknown;
      readonly warnings: readonly string[];
    })
  | (At & {
      readonly type: 'task.failed';
      readonly epoch: Epoch;
      readonly jobId: JobId | null;
      readonly reason: Reason;
      readonly detail: string;
    })
  | (At & {
      readonly type: 'task.cancelled';
      readonly epoch: Epoch;
      readonly jobId: JobId | null;
      readonly reason: Reason;
    })
  /** Its job was taken away through no fault of its own: tried again, or a dead letter. */
  | (At & {
      readonly type: 'task.lost';
      readonly epoch: Epoch;
      readonly jobId: JobId;
      readonly reason: Reason;
      readonly detail: string;
    });

export type TaskMachineEvent = TaskProgress | TaskWish | TaskOutcome;
export type TaskEvent = TaskSubmitted | TaskMachineEvent;

export const TASK_PHASES = ['Queued', 'Leased', 'Completed', 'Failed', 'Cancelled', 'DeadLetter'] as const;
export type TaskPhase = (typeof TASK_PHASES)[number];
