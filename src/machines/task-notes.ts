import { JOBS_KEPT, type DeliveredOutcome, type TaskContext, type TaskJob } from './task-context.js';
import type { TaskMachineEvent } from './task-events.js';
import type { JobId, Phase, Reason } from './vocabulary.js';

/**
 * What each event leaves in a task's context. Pure functions from (context, event) to the changed fields; the machine
 * says when they apply.
 */
export type TaskNote<E> = (context: TaskContext, event: E) => Partial<TaskContext>;

type Of<T extends TaskMachineEvent['type']> = Extract<TaskMachineEvent, { type: T }>;

export const noteLeased: TaskNote<Of<'task.leased'>> = (_context, { epoch, workerId, worker, site, atMs }) => ({
  epoch,
  lease: { epoch, workerId, worker, site, atMs },
});

export const noteJobOpened: TaskNote<Of<'task.jobOpened'>> = (context, { job, atMs }) => {
  const opened: TaskJob = {
    jobId: job.jobId,
    epoch: job.epoch,
    worker: job.worker,
    openedAtMs: atMs,
    phase: 'Submitting',
    reason: null,
    detail: '',
    closedAtMs: null,
  };
  return {
    openJobs: [...context.openJobs, job],
    jobs: [...context.jobs, opened].slice(-JOBS_KEPT),
    jobsTotal: context.jobsTotal + 1,
    progress: null,
  };
};

const withJob = (context: TaskContext, jobId: JobId, change: Partial<TaskJob>): readonly TaskJob[] =>
  context.jobs.map((job) => (job.jobId === jobId ? { ...job, ...change } : job));

export const noteProgress: TaskNote<Of<'task.progressed'>> = (context, { jobId, phase, reason, detail, atMs }) => ({
  progress: { jobId, phase, reason, detail, atMs },
  jobs: withJob(context, jobId, { phase, reason, detail }),
});

const closed = (
  context: TaskContext,
  jobId: JobId,
  end: { readonly phase: Phase; readonly reason: Reason | null; readonly detail: string; readonly atMs: number },
): Pick<TaskContext, 'openJobs' | 'jobs'> => ({
  openJobs: context.openJobs.filter((job) => job.jobId !== jobId),
  jobs: withJob(context, jobId, {
    phase: end.phase,
    reason: end.reason,
    detail: end.detail,
    closedAtMs: end.atMs,
  }),
});

export const noteJobClosed: TaskNote<Of<'task.jobClosed'>> = (context, event) =>
  closed(context, event.jobId, { ...event, detail: '' });

/** The task waits again; what its jobs still are is kept. */
export const noteLeaseGone: TaskNote<TaskMachineEvent> = () => ({ lease: null, progress: null });

export const noteCancelWish: TaskNote<Of<'task.cancelRequested'>> = (_context, { by, asAdmin, atMs }) => ({
  cancel: { by, asAdmin, atMs },
});

export const noteAbandonWish: TaskNote<Of<'task.abandonRequested'>> = (_context, { by, atMs }) => ({
  abandon: { by, atMs },
});

export const noteCancelled: TaskNote<TaskMachineEvent> = ({ cancel }, { atMs }) => ({
  reason: cancel?.asAdmin === true ? 'ADMIN_CANCELLED' : 'USER_CANCELLED',
  detail: cancel === null ? '' : `cancelled by ${cancel.by}`,
  endedAtMs: atMs,
});

/** The loud end: what may live on is named. */
export const noteAbandoned: TaskNote<TaskMachineEvent> = ({ abandon, openJobs }, { atMs }) => ({
  reason: 'ABANDONED',
  detail: [
    `abandoned${abandon === null ? '' : ` by ${abandon.by}`}`,
    openJobs.length === 0
      ? 'no job of it was open'
      : `these jobs may live on: ${openJobs.map((job) => `${job.jobId} (worker ${job.worker})`).join(', ')}`,
  ].join('; '),
  openJobs: [],
  forgotten: openJobs,
  endedAtMs: atMs,
});

type OutcomeEvent = Of<'task.completed' | 'task.failed' | 'task.cancelled' | 'task.lost'>;

const OUTCOME_PHASE = {
  'task.completed': 'Completed',
  'task.failed': 'Failed',
  'task.cancelled': 'Cancelled',
  'task.lost': 'Lost',
} as const satisfies Record<OutcomeEvent['type'], Phase>;

const OUTCOME_TYPE = {
  'task.completed': 'completed',
  'task.failed': 'failed',
  'task.cancelled': 'cancelled',
  'task.lost': 'lost',
} as const satisfies Record<OutcomeEvent['type'], DeliveredOutcome['type']>;

/** What every outcome leaves: its job is over, and it will be known again when it is repeated. */
export const noteOutcome: TaskNote<OutcomeEvent> = (context, event) => {
  const { epoch, jobId, atMs, type } = event;
  const detail = 'detail' in event ? event.detail : '';
  const reason = 'reason' in event ? event.reason : null;
  return {
    outcome: { type: OUTCOME_TYPE[type], epoch, jobId, workerId: context.lease?.workerId ?? '' },
    ...(jobId === null ? {} : closed(context, jobId, { phase: OUTCOME_PHASE[type], reason, detail, atMs })),
    reason,
    detail,
    warnings: 'warnings' in event ? event.warnings : [],
    endedAtMs: atMs,
  };
};

/** A loss ends the job, not yet the task. */
export const noteLoss: TaskNote<Of<'task.lost'>> = (context) => ({ losses: context.losses + 1, endedAtMs: null });

export const noteTriedAgain: TaskNote<Of<'task.lost'>> = () => ({
  lease: null,
  progress: null,
  reason: null,
  detail: '',
});

export const noteDeadLetter: TaskNote<Of<'task.lost'>> = (context, event) => ({
  detail: `lost ${String(context.losses)} times, the last time: ${event.detail}`,
  endedAtMs: event.atMs,
});
