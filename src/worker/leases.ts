import type { HeldLease, RenewAnswer } from '../coordinator/worker-api.js';
import type { Epoch, TaskId } from '../machines/vocabulary.js';

interface Lease {
  readonly epoch: Epoch;
  /** Monotonic ms until which the coordinator gives this task to nobody else. */
  untilMs: number;
  marginMs: number;
}

/**
 * A submission must not start so shortly before the lease ends that another worker could have the task by then. Never
 * more than this part of the lease's own time: with a short one nothing would ever start.
 */
const MARGIN_MS = 10_000;
const MARGINS_PER_TTL = 4;
/** Not held. A whole number here would make V8 lay out every lease anew when the first time is set. */
const NEVER_MS = Number.NEGATIVE_INFINITY;

/** The leases this worker believes to hold. Time is monotonic ms. */
export class Leases {
  readonly #held = new Map<TaskId, Lease>();

  /** `sentAtMs`: before the call that granted it was sent. */
  hold(taskId: TaskId, epoch: Epoch, sentAtMs: number, ttlMs: number): void {
    this.#held.set(taskId, { epoch, untilMs: sentAtMs + ttlMs, marginMs: marginOf(ttlMs) });
  }

  /** Known from the log after a restart: to be renewed before anything is started under it. The newest epoch counts. */
  remember(taskId: TaskId, epoch: Epoch): void {
    const known = this.#held.get(taskId);
    if (known === undefined || known.epoch < epoch) this.#held.set(taskId, { epoch, untilMs: NEVER_MS, marginMs: 0 });
  }

  drop(taskId: TaskId, epoch: Epoch): void {
    if (this.#held.get(taskId)?.epoch === epoch) this.#held.delete(taskId);
  }

  epochOf(taskId: TaskId): Epoch | null {
    return this.#held.get(taskId)?.epoch ?? null;
  }

  list(): readonly HeldLease[] {
    return [...this.#held].map(([taskId, { epoch }]) => ({ taskId, epoch }));
  }

  /** Whether a submission may start now (INV-3, INV-7). */
  maySubmit(taskId: TaskId, epoch: Epoch, nowMs: number): boolean {
    const lease = this.#held.get(taskId);
    return lease?.epoch === epoch && nowMs + lease.marginMs < lease.untilMs;
  }

  renewed(sent: readonly HeldLease[], answer: RenewAnswer, sentAtMs: number): void {
    const lost = new Set(answer.lost);
    const marginMs = marginOf(answer.ttlMs);
    for (const { taskId, epoch } of sent) {
      const lease = this.#held.get(taskId);
      if (lease?.epoch !== epoch) continue;
      if (lost.has(taskId)) {
        this.#held.delete(taskId);
        continue;
      }
      // In place: there may be 100,000.
      lease.untilMs = sentAtMs + answer.ttlMs;
      lease.marginMs = marginMs;
    }
  }
}

const marginOf = (ttlMs: number): number => Math.min(MARGIN_MS, ttlMs / MARGINS_PER_TTL);
