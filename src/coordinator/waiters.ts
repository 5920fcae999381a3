import type { Clock } from '../runtime/clock.js';

/** Who waits for news of one thing. */
export class Waiters {
  readonly #wakes = new Set<() => void>();

  get size(): number {
    return this.#wakes.size;
  }

  wake(): void {
    for (const wake of [...this.#wakes]) wake();
  }

  /** Resolves at the next wake, or when the signal aborts; never rejects. */
  wait(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal.aborted) {
        resolve();
        return;
      }
      const wake = (): void => {
        this.#wakes.delete(wake);
        signal.removeEventListener('abort', wake);
        resolve();
      };
      this.#wakes.add(wake);
      signal.addEventListener('abort', wake, { once: true });
    });
  }
}

export interface Patience {
  readonly clock: Clock;
  readonly waitMs: number;
  /** Each of them ends the wait: the caller has gone, the coordinator closes. */
  readonly signals: readonly AbortSignal[];
}

/** Looks, and looks again at each wake, for at most `waitMs`. null: there was nothing. */
export async function longPoll<T>(look: () => T | null, waiters: Waiters, patience: Patience): Promise<T | null> {
  const { clock, waitMs, signals } = patience;
  const first = look();
  if (first !== null || waitMs === 0) return first;
  const over = new AbortController();
  const stop = (): void => {
    over.abort();
  };
  for (const signal of signals) {
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  }
  void clock.sleep(waitMs, over.signal).then(stop);
  try {
    for (;;) {
      // Nothing can have happened since the last look: nobody else runs in between.
      await waiters.wait(over.signal);
      const found = look();
      if (found !== null || over.signal.aborted) return found;
    }
  } finally {
    for (const signal of signals) signal.removeEventListener('abort', stop);
    over.abort();
  }
}
