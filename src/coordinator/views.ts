import { liveLeaseOf, taskContextOf, taskPhaseOf, type Task } from '../machines/task-aggregate.js';
import type { TaskEvent } from '../machines/task-events.js';
import type { TaskChange, TaskView } from './api.js';

/** What people see of a task. Sites, tokens and worker credentials stay inside. */
export function viewOf(task: Task, waiting: string | null): TaskView {
  const context = taskContextOf(task);
  return {
    taskId: context.taskId,
    kind: context.kind,
    profile: context.profile,
    phase: taskPhaseOf(task),
    reason: context.reason,
    detail: context.detail,
    by: context.by,
    submittedAtMs: context.submittedAtMs,
    endedAtMs: context.endedAtMs,
    epoch: context.epoch,
    worker: context.lease?.worker ?? null,
    losses: context.losses,
    lossesMax: context.lossesMax,
    jobs: [...context.jobs],
    jobsTotal: context.jobsTotal,
    openJobs: context.openJobs.map((job) => job.jobId),
    forgottenJobs: context.forgotten.map((job) => job.jobId),
    cancelRequested: context.cancel === null ? null : { by: context.cancel.by, atMs: context.cancel.atMs },
    abandonRequested: context.abandon,
    warnings: [...context.warnings],
    waiting,
  };
}

/** One event, and the task right after it. */
export function changeOf(position: number, event: TaskEvent, task: Task): TaskChange {
  const { taskId, reason, detail, progress, jobs, lease } = taskContextOf(task);
  const newest = jobs.at(-1);
  const job = progress ?? newest ?? null;
  return {
    position,
    atMs: event.atMs,
    taskId,
    event: event.type,
    phase: taskPhaseOf(task),
    reason,
    detail: detail === '' && 'detail' in event ? event.detail : detail,
    worker: liveLeaseOf(task)?.worker ?? lease?.worker ?? null,
    job: job === null ? null : { jobId: job.jobId, phase: job.phase, reason: job.reason, detail: job.detail },
  };
}
