import type { TaskId } from '../machines/vocabulary.js';

interface Entry {
  readonly workerId: string;
  readonly epoch: number;
  /** Monotonic ms. */
  untilMs: number;
  /** Since when the worker could have spoken of it: the grant, the coordinator's start, or the worker's own. */
  sinceMs: number;
  /** The worker has spoken of it since. */
  claimed: boolean;
}

export interface TableLease {
  readonly taskId: TaskId;
  readonly workerId: string;
  readonly epoch: number;
}

/**
 * Until when each lease holds. Renewals are not events: this lives in memory, with monotonic times, and every lease
 * starts afresh when the coordinator does.
 */
export class LeaseTable {
  readonly #entries = new Map<TaskId, Entry>();
  readonly #byWorker = new Map<string, Set<TaskId>>();
  readonly #ttlMs: number;

  constructor(ttlMs: number) {
    this.#ttlMs = ttlMs;
  }

  get size(): number {
    return this.#entries.size;
  }

  heldBy(workerId: string): ReadonlySet<TaskId> {
    return this.#byWorker.get(workerId) ?? new Set();
  }

  hold({ taskId, workerId, epoch }: TableLease, nowMs: number): void {
    this.drop(taskId);
    this.#entries.set(taskId, { workerId, epoch, untilMs: nowMs + this.#ttlMs, sinceMs: nowMs, claimed: false });
    const held = this.#byWorker.get(workerId);
    if (held === undefined) this.#byWorker.set(workerId, new Set([taskId]));
    else held.add(taskId);
  }

  drop(taskId: TaskId): void {
    const entry = this.#entries.get(taskId);
    if (entry === undefined) return;
    this.#entries.delete(taskId);
    const held = this.#byWorker.get(entry.workerId);
    held?.delete(taskId);
    if (held?.size === 0) this.#byWorker.delete(entry.workerId);
  }

  /** False: not this worker's, or at another epoch (INV-7). */
  renew({ taskId, workerId, epoch }: TableLease, nowMs: number): boolean {
    const entry = this.#entries.get(taskId);
    if (entry?.workerId !== workerId || entry.epoch !== epoch) return false;
    entry.untilMs = nowMs + this.#ttlMs;
    entry.claimed = true;
    return true;
  }

  /** The worker spoke of this lease, so it knows of it. */
  claim(taskId: TaskId, epoch: number): void {
    const entry = this.#entries.get(taskId);
    if (entry?.epoch === epoch) entry.claimed = true;
  }

  /** The worker has started anew: it has to speak of its leases again. */
  forgetClaims(workerId: string, nowMs: number): void {
    for (const entry of this.#of(workerId)) {
      entry.claimed = false;
      entry.sinceMs = nowMs;
    }
  }

  /** Leases that the worker has not spoken of for `graceMs`, though it speaks of others: their grant never arrived. */
  unclaimed(workerId: string, nowMs: number, graceMs: number): readonly TableLease[] {
    const found: TableLease[] = [];
    for (const taskId of this.heldBy(workerId)) {
      const entry = this.#entries.get(taskId);
      if (entry !== undefined && !entry.claimed && nowMs - entry.sinceMs >= graceMs) {
        found.push({ taskId, workerId, epoch: entry.epoch });
      }
    }
    return found;
  }

  expired(nowMs: number): readonly TableLease[] {
    const found: TableLease[] = [];
    for (const [taskId, { workerId, epoch, untilMs }] of this.#entries) {
      if (untilMs <= nowMs) found.push({ taskId, workerId, epoch });
    }
    return found;
  }

  /** For the time in which the coordinator itself stood still, nobody could renew. */
  extendAll(byMs: number): void {
    for (const entry of this.#entries.values()) entry.untilMs += byMs;
  }

  *#of(workerId: string): Iterable<Entry> {
    for (const taskId of this.heldBy(workerId)) {
      const entry = this.#entries.get(taskId);
      if (entry !== undefined) yield entry;
    }
  }
}
