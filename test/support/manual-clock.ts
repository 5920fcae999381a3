import type { Clock } from '../../src/runtime/clock.js';

interface Sleeper {
  readonly atMs: number;
  readonly wake: () => void;
}

/** Time that moves only when it is told to. Wall time and monotonic time move together, apart from `step`. */
export class ManualClock implements Clock {
  #wallMs: number;
  #monotonicMs = 0;
  readonly #sleepers = new Set<Sleeper>();

  constructor(startMs = 1_800_000_000_000) {
    this.#wallMs = startMs;
  }

  nowMs(): number {
    return this.#wallMs;
  }

  monotonicMs(): number {
    return this.#monotonicMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted === true) {
        resolve();
        return;
      }
      const wake = (): void => {
        this.#sleepers.delete(sleeper);
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      const sleeper: Sleeper = { atMs: this.#monotonicMs + ms, wake };
      this.#sleepers.add(sleeper);
      signal?.addEventListener('abort', wake, { once: true });
    });
  }

  /** Monotonic ms at which the next sleeper wakes, or null when nobody sleeps. */
  nextWakeAtMs(): number | null {
    let next: number | null = null;
    for (const { atMs } of this.#sleepers) next = next === null ? atMs : Math.min(next, atMs);
    return next;
  }

  /** Moves both times and wakes those whose time has come, the earliest first; lets them run. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#monotonicMs + ms;
    for (let next = this.nextWakeAtMs(); next !== null && next <= endMs; next = this.nextWakeAtMs()) {
      this.#move(Math.max(0, next - this.#monotonicMs));
      for (const sleeper of [...this.#sleepers]) if (sleeper.atMs <= this.#monotonicMs) sleeper.wake();
      await flush();
    }
    this.#move(endMs - this.#monotonicMs);
  }

  /** The wall clock is set to another time; monotonic time does not notice. */
  step(ms: number): void {
    this.#wallMs += ms;
  }

  #move(ms: number): void {
    this.#monotonicMs += ms;
    this.#wallMs += ms;
  }
}

/** Lets everything run that waits for nothing but its turn. */
export const flush = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
