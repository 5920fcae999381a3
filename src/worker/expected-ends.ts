import type { JobId } from '../machines/vocabulary.js';

/** How long a job that is about to end makes the polls come quickly, ms; one that is stuck in ending does no more. */
const QUICK_MS = 30_000;

/**
 * Jobs that have left their end marker, or are being cleaned up, and that the backend still shows as alive: the next
 * poll may be the one that shows the end. Times are monotonic ms.
 */
export class ExpectedEnds {
  readonly #untilMs = new Map<JobId, number>();

  /** The job left its end marker. */
  marked(jobId: JobId, nowMs: number): void {
    this.#untilMs.set(jobId, nowMs + QUICK_MS);
  }

  /** The backend said that the job is ending; saying so again prolongs nothing. */
  seenEnding(jobId: JobId, nowMs: number): void {
    if (!this.#untilMs.has(jobId)) this.marked(jobId, nowMs);
  }

  /** Whether an end is worth asking for at once. Forgets the jobs that `isAwaited` denies. */
  isDue(isAwaited: (jobId: JobId) => boolean, nowMs: number): boolean {
    let due = false;
    for (const [jobId, untilMs] of this.#untilMs) {
      if (!isAwaited(jobId)) this.#untilMs.delete(jobId);
      else if (nowMs < untilMs) due = true;
    }
    return due;
  }
}
