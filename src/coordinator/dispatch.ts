import type { TaskId } from '../machines/vocabulary.js';

/** A task that waits for a worker. `position`: of its submission in the log; the order in which tasks are given out. */
export interface Waiting {
  readonly taskId: TaskId;
  readonly position: number;
  readonly kind: string;
  readonly profile: string | null;
  /** A job of it is open: only a worker of this site may take it (INV-3). */
  readonly site: string | null;
}

/** What a worker can take: the keys of the queues that fit it. */
export type Offer = ReadonlySet<string>;

const keyOf = (kind: string, profile: string | null, site: string | null): string =>
  JSON.stringify([kind, profile, site]);

interface OfferedNames {
  readonly name: string;
  /** Kinds that the profile serves. */
  readonly kinds: readonly string[];
}

/** `namesProfile`: whether payloads of this kind name a profile, so that one of the offered ones has to serve it. */
export function offerOf(
  kinds: readonly string[],
  profiles: readonly OfferedNames[],
  site: string,
  namesProfile: (kind: string) => boolean,
): Offer {
  const keys = new Set<string>();
  for (const kind of kinds) {
    const serving = profiles.filter((profile) => profile.kinds.includes(kind)).map(({ name }) => name);
    for (const profile of namesProfile(kind) ? serving : [null]) {
      keys.add(keyOf(kind, profile, null));
      keys.add(keyOf(kind, profile, site));
    }
  }
  return keys;
}

/** Whether a worker with this offer may take the task. */
export const fits = (offer: Offer, { kind, profile, site }: Waiting): boolean => offer.has(keyOf(kind, profile, site));

interface Entry extends Waiting {
  readonly key: string;
  gone: boolean;
}

/** In the order of position; entries are marked as gone and dropped when they come to the front. */
class Queue {
  #entries: Entry[] = [];
  #head = 0;

  add(entry: Entry): void {
    let at = this.#entries.length;
    while (at > this.#head && (this.#entries[at - 1]?.position ?? 0) > entry.position) at -= 1;
    if (at === this.#entries.length) this.#entries.push(entry);
    else this.#entries.splice(at, 0, entry);
  }

  first(): Entry | null {
    while (this.#entries[this.#head]?.gone === true) this.#head += 1;
    if (this.#head > 1024 && this.#head * 2 > this.#entries.length) {
      this.#entries = this.#entries.slice(this.#head);
      this.#head = 0;
    }
    return this.#entries[this.#head] ?? null;
  }
}

interface Waiter {
  readonly offer: Offer;
  readonly wake: () => void;
}

/** Who waits for whom: tasks for workers, oldest first, and workers (long polls) for tasks. */
export class Dispatch {
  readonly #queues = new Map<string, Queue>();
  readonly #entries = new Map<TaskId, Entry>();
  readonly #waiters = new Set<Waiter>();
  readonly #held = new Map<TaskId, { readonly waiting: Waiting; readonly untilMs: number }>();

  /** Tasks that could be given out now. */
  get size(): number {
    return this.#entries.size;
  }

  add(waiting: Waiting): void {
    this.remove(waiting.taskId);
    const key = keyOf(waiting.kind, waiting.profile, waiting.site);
    const entry: Entry = { ...waiting, key, gone: false };
    const queue = this.#queues.get(key) ?? new Queue();
    this.#queues.set(key, queue);
    queue.add(entry);
    this.#entries.set(waiting.taskId, entry);
    this.#wakeFor(key);
  }

  /** Not before `untilMs` (monotonic): a worker has just given it back. */
  addLater(waiting: Waiting, untilMs: number): void {
    this.remove(waiting.taskId);
    this.#held.set(waiting.taskId, { waiting, untilMs });
  }

  remove(taskId: TaskId): void {
    this.#held.delete(taskId);
    const entry = this.#entries.get(taskId);
    if (entry === undefined) return;
    entry.gone = true;
    this.#entries.delete(taskId);
    if (this.#queues.get(entry.key)?.first() === null) this.#queues.delete(entry.key);
  }

  /** The oldest tasks that fit, at most `count`; they are out of the queue until they are added again. */
  take(offer: Offer, count: number): readonly TaskId[] {
    const queues: Queue[] = [];
    for (const key of offer.size < this.#queues.size ? offer : this.#queues.keys()) {
      const queue = offer.has(key) ? this.#queues.get(key) : undefined;
      if (queue !== undefined) queues.push(queue);
    }
    const taken: TaskId[] = [];
    while (taken.length < count) {
      let oldest: Entry | null = null;
      for (const queue of queues) {
        const first = queue.first();
        if (first !== null && (oldest === null || first.position < oldest.position)) oldest = first;
      }
      if (oldest === null) break;
      this.remove(oldest.taskId);
      taken.push(oldest.taskId);
    }
    return taken;
  }

  /** Lets those go whose time has come. */
  tick(nowMs: number): void {
    for (const { waiting, untilMs } of [...this.#held.values()]) if (untilMs <= nowMs) this.add(waiting);
  }

  /** Resolves when a task that fits turns up, or when the signal aborts. */
  wait(offer: Offer, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#waiters.delete(waiter);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      const waiter: Waiter = { offer, wake };
      if (signal.aborted) {
        resolve();
        return;
      }
      this.#waiters.add(waiter);
      signal.addEventListener('abort', wake, { once: true });
    });
  }

  /** A worker that was woken goes away without having taken what woke it: the next one gets a chance. */
  passOn(offer: Offer): void {
    for (const key of offer) if ((this.#queues.get(key)?.first() ?? null) !== null) this.#wakeFor(key);
  }

  wakeAll(): void {
    for (const { wake } of [...this.#waiters]) wake();
  }

  #wakeFor(key: string): void {
    for (const waiter of this.#waiters) {
      if (!waiter.offer.has(key)) continue;
      waiter.wake();
      return;
    }
  }
}
