import type { Clock } from '../../src/runtime/clock.js';

interface Timer {
  readonly atMs: number;
  readonly sequence: number;
  readonly run: () => void;
  cancelled: boolean;
}

const isBefore = (a: Timer, b: Timer): boolean => a.atMs < b.atMs || (a.atMs === b.atMs && a.sequence < b.sequence);

/** True time of the world, ms from its beginning: a heap of what is to happen. Nothing waits for real time. */
export class VirtualTime {
  #nowMs = 0;
  #sequence = 0;
  readonly #heap: Timer[] = [];

  get nowMs(): number {
    return this.#nowMs;
  }

  /** Runs `run` after `ms`; what is due at one moment runs in the order in which it was asked for. Returns a cancel. */
  after(ms: number, run: () => void): () => void {
    const timer: Timer = {
      atMs: this.#nowMs + Math.max(0, Math.ceil(ms)),
      sequence: (this.#sequence += 1),
      run,
      cancelled: false,
    };
    this.#push(timer);
    return () => {
      timer.cancelled = true;
    };
  }

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.after(ms, resolve);
    });
  }

  /** Moves to the next moment at which something happens and lets it happen. False: nothing ever happens again. */
  step(): boolean {
    let first = this.#pop();
    while (first?.cancelled === true) first = this.#pop();
    if (first === null) return false;
    this.#nowMs = first.atMs;
    first.run();
    for (let next = this.#heap[0]; next !== undefined && next.atMs === this.#nowMs; next = this.#heap[0]) {
      this.#pop();
      if (!next.cancelled) next.run();
    }
    return true;
  }

  #push(timer: Timer): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(timer);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !isBefore(timer, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = timer;
  }

  #pop(): Timer | null {
    const heap = this.#heap;
    const [first] = heap;
    const last = heap.pop();
    if (first === undefined || last === undefined) return null;
    if (heap.length === 0) return first;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      let below = heap[child];
      const right = heap[child + 1];
      if (below === undefined) break;
      if (right !== undefined && isBefore(right, below)) {
        below = right;
        child += 1;
      }
      if (!isBefore(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
    return first;
  }
}

/** When the world begins: Unix epoch ms. */
export const EPOCH_MS = 1_800_000_000_000;

/**
 * A host's clock. Its wall clock may step; monotonic time never notices. Timers fire on a grain, as on a busy host: that
 * also keeps the number of moments in which something happens, and with it the cost of a world, small.
 */
export class HostClock implements Clock {
  readonly #time: VirtualTime;
  readonly #grainMs: () => number;
  #offsetMs = 0;

  constructor(time: VirtualTime, grainMs: () => number) {
    this.#time = time;
    this.#grainMs = grainMs;
  }

  get offsetMs(): number {
    return this.#offsetMs;
  }

  nowMs(): number {
    return EPOCH_MS + this.#time.nowMs + this.#offsetMs;
  }

  monotonicMs(): number {
    return this.#time.nowMs;
  }

  step(ms: number): void {
    this.#offsetMs += ms;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted === true) {
        resolve();
        return;
      }
      const grainMs = this.#grainMs();
      const nowMs = this.#time.nowMs;
      const dueMs = Math.ceil((nowMs + Math.max(1, ms)) / grainMs) * grainMs;
      const finish = (): void => {
        cancel();
        signal?.removeEventListener('abort', finish);
        resolve();
      };
      const cancel = this.#time.after(dueMs - nowMs, finish);
      signal?.addEventListener('abort', finish, { once: true });
    });
  }
}
