import { clip } from '../events/schema-parts.js';
import { canTake, isTaskOver, liveLeaseOf, taskContextOf, taskPhaseOf, type Task } from '../machines/task-aggregate.js';
import type { TaskEvent, TaskMachineEvent, TaskOutcome } from '../machines/task-events.js';
import { Epoch } from '../machines/vocabulary.js';
import type { Problem } from './problems.js';
import type { OutcomeRequest, ProgressItem } from './worker-api.js';

/**
 * What a command adds to a task's stream. Pure: from the task and the command to a decision. Fencing is here as well as
 * in the machine's guards (INV-7): here the caller is told, there a wrong writer is stopped.
 */
export type Decision =
  | { readonly kind: 'append'; readonly events: readonly TaskEvent[] }
  /** It is so already: a repetition, or nothing new. */
  | { readonly kind: 'already' }
  | { readonly kind: 'stale'; readonly detail: string }
  | { readonly kind: 'refused'; readonly problem: Problem };

/** A worker as its credential and its hello describe it. */
export interface WorkerIdentity {
  readonly id: string;
  readonly name: string;
  readonly site: string;
}

const ALREADY: Decision = { kind: 'already' };
const append = (...events: readonly TaskEvent[]): Decision => ({ kind: 'append', events });

const holds = (task: Task, worker: WorkerIdentity, epoch: number): boolean => {
  const lease = liveLeaseOf(task);
  return lease?.workerId === worker.id && lease.epoch === epoch;
};

function stale(task: Task, epoch: number): Decision {
  const { taskId, epoch: current } = taskContextOf(task);
  const why = isTaskOver(task)
    ? `it is ${taskPhaseOf(task)} already`
    : epoch === current
      ? 'its lease has ended or belongs to another worker'
      : `its epoch is ${String(current)} by now`;
  return { kind: 'stale', detail: `epoch ${String(epoch)} of ${taskId} is not in force: ${why}` };
}

const jobOpen = (task: Task): Decision => ({
  kind: 'refused',
  problem: {
    code: 'job_open',
    message: `an earlier job of ${taskContextOf(task).taskId} is still open: ${taskContextOf(task)
      .openJobs.map((job) => job.jobId)
      .join(', ')}`,
    hint: 'see to its end and report it as closed, then repeat this',
  },
});

/** The next lease, or `refused` if the task does not wait, or waits for a worker of another site (INV-3). */
export function decideLease(task: Task, worker: WorkerIdentity, atMs: number): Decision {
  const leased: TaskMachineEvent = {
    type: 'task.leased',
    v: 1,
    atMs,
    epoch: Epoch.parse(taskContextOf(task).epoch + 1),
    workerId: worker.id,
    worker: worker.name,
    site: worker.site,
  };
  return canTake(task, leased) ? append(leased) : ALREADY;
}

export function decideReport(task: Task, worker: WorkerIdentity, item: ProgressItem, atMs: number): Decision {
  const { openJobs, jobs, progress } = taskContextOf(task);
  if (item.type === 'closed') {
    const { jobId, phase, reason } = item;
    const open = openJobs.find((job) => job.jobId === jobId);
    if (open === undefined || isTaskOver(task)) return ALREADY;
    if (open.site !== worker.site) return { kind: 'stale', detail: `${jobId} runs at another site` };
    return append({ type: 'task.jobClosed', v: 1, atMs, jobId, phase, reason });
  }
  const { epoch } = item;
  if (!holds(task, worker, epoch)) return stale(task, epoch);
  switch (item.type) {
    case 'opened': {
      const { jobId, token } = item;
      if (openJobs.some((job) => job.jobId === jobId) || jobs.some((job) => job.jobId === jobId)) return ALREADY;
      if (openJobs.some((job) => job.epoch === epoch)) return jobOpen(task);
      // It cannot see what is open where it was before (INV-3).
      if (liveLeaseOf(task)?.site !== worker.site)
        return { kind: 'stale', detail: `epoch ${String(epoch)} was given at another site` };
      const job = { jobId, token, epoch, worker: worker.name, site: worker.site };
      return append({ type: 'task.jobOpened', v: 1, atMs, job });
    }
    case 'progressed': {
      const { jobId, phase, reason, detail } = item;
      const same =
        progress?.jobId === jobId &&
        progress.phase === phase &&
        progress.reason === reason &&
        progress.detail === detail;
      if (same) return ALREADY;
      return append({ type: 'task.progressed', v: 1, atMs, epoch, jobId, phase, reason, detail });
    }
    case 'released':
      return append({ type: 'task.released', v: 1, atMs, epoch, detail: item.detail });
  }
}

/**
 * A job that was cancelled because it lost its lease or was a duplicate is nobody's change of mind: for the task it is a
 * loss, and the task is tried again.
 */
function outcomeEvent(task: Task, request: OutcomeRequest, atMs: number): TaskOutcome {
  const { epoch } = request;
  switch (request.type) {
    case 'completed':
      return {
        type: 'task.completed',
        v: 1,
        atMs,
        epoch,
        jobId: request.jobId,
        result: request.result,
        warnings: request.warnings,
      };
    case 'failed':
      return {
        type: 'task.failed',
        v: 1,
        atMs,
        epoch,
        jobId: request.jobId,
        reason: request.reason,
        detail: request.detail,
      };
    case 'cancelled': {
      const { jobId, reason } = request;
      const ourVerdict = reason === 'LEASE_LOST' || reason === 'DUPLICATE';
      return ourVerdict && jobId !== null && taskContextOf(task).cancel === null
        ? { type: 'task.lost', v: 1, atMs, epoch, jobId, reason, detail: 'cancelled, though nobody wished it' }
        : { type: 'task.cancelled', v: 1, atMs, epoch, jobId, reason };
    }
    case 'lost':
      return {
        type: 'task.lost',
        v: 1,
        atMs,
        epoch,
        jobId: request.jobId,
        reason: request.reason,
        detail: request.detail,
      };
  }
}

/** The end of a lease. The same job's outcome, repeated, is `already`, also after the task went on. */
export function decideOutcome(task: Task, worker: WorkerIdentity, request: OutcomeRequest, atMs: number): Decision {
  const { outcome, openJobs } = taskContextOf(task);
  const event = outcomeEvent(task, request, atMs);
  const repeated =
    outcome?.workerId === worker.id &&
    outcome.epoch === request.epoch &&
    outcome.jobId === request.jobId &&
    `task.${outcome.type}` === event.type;
  if (repeated) return ALREADY;
  if (!holds(task, worker, request.epoch)) return stale(task, request.epoch);
  return openJobs.every((job) => job.jobId === request.jobId) ? append(event) : jobOpen(task);
}

export function decideExpiry(task: Task, epoch: number, atMs: number): Decision {
  const lease = liveLeaseOf(task);
  if (lease?.epoch !== epoch) return ALREADY;
  return append({ type: 'task.leaseExpired', v: 1, atMs, epoch: lease.epoch });
}

/** A lease that its worker has never heard of: the answer with the grant was lost on its way. */
export function decideUnclaimed(task: Task, epoch: number, atMs: number): Decision {
  const lease = liveLeaseOf(task);
  if (lease?.epoch !== epoch) return ALREADY;
  const detail = clip(`worker ${lease.worker} does not know of this lease: the answer with it was lost`);
  return append({ type: 'task.released', v: 1, atMs, epoch: lease.epoch, detail });
}

export interface Wisher {
  readonly name: string;
  readonly asAdmin: boolean;
}

export function decideCancel(task: Task, { name, asAdmin }: Wisher, atMs: number): Decision {
  const wish: TaskMachineEvent = { type: 'task.cancelRequested', v: 1, atMs, by: name, asAdmin };
  return canTake(task, wish) ? append(wish) : ALREADY;
}

export function decideAbandon(task: Task, { name }: Wisher, atMs: number): Decision {
  const wish: TaskMachineEvent = { type: 'task.abandonRequested', v: 1, atMs, by: name };
  return canTake(task, wish) ? append(wish) : ALREADY;
}
