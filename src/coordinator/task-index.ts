import { TASK_PHASES, type TaskPhase } from '../machines/task-events.js';
import type { TaskId } from '../machines/vocabulary.js';

/** One line of the list of tasks. `position`: of its submission in the log. */
export interface IndexEntry {
  readonly position: number;
  readonly taskId: TaskId;
  readonly by: string;
  readonly isSession: boolean;
  phase: TaskPhase;
}

const OVER: ReadonlySet<TaskPhase> = new Set(['Completed', 'Failed', 'Cancelled', 'DeadLetter']);

export interface PageQuery {
  readonly phase: TaskPhase | null;
  /** Entries before this position only; null starts at the newest. */
  readonly before: number | null;
  readonly limit: number;
  readonly visible: (by: string) => boolean;
}

export interface SessionPageQuery {
  /** Also those that are over. */
  readonly all: boolean;
  readonly limit: number;
  readonly visible: (by: string) => boolean;
}

/**
 * All tasks that go on, and the newest of those that are over, in the order of submission: about 100 bytes each. What
 * has fallen out is still found by its id.
 */
export class TaskIndex {
  #order: IndexEntry[] = [];
  readonly #byId = new Map<TaskId, IndexEntry>();
  readonly #counts = new Map<TaskPhase, number>(TASK_PHASES.map((phase) => [phase, 0]));
  readonly #finishedMax: number;
  #finished = 0;

  constructor(finishedMax: number) {
    this.#finishedMax = finishedMax;
  }

  /** Tasks by phase since the log began, also those that have fallen out of the index. */
  get counts(): ReadonlyMap<TaskPhase, number> {
    return this.#counts;
  }

  get entries(): readonly IndexEntry[] {
    return this.#order;
  }

  add(entry: IndexEntry): void {
    let at = this.#order.length;
    while (at > 0 && (this.#order[at - 1]?.position ?? 0) > entry.position) at -= 1;
    this.#order.splice(at, 0, entry);
    this.#byId.set(entry.taskId, entry);
    this.#count(entry.phase, 1);
    if (OVER.has(entry.phase)) this.#finished += 1;
  }

  restoreCounts(counts: Readonly<Partial<Record<TaskPhase, number>>>): void {
    for (const phase of TASK_PHASES) this.#counts.set(phase, counts[phase] ?? 0);
  }

  setPhase(taskId: TaskId, phase: TaskPhase): void {
    const entry = this.#byId.get(taskId);
    if (entry === undefined || entry.phase === phase) return;
    this.#count(entry.phase, -1);
    this.#count(phase, 1);
    entry.phase = phase;
    if (OVER.has(phase)) this.#finished += 1;
    if (this.#finished > this.#finishedMax * 1.1 + 1) this.#forgetOldest();
  }

  positionOf(taskId: TaskId): number | null {
    return this.#byId.get(taskId)?.position ?? null;
  }

  /** Newest first. */
  page({ phase, before, limit, visible }: PageQuery): readonly IndexEntry[] {
    return this.#newest(limit, (entry) => {
      if (before !== null && entry.position >= before) return false;
      return (phase === null || entry.phase === phase) && visible(entry.by);
    });
  }

  /** Sessions, newest first. */
  sessions({ all, limit, visible }: SessionPageQuery): readonly IndexEntry[] {
    return this.#newest(limit, ({ isSession, phase, by }) => isSession && (all || !OVER.has(phase)) && visible(by));
  }

  #newest(limit: number, wanted: (entry: IndexEntry) => boolean): readonly IndexEntry[] {
    const found: IndexEntry[] = [];
    for (let at = this.#order.length - 1; at >= 0 && found.length < limit; at -= 1) {
      const entry = this.#order[at];
      if (entry !== undefined && wanted(entry)) found.push(entry);
    }
    return found;
  }

  #count(phase: TaskPhase, by: number): void {
    this.#counts.set(phase, (this.#counts.get(phase) ?? 0) + by);
  }

  #forgetOldest(): void {
    let excess = this.#finished - this.#finishedMax;
    this.#order = this.#order.filter((entry) => {
      if (excess <= 0 || !OVER.has(entry.phase)) return true;
      excess -= 1;
      this.#finished -= 1;
      this.#byId.delete(entry.taskId);
      return false;
    });
  }
}
