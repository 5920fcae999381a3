import type { CancelReply, NoAnswer, Observations } from '../../src/backend.js';
import { StoreError, VersionConflictError } from '../../src/events/store.js';

/** Whose call it is: a crash ends that side alone. */
export type Side = 'worker' | 'coordinator';

/** One effect: an append, or a call of a port. `mark`: how far both logs were when it came. */
export interface Effect {
  readonly side: Side;
  readonly port: 'log' | 'backend' | 'coordinator' | 'directories';
  readonly name: string;
  readonly mark: string;
}

/**
 * What can go wrong with one effect. `crash`: its process ends, before or after it took effect. `noAnswer`, `answerLost`:
 * it fails as its port says, with and without having taken effect. `throws`: an error that no port promises. `twice`: it
 * happens two times.
 */
export const FAULTS = ['crashBefore', 'crashAfter', 'noAnswer', 'answerLost', 'throws', 'twice'] as const;
/** Of a log: disk full (nothing is written), an I/O error before and after the events are written. */
export const LOG_FAULTS = ['crashBefore', 'crashAfter', 'full', 'ioBefore', 'ioAfter', 'twice'] as const;
export type Fault = (typeof FAULTS)[number] | (typeof LOG_FAULTS)[number];

const NEVER = new Promise<never>(() => undefined);
const LOST: NoAnswer = { kind: 'timedOut', afterMs: 60_000, detail: 'injected: no answer' };

/** How each port says that there was no answer. What is not here has no such answer: it throws. */
const NO_ANSWER: Readonly<Record<string, unknown>> = {
  'backend.selfTest': LOST,
  'backend.submit': { ...LOST, hint: null },
  'backend.observe': { jobs: new Map(), outage: LOST, queueOutage: LOST, oddities: [] } satisfies Observations,
  'backend.cancel': { asked: [], outage: LOST } satisfies CancelReply,
  'backend.endAttempt': { kind: 'alive', detail: 'injected' },
  'directories.prepare': { kind: 'io', detail: 'injected: EIO' },
  'directories.collect': { kind: 'io', detail: 'injected: EIO' },
  'directories.remove': { kind: 'io', detail: 'injected: EIO' },
  'directories.takeWakes': [],
  'directories.endMarker': null,
  'directories.tails': { stdout: '', stderr: '' },
};
const UNREACHABLE = { kind: 'unreachable', detail: 'injected: no answer' };

function noAnswer({ port, name }: Effect): unknown {
  const key = `${port}.${name}`;
  if (port === 'coordinator') return UNREACHABLE;
  if (key in NO_ANSWER) return NO_ANSWER[key];
  throw new Error(`injected: ${key} failed`);
}

/** Counts effects, and makes one of them fail in one way. */
export class FaultPlan {
  readonly effects: Effect[] = [];
  readonly #at: number | null;
  readonly #fault: Fault;
  readonly #crash: (side: Side) => void;

  /** `at`: index of the effect that fails; null: none. */
  constructor(at: number | null, fault: Fault, crash: (side: Side) => void) {
    this.#at = at;
    this.#fault = fault;
    this.#crash = crash;
  }

  async around(effect: Effect, run: () => unknown): Promise<unknown> {
    const index = this.effects.push(effect) - 1;
    if (index !== this.#at) return run();
    switch (this.#fault) {
      case 'crashBefore':
        this.#crash(effect.side);
        return NEVER;
      case 'crashAfter':
        await run();
        this.#crash(effect.side);
        return NEVER;
      case 'noAnswer':
        return noAnswer(effect);
      case 'answerLost':
        await run();
        return noAnswer(effect);
      case 'throws':
        throw new Error(`injected: ${effect.port}.${effect.name} failed`);
      case 'full':
        throw new StoreError('full', 'injected: the disk is full');
      case 'ioBefore':
        throw new StoreError('io', 'injected: I/O error');
      case 'ioAfter':
        await run();
        throw new StoreError('io', 'injected: I/O error');
      case 'twice':
        return twice(effect, run);
    }
  }
}

/** The second answer is the one that arrives, except where it can only say that there was a first one. */
async function twice({ port, name }: Effect, run: () => unknown): Promise<unknown> {
  const first: unknown = await run();
  if (port !== 'log') {
    const second: unknown = await run();
    return name === 'submit' ? first : second;
  }
  try {
    await run();
  } catch (error) {
    if (!(error instanceof VersionConflictError)) throw error;
  }
  return first;
}

/**
 * The same object, whose named methods go through `around` first. Everything else is passed on as it is.
 */
export function intercepted<T extends object>(
  target: T,
  names: readonly (keyof T & string)[],
  around: (name: string, run: () => unknown) => unknown,
): T {
  const wanted: ReadonlySet<string | symbol> = new Set(names);
  return new Proxy(target, {
    get: (of, property) => {
      const member: unknown = Reflect.get(of, property, of);
      if (typeof member !== 'function') return member;
      return (...given: readonly unknown[]): unknown => {
        const run = (): unknown => Reflect.apply(member, of, given) as unknown;
        return wanted.has(property) ? around(String(property), run) : run();
      };
    },
  });
}

/** The first index of each different effect: the same call at the same length of both logs is the same case. */
export function distinct(
  effects: readonly Effect[],
  wanted: (effect: Effect, index: number) => boolean,
): readonly number[] {
  const seen = new Set<string>();
  const found: number[] = [];
  for (const [index, effect] of effects.entries()) {
    const key = [effect.side, effect.port, effect.name, effect.mark].join(' ');
    if (!wanted(effect, index) || seen.has(key)) continue;
    seen.add(key);
    found.push(index);
  }
  return found;
}
