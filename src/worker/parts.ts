import { StoreError } from '../events/store.js';
import type { Log } from '../runtime/log.js';

/** After these the log takes no more events until it is opened again; of the others it may recover. */
const isFatal = (error: unknown): error is StoreError =>
  error instanceof StoreError && (error.fault === 'io' || error.fault === 'corrupt');

/** The parts of a round. One that fails is said and left for the next round; the others go on. */
export class Parts {
  readonly #log: Log;
  readonly #beside = new Map<string, Promise<void>>();
  #fatal: StoreError | null = null;

  constructor(log: Log) {
    this.#log = log;
  }

  /** The fault after which nothing can be recorded any more, and so nothing may be done. */
  get fatal(): StoreError | null {
    return this.#fatal;
  }

  /** Tells of what an activity threw; null: nothing. */
  note(error: unknown): void {
    if (isFatal(error)) this.#fatal = error;
  }

  /** False: it failed. */
  async run(part: string, run: () => Promise<void>): Promise<boolean> {
    try {
      await run();
      return true;
    } catch (error) {
      this.note(error);
      this.#log.error(
        { part, error: error instanceof Error ? error.message : String(error) },
        'part of a round failed',
      );
      return false;
    }
  }

  /** What may have to wait for an answer does not hold up the rounds: one of a kind at a time, beside them. */
  beside(part: string, run: () => Promise<void>): void {
    if (this.#beside.has(part)) return;
    const running = this.run(part, run).then(() => {
      this.#beside.delete(part);
    });
    this.#beside.set(part, running);
  }

  /** Resolves when nothing runs beside the rounds. */
  async idle(): Promise<void> {
    while (this.#beside.size > 0) await Promise.all(this.#beside.values());
  }
}
