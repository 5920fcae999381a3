import type { Clock } from '../../src/runtime/clock.js';

/** What a dead process waits for. */
const never = <T>(): Promise<T> => new Promise<T>(() => undefined);

/**
 * One run of a process. Everything that it does to the world passes through `call`: a crash lies between two of these,
 * and from then on nothing of it goes on: no answer arrives any more, no call has an effect.
 */
export class Life {
  readonly #onCall: (what: string) => 'goOn' | 'crashBefore' | 'crashAfter';
  readonly #stopping = new AbortController();
  readonly #onDeath: (() => void)[] = [];
  #alive = true;

  /** `onCall`: asked before every call. */
  constructor(onCall: (what: string) => 'goOn' | 'crashBefore' | 'crashAfter') {
    this.#onCall = onCall;
  }

  get isAlive(): boolean {
    return this.#alive;
  }

  /** SIGTERM. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  stop(): void {
    this.#stopping.abort();
  }

  /** SIGKILL. */
  kill(): void {
    if (!this.#alive) return;
    this.#alive = false;
    for (const run of this.#onDeath) run();
  }

  onDeath(run: () => void): void {
    if (this.#alive) this.#onDeath.push(run);
    else run();
  }

  #isDead(): boolean {
    return !this.#alive;
  }

  async call<T>(what: string, effect: () => Promise<T>): Promise<T> {
    if (this.#isDead()) return never();
    const fate = this.#onCall(what);
    if (fate === 'crashBefore') this.kill();
    // Asked again and again: a crash comes from anywhere, at any await.
    if (this.#isDead()) return never();
    try {
      const result = await effect();
      if (fate === 'crashAfter') this.kill();
      return this.#isDead() ? await never<T>() : result;
    } catch (error) {
      if (this.#isDead()) return never();
      throw error;
    }
  }

  clock(clock: Clock): Clock {
    return {
      nowMs: () => clock.nowMs(),
      monotonicMs: () => clock.monotonicMs(),
      sleep: (ms, signal) => this.call('sleep', () => clock.sleep(ms, signal)),
    };
  }
}
