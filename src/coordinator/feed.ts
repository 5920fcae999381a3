import type { EventStore } from '../events/store.js';
import { evolveTask, isTaskOver, taskContextOf, type Task } from '../machines/task-aggregate.js';
import type { TaskId } from '../machines/vocabulary.js';
import type { TaskChange } from './api.js';
import { isTaskEvent, streamOf, taskIdOf } from './task-book.js';
import { changeOf } from './views.js';

interface Entry {
  readonly by: string;
  readonly change: TaskChange;
}

export interface FollowQuery {
  /** null: all tasks. */
  readonly taskId: TaskId | null;
  /** Changes after this position. */
  readonly after: number;
  /** By the submitter's credential id. */
  readonly visible: (by: string) => boolean;
}

/**
 * The changes of all tasks in the order of the log. The newest are kept for everybody who follows; whoever is further
 * behind reads the log itself. Followers pull: a slow one costs a number, not a queue.
 */
export class Feed {
  readonly #store: EventStore;
  readonly #keep: number;
  #ring: Entry[] = [];
  /** The ring holds every change after this position. */
  #ringAfter: number;
  #head: number;
  #early: Entry[] = [];
  readonly #sleepers = new Set<() => void>();

  constructor(store: EventStore, headPosition: number, keep: number) {
    this.#store = store;
    this.#keep = keep;
    this.#head = headPosition;
    this.#ringAfter = headPosition;
  }

  /** Everything up to this position has been passed on. */
  get head(): number {
    return this.#head;
  }

  /** Answers to appends may arrive out of order; changes leave in the order of their positions. */
  add(by: string, change: TaskChange): void {
    this.#early.push({ by, change });
    if (change.position !== this.#head + 1) return;
    this.#sortEarly();
    let count = 0;
    while (this.#early[count]?.change.position === this.#head + 1) {
      this.#head += 1;
      count += 1;
    }
    this.#publish(this.#early.splice(0, count));
  }

  /** No append is under way: what is still missing in between belongs to other streams. */
  settle(): void {
    if (this.#early.length === 0) return;
    this.#sortEarly();
    this.#head = Math.max(this.#head, this.#early.at(-1)?.change.position ?? 0);
    this.#publish(this.#early.splice(0));
  }

  /** Ends when the signal aborts. Throws the store's errors. */
  async *follow({ taskId, after, visible }: FollowQuery, signal: AbortSignal): AsyncGenerator<TaskChange, void> {
    let cursor = after;
    const fits = ({ by, change }: Entry): boolean =>
      change.position > cursor && (taskId === null || change.taskId === taskId) && visible(by);
    while (!signal.aborted) {
      if (cursor >= this.#head) {
        await this.#sleep(signal);
        continue;
      }
      if (cursor >= this.#ringAfter) {
        const news = this.#ring.slice(this.#firstAfter(cursor));
        for (const entry of news) {
          if (isAborted(signal)) return;
          if (fits(entry)) yield entry.change;
          cursor = Math.max(cursor, entry.change.position);
        }
        if (news.length === 0) cursor = this.#head;
        continue;
      }
      const upTo = this.#head;
      for await (const entry of taskId === null ? this.#readLog(cursor, upTo) : this.#readTask(taskId)) {
        if (isAborted(signal)) return;
        if (entry.change.position > upTo) break;
        if (fits(entry)) yield entry.change;
        cursor = Math.max(cursor, entry.change.position);
      }
      cursor = Math.max(cursor, upTo);
    }
  }

  /** All changes of one task, from its beginning. */
  async historyOf(taskId: TaskId): Promise<TaskChange[]> {
    const changes: TaskChange[] = [];
    for await (const { change } of this.#readTask(taskId)) changes.push(change);
    return changes;
  }

  /** Lets all followers look at their signal. */
  wake(): void {
    for (const sleeper of [...this.#sleepers]) sleeper();
  }

  /** A task's whole history. */
  async *#readTask(taskId: TaskId): AsyncGenerator<Entry, void> {
    let task: Task | null = null;
    for (const { event, position } of await this.#store.readStream(streamOf(taskId))) {
      if (!isTaskEvent(event)) continue;
      task = evolveTask(task, event);
      yield { by: taskContextOf(task).by, change: changeOf(position, event, task) };
    }
  }

  async *#readLog(after: number, upTo: number): AsyncGenerator<Entry, void> {
    const tasks = new Map<TaskId, Task>();
    for await (const { stream, event, version, position } of this.#store.readAll(after)) {
      if (position > upTo) return;
      const taskId = taskIdOf(stream);
      if (taskId === null || !isTaskEvent(event)) continue;
      const before: Task | null =
        tasks.get(taskId) ?? (version === 1 ? null : await this.#foldUpTo(taskId, version - 1));
      const task = evolveTask(before, event);
      if (isTaskOver(task)) tasks.delete(taskId);
      else tasks.set(taskId, task);
      yield { by: taskContextOf(task).by, change: changeOf(position, event, task) };
    }
  }

  async #foldUpTo(taskId: TaskId, lastVersion: number): Promise<Task | null> {
    let task: Task | null = null;
    for (const { event, version } of await this.#store.readStream(streamOf(taskId))) {
      if (version > lastVersion) break;
      if (isTaskEvent(event)) task = evolveTask(task, event);
    }
    return task;
  }

  #sortEarly(): void {
    this.#early.sort((a, b) => a.change.position - b.change.position);
  }

  #publish(entries: readonly Entry[]): void {
    for (const entry of entries) this.#ring.push(entry);
    if (this.#ring.length > this.#keep * 2) {
      const dropped = this.#ring.length - this.#keep;
      this.#ringAfter = this.#ring[dropped - 1]?.change.position ?? this.#ringAfter;
      this.#ring = this.#ring.slice(dropped);
    }
    this.wake();
  }

  /** Index in the ring of the first entry after the position. */
  #firstAfter(position: number): number {
    let low = 0;
    let high = this.#ring.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#ring[middle]?.change.position ?? 0) > position) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  #sleep(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#sleepers.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      if (signal.aborted) {
        resolve();
        return;
      }
      this.#sleepers.add(wake);
      signal.addEventListener('abort', wake, { once: true });
    });
  }
}

/** It may have been aborted while somebody else had the turn. */
const isAborted = (signal: AbortSignal): boolean => signal.aborted;
