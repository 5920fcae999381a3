import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';

const WINDOW_MS = 10_000;
const LINES_PER_WINDOW = 50;

/** The true reasons of refusals, for the administrator. Whoever knocks without end does not fill the log. */
export class RefusalLog {
  readonly #log: Log;
  readonly #clock: Clock;
  #windowStartMs = -WINDOW_MS;
  #lines = 0;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  refused(fields: object, reason: string): void {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs - this.#windowStartMs >= WINDOW_MS) {
      const unsaid = this.#lines - LINES_PER_WINDOW;
      if (unsaid > 0) this.#log.warn({ refusals: unsaid }, 'more connections were refused than were logged');
      this.#windowStartMs = nowMs;
      this.#lines = 0;
    }
    this.#lines += 1;
    if (this.#lines <= LINES_PER_WINDOW)
      this.#log.warn({ ...fields, reason }, 'a connection to the gateway was refused');
  }
}
