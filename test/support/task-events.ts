import { foldTask, type Task } from '../../src/machines/task-aggregate.js';
import type { TaskEvent, TaskMachineEvent, TaskSubmitted } from '../../src/machines/task-events.js';
import type { Reason } from '../../src/machines/vocabulary.js';
import { epoch, jobId, taskId, token } from './ids.js';

export function submitted(over: Partial<Omit<TaskSubmitted, 'type'>> = {}): TaskSubmitted {
  return {
    type: 'task.submitted',
    v: 1,
    atMs: 0,
    taskId: taskId(),
    kind: 'training',
    payload: { profile: 'smoke', parameters: {} },
    by: 'alice-1',
    submissionKey: null,
    lossesMax: 3,
    ...over,
  };
}

const head = { v: 1, atMs: 10 } as const;

/** Events of the lease with number `n`, whose job has the same number. */
export const leased = (n = 1, site = 'lab'): TaskMachineEvent => ({
  type: 'task.leased',
  ...head,
  epoch: epoch(n),
  workerId: `worker-${site}`,
  worker: site,
  site,
});
export const opened = (n = 1, site = 'lab', job = n): TaskMachineEvent => ({
  type: 'task.jobOpened',
  ...head,
  job: { jobId: jobId(job), token: token(job), epoch: epoch(n), worker: site, site },
});
export const progressed = (n = 1): TaskMachineEvent => ({
  type: 'task.progressed',
  ...head,
  epoch: epoch(n),
  jobId: jobId(n),
  phase: 'Running',
  reason: null,
  detail: '',
});
export const jobClosed = (n = 1): TaskMachineEvent => ({
  type: 'task.jobClosed',
  ...head,
  jobId: jobId(n),
  phase: 'Cancelled',
  reason: 'LEASE_LOST',
});
export const expired = (n = 1): TaskMachineEvent => ({ type: 'task.leaseExpired', ...head, epoch: epoch(n) });
export const released = (n = 1): TaskMachineEvent => ({ type: 'task.released', ...head, epoch: epoch(n), detail: '' });
export const cancelWish = (asAdmin = false): TaskMachineEvent => ({
  type: 'task.cancelRequested',
  ...head,
  by: 'alice',
  asAdmin,
});
export const abandonWish = (): TaskMachineEvent => ({ type: 'task.abandonRequested', ...head, by: 'alice' });
export const completed = (n = 1): TaskMachineEvent => ({
  type: 'task.completed',
  ...head,
  epoch: epoch(n),
  jobId: jobId(n),
  result: { ok: true },
  warnings: [],
});
export const failed = (n = 1): TaskMachineEvent => ({
  type: 'task.failed',
  ...head,
  epoch: epoch(n),
  jobId: jobId(n),
  reason: 'EXIT_NONZERO',
  detail: 'exit 3',
});
export const cancelled = (n = 1): TaskMachineEvent => ({
  type: 'task.cancelled',
  ...head,
  epoch: epoch(n),
  jobId: jobId(n),
  reason: 'USER_CANCELLED',
});
export const lost = (n = 1, reason: Reason = 'NODE_FAILED'): TaskMachineEvent => ({
  type: 'task.lost',
  ...head,
  epoch: epoch(n),
  jobId: jobId(n),
  reason,
  detail: 'node gone',
});

export const taskAfter = (...events: readonly TaskEvent[]): Task => foldTask([submitted(), ...events]);
