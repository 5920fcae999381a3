import type { TaskChange, TaskView } from '../coordinator/api.js';
import { cut, printableLine, toDuration, toTable, toTime } from './output.js';

/** How tasks read for people. Phase and reason are two columns, never one. */

/** A task that is over. */
export const isOver = (phase: TaskView['phase']): boolean => phase !== 'Queued' && phase !== 'Leased';

const DETAIL_MAX = 60;

export function taskTable(tasks: readonly TaskView[], nowMs: number): string {
  const rows = tasks.map((task) => {
    const job = task.jobs.at(-1);
    const { taskId, kind, profile, phase, reason, worker, submittedAtMs, detail, waiting } = task;
    const age = toDuration(nowMs - submittedAtMs);
    const what = profile === null ? kind : `${kind}/${profile}`;
    const why = cut(detail === '' ? (waiting ?? '') : detail, DETAIL_MAX);
    return [taskId, what, phase, reason ?? '', job?.phase ?? '', worker ?? '', age, why];
  });
  return toTable(['TASK', 'WHAT', 'PHASE', 'REASON', 'JOB', 'WORKER', 'AGE', 'DETAIL'], rows);
}

export function jobTable({ jobs, jobsTotal }: TaskView): string {
  const rows = jobs.map((job) => [
    job.jobId,
    String(job.epoch),
    job.worker,
    job.phase,
    job.reason ?? '',
    toTime(job.openedAtMs),
    job.closedAtMs === null ? '' : toDuration(job.closedAtMs - job.openedAtMs),
    cut(job.detail, DETAIL_MAX),
  ]);
  const table = toTable(['JOB', 'EPOCH', 'WORKER', 'PHASE', 'REASON', 'OPENED', 'TOOK', 'DETAIL'], rows);
  return jobs.length === jobsTotal ? table : `${table}(the newest ${String(jobs.length)} of ${String(jobsTotal)})\n`;
}

export function historyTable(changes: readonly TaskChange[]): string {
  const rows = changes.map(({ atMs, event, phase, reason, job, worker, detail }) => {
    const live = isOver(phase) ? null : job;
    const why = cut(detail === '' ? (live?.detail ?? '') : detail, DETAIL_MAX);
    return [toTime(atMs), event, phase, reason ?? '', live?.phase ?? '', live?.reason ?? '', worker ?? '', why];
  });
  return toTable(['TIME', 'EVENT', 'PHASE', 'REASON', 'JOB', 'JOB REASON', 'WORKER', 'DETAIL'], rows);
}

/** What an event says that no phase shows. */
const WISHES: Readonly<Record<string, string>> = {
  'task.cancelRequested': 'asked to end',
  'task.abandonRequested': 'abandoned',
  'task.leaseExpired': 'its lease ran out',
  'task.released': 'given back',
};

/** `Leased  job Running  on hpc-gateway`: where a task is, in one line. */
export function whereText({ event, phase, reason, job, worker, detail }: TaskChange): string {
  // Of a task that is over the job has ended, whether its worker said so in between or not.
  const live = isOver(phase) ? null : job;
  const parts = [
    WISHES[event] ?? '',
    reason === null ? phase : `${phase} (${reason})`,
    live === null ? '' : `job ${live.phase}${live.reason === null ? '' : ` (${live.reason})`}`,
    worker === null ? '' : `on ${worker}`,
    detail === '' ? (live?.detail ?? '') : detail,
  ];
  return printableLine(parts.filter((part) => part !== '').join('  '));
}

/** How a task without a result ended: `Failed, EXIT_NONZERO: ended with status 3`. */
export function endText({ phase, reason, detail }: TaskEnd): string {
  const why = [reason ?? '', detail].filter((part) => part !== '').join(': ');
  return why === '' ? phase : `${phase}, ${why}`;
}

export type TaskEnd = Pick<TaskChange, 'taskId' | 'phase' | 'reason' | 'detail'>;

/** `16:13:22 task_… Leased  job Running …`: one change, in one line. */
export const changeLine = (change: TaskChange, withTask: boolean): string =>
  [new Date(change.atMs).toISOString().slice(11, 19), ...(withTask ? [change.taskId] : []), whereText(change)].join(
    ' ',
  );
