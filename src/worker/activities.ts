import type { JobId } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';

const RETRY_MS = { first: 1_000, max: 60_000 } as const;

/** `again`: it could not be done now (the detail says why) and is tried again later, with back-off. */
export type ActivityResult = { readonly kind: 'done' } | { readonly kind: 'again'; readonly detail: string };

export const DONE: ActivityResult = { kind: 'done' };
export const again = (detail: string): ActivityResult => ({ kind: 'again', detail });

/**
 * What is being done for jobs right now: at most one activity per job, at most so many of one kind, and a back-off
 * for those that did not work out. One bad job never stops the others.
 */
export class Activities {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #onEnd: (error: unknown) => void;
  readonly #busy = new Map<JobId, Promise<void>>();
  readonly #running = new Map<string, number>();
  readonly #retries = new Map<JobId, { readonly count: number; readonly atMs: number }>();

  /** `onEnd` is told what was thrown, or null. */
  constructor(clock: Clock, log: Log, onEnd: (error: unknown) => void) {
    this.#clock = clock;
    this.#log = log;
    this.#onEnd = onEnd;
  }

  isBusy(jobId: JobId): boolean {
    return this.#busy.has(jobId);
  }

  /** Monotonic ms of the earliest retry that is waiting, or null. */
  nextRetryAtMs(): number | null {
    let next: number | null = null;
    for (const { atMs } of this.#retries.values()) next = next === null ? atMs : Math.min(next, atMs);
    return next;
  }

  /** Starts the activity unless the job is busy, waits for its retry, or the kind has no room. */
  start(kind: string, limit: number, jobId: JobId, run: () => Promise<ActivityResult>): boolean {
    const running = this.#running.get(kind) ?? 0;
    const retry = this.#retries.get(jobId);
    if (this.#busy.has(jobId) || running >= limit) return false;
    if (retry !== undefined && retry.atMs > this.#clock.monotonicMs()) return false;
    this.#running.set(kind, running + 1);
    this.#busy.set(jobId, this.#follow(kind, jobId, run));
    return true;
  }

  /** Resolves when nothing is being done any more. */
  async idle(): Promise<void> {
    while (this.#busy.size > 0) await Promise.all(this.#busy.values());
  }

  async #follow(kind: string, jobId: JobId, run: () => Promise<ActivityResult>): Promise<void> {
    let thrown: unknown = null;
    try {
      const result = await run();
      if (result.kind === 'done') this.#retries.delete(jobId);
      else this.#retryLater(kind, jobId, result.detail);
    } catch (error) {
      thrown = error;
      this.#retryLater(kind, jobId, error instanceof Error ? error.message : String(error));
    } finally {
      this.#busy.delete(jobId);
      this.#running.set(kind, (this.#running.get(kind) ?? 1) - 1);
      this.#onEnd(thrown);
    }
  }

  #retryLater(kind: string, jobId: JobId, detail: string): void {
    const count = (this.#retries.get(jobId)?.count ?? 0) + 1;
    const waitMs = Math.min(RETRY_MS.max, RETRY_MS.first * 2 ** (count - 1));
    this.#retries.set(jobId, { count, atMs: this.#clock.monotonicMs() + waitMs });
    this.#log.warn(
      { jobId, activity: kind, attempt: count, retryInMs: waitMs, detail },
      `could not ${kind}, trying again`,
    );
  }
}
