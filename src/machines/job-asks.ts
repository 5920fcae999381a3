import { contextOf, phaseOf, type Job } from './job-aggregate.js';
import type { JobContext } from './job-context.js';

/** The one next thing that a job asks the worker's loop for. */
export type Ask =
  /** Send the submission (nothing is open, its time has come). */
  | 'submit'
  /** An attempt is on record without an outcome: a worker stopped in between. */
  | 'closeAttempt'
  /** See that no process of the lost attempt is left. */
  | 'endAttempt'
  /** The backend reported completion: read the result. */
  | 'collect'
  /** Tell the coordinator how it ended. */
  | 'deliver'
  | 'removeDirectory'
  /** Nothing but to be observed, or to wait for a time. */
  | 'none';

/**
 * Pure; `nowMs` is Unix epoch ms. `closeAttempt` is only right for a job that nothing is being done for at the moment:
 * the caller knows which ones are busy.
 */
export function askOf(job: Job, nowMs: number, keepDirectoryMs: number): Ask {
  const context = contextOf(job);
  switch (phaseOf(job)) {
    case 'Submitting':
      if (context.attempt?.open === true) return 'closeAttempt';
      return nowMs >= Math.max(context.notBeforeMs, nextAttemptAtMs(context)) ? 'submit' : 'none';
    case 'Unknown':
      return context.lookup?.endedAtMs === null ? 'endAttempt' : 'none';
    case 'Pending':
    case 'Running':
      return context.completion === null ? 'none' : 'collect';
    case 'Completed':
    case 'Failed':
    case 'Cancelled':
    case 'Lost':
      if (!job.aftermath.delivered) return endsAlone(job) ? 'deliver' : 'none';
      if (job.aftermath.directoryRemoved) return 'none';
      return nowMs >= removeAtMs(job, keepDirectoryMs) ? 'removeDirectory' : 'none';
  }
}

/**
 * Whether the end may be announced: while another job with its token lives, a job without a result is not over for
 * anybody else (INV-3). Whoever abandons it does not wait.
 */
const endsAlone = (job: Job): boolean =>
  phaseOf(job) === 'Completed' || contextOf(job).reason === 'ABANDONED' || job.aftermath.duplicates.length === 0;

const ATTEMPT_PAUSE_MS = { first: 5_000, max: 600_000 } as const;

/**
 * Submissions that came to nothing, one after the other, are further and further apart: what keeps the backend from
 * taking them may last. Unix epoch ms.
 */
function nextAttemptAtMs({ attempt }: JobContext): number {
  if (attempt === null || attempt.number < 1) return 0;
  return attempt.startedAtMs + Math.min(ATTEMPT_PAUSE_MS.max, ATTEMPT_PAUSE_MS.first * 2 ** (attempt.number - 1));
}

/** A directory goes when its result was taken; else it is kept for a while: it may hold the only copy of days of work. */
export function removeAtMs(job: Job, keepDirectoryMs: number): number {
  const endedAtMs = contextOf(job).endedAtMs ?? 0;
  return phaseOf(job) === 'Completed' && job.aftermath.accepted ? endedAtMs : endedAtMs + keepDirectoryMs;
}

/** To be asked about at the backend: everything that may be there. */
export function isWatched(job: Job): boolean {
  switch (phaseOf(job)) {
    case 'Unknown':
      return true;
    case 'Pending':
    case 'Running':
      return contextOf(job).completion === null || job.aftermath.duplicates.length > 0;
    default:
      return job.aftermath.duplicates.length > 0;
  }
}

/** The wish to cancel has to be sent (again) now. While Unknown there is nothing yet that it could be sent to. */
export function isCancelDue(job: Job, nowMs: number): boolean {
  const { cancel, completion } = contextOf(job);
  const phase = phaseOf(job);
  return (
    cancel !== null && completion === null && (phase === 'Pending' || phase === 'Running') && nowMs >= cancel.nextAtMs
  );
}

/** Nothing is left to do or to watch: the job may leave memory. */
export function isSettled(job: Job): boolean {
  const { delivered, directoryRemoved, duplicates } = job.aftermath;
  return delivered && directoryRemoved && duplicates.length === 0;
}
