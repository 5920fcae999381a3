import { createFold } from './fold.js';
import type { JobContext } from './job-context.js';
import type { AftermathEvent, DuplicateEvent, JobCreated, JobEvent } from './job-events.js';
import { jobMachine, type JobSnapshot } from './job.js';
import {
  isTerminalPhase,
  sameHandle,
  type Epoch,
  type Handle,
  type JobId,
  type Phase,
  type TaskId,
  type Token,
} from './vocabulary.js';

/** What is done, and what came in, beside the job's phase: it may still change after the end (INV-6). */
export interface Aftermath {
  readonly delivered: boolean;
  /** It was delivered, and taken. */
  readonly accepted: boolean;
  readonly directoryRemoved: boolean;
  /** Backend jobs that carry our token but are not ours: to be cancelled until they are seen to have ended. */
  readonly duplicates: readonly Handle[];
  readonly lateObservations: number;
}

/** A job as its stream tells it. `version` is that of the last folded event. */
export interface Job {
  readonly snapshot: JobSnapshot;
  readonly aftermath: Aftermath;
  readonly version: number;
}

/** The log says something that this state cannot take: the log is corrupt, or a writer is wrong (INV-12). */
export class IllegalEventError extends Error {
  override readonly name = 'IllegalEventError';
}

const SAMPLE_INPUT: JobCreated = {
  type: 'job.created',
  v: 1,
  atMs: 0,
  jobId: 'job_00000000000000000000000000' as JobId,
  taskId: 'task_00000000000000000000000000' as TaskId,
  epoch: 1 as Epoch,
  token: '00000000000000000000000000' as Token,
  kind: 'sample',
  profile: 'sample',
  inherited: false,
  parameters: null,
  watchUntilMs: null,
  policy: { settleMs: 0, looks: 1, sources: ['queue'], lossGraceMs: 0, lossLooks: 1, heldFailsAfterMs: null },
};

const fold = createFold(jobMachine, SAMPLE_INPUT);

export const phaseOf = (job: Job): Phase => job.snapshot.value;
export const contextOf = (job: Job): JobContext => job.snapshot.context;
export const isTerminal = (job: Job): boolean => isTerminalPhase(job.snapshot.value);

export function createJob(created: JobCreated): Job {
  return {
    snapshot: fold.initial(created),
    aftermath: { delivered: false, accepted: false, directoryRemoved: false, duplicates: [], lateObservations: 0 },
    version: 1,
  };
}

/**
 * Folds one stored event. Throws `IllegalEventError` if the state cannot take it: XState silently keeps the state on an
 * event without a transition, and that would hide a corrupt log.
 */
export function evolveJob(job: Job | null, event: JobEvent): Job {
  if (event.type === 'job.created') {
    if (job !== null) throw illegal(job, event);
    return createJob(event);
  }
  if (job === null) throw new IllegalEventError(`${event.type} before job.created`);
  const version = job.version + 1;
  switch (event.type) {
    case 'outcome.delivered':
    case 'directory.removed':
    case 'late.observed':
    case 'duplicate.ended':
      return { ...job, version, aftermath: evolveAftermath(job, event) };
    case 'duplicate.found': {
      const aftermath = evolveAftermath(job, event);
      const snapshot = isTerminal(job) ? job.snapshot : fold.next(job.snapshot, event);
      if (!isTerminal(job) && snapshot === job.snapshot) throw illegal(job, event);
      return { snapshot, aftermath, version };
    }
    default: {
      const snapshot = fold.next(job.snapshot, event);
      if (snapshot === job.snapshot) throw illegal(job, event);
      return { snapshot, aftermath: job.aftermath, version };
    }
  }
}

function evolveAftermath(job: Job, event: AftermathEvent | DuplicateEvent): Aftermath {
  const { aftermath } = job;
  switch (event.type) {
    case 'duplicate.found': {
      const fresh = event.cancel.filter((handle) => !aftermath.duplicates.some((known) => sameHandle(known, handle)));
      return { ...aftermath, duplicates: [...aftermath.duplicates, ...fresh] };
    }
    case 'duplicate.ended':
      return { ...aftermath, duplicates: aftermath.duplicates.filter((known) => !sameHandle(known, event.handle)) };
    case 'outcome.delivered':
      if (!isTerminal(job) || aftermath.delivered) throw illegal(job, event);
      return { ...aftermath, delivered: true, accepted: event.accepted };
    case 'directory.removed':
      if (!isTerminal(job) || aftermath.directoryRemoved) throw illegal(job, event);
      return { ...aftermath, directoryRemoved: true };
    case 'late.observed':
      if (!isTerminal(job)) throw illegal(job, event);
      return { ...aftermath, lateObservations: aftermath.lateObservations + 1 };
  }
}

const illegal = (job: Job, event: JobEvent): IllegalEventError =>
  new IllegalEventError(
    `${event.type} is illegal in ${job.snapshot.value} (${job.snapshot.context.jobId}, after version ${String(job.version)})`,
  );

/** Replays a whole stream. Throws on an empty one. */
export function foldJob(events: Iterable<JobEvent>): Job {
  let job: Job | null = null;
  for (const event of events) job = evolveJob(job, event);
  if (job === null) throw new IllegalEventError('a job stream without events');
  return job;
}

/** What a checkpoint keeps of a job: plain JSON. */
export interface StoredJob {
  readonly phase: Phase;
  readonly context: JobContext;
  readonly aftermath: Aftermath;
  readonly version: number;
}

export const storeJob = (job: Job): StoredJob => ({
  phase: job.snapshot.value,
  context: job.snapshot.context,
  aftermath: job.aftermath,
  version: job.version,
});

export const restoreJob = (stored: StoredJob): Job => ({
  snapshot: fold.restore(stored.phase, stored.context),
  aftermath: stored.aftermath,
  version: stored.version,
});
