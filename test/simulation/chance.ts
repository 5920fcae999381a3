import { SeededRandom } from '../support/seeded-random.js';

/** FNV-1a: a label as a number. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  return value >>> 0;
}

/** All chance of a world comes from one seed; every part has its own stream, so one more roll here moves nothing there. */
export class Chance extends SeededRandom {
  readonly #seed: number;

  constructor(seed: number) {
    super(seed);
    this.#seed = seed >>> 0;
  }

  /** An independent stream for one part of the world. */
  fork(label: string): Chance {
    return new Chance(hash(`${String(this.#seed)}/${label}`));
  }

  pick<T>(items: readonly [T, ...T[]]): T {
    return items[this.int(0, items.length - 1)] ?? items[0];
  }
}
