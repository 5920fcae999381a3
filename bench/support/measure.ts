import { systemClock } from '../../src/runtime/clock.js';

/** How long something took: by the clock on the wall, and by this process's own CPU (children do not count). */
export interface Took<T> {
  readonly value: T;
  readonly wallMs: number;
  readonly cpuMs: number;
}

export async function took<T>(run: () => T | Promise<T>): Promise<Took<T>> {
  const cpu = process.cpuUsage();
  const startedMs = performance.now();
  const value = await run();
  const wallMs = performance.now() - startedMs;
  const { user, system } = process.cpuUsage(cpu);
  return { value, wallMs, cpuMs: (user + system) / 1000 };
}

/** Times per second. */
export const rate = (count: number, ms: number): number => (count / ms) * 1000;

/** Runs `run(0)` … `run(count - 1)`, at most `width` at a time. */
export async function inParallel(count: number, width: number, run: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) {
      const index = next;
      next += 1;
      await run(index);
    }
  };
  await Promise.all(Array.from({ length: Math.min(width, count) }, lane));
}

/** Waits until `look` answers true. Throws after `limitMs`, by a clock that nobody sets. */
export async function until(
  what: string,
  look: () => boolean | Promise<boolean>,
  limitMs: number,
  everyMs = 50,
): Promise<void> {
  const endMs = systemClock.monotonicMs() + limitMs;
  while (!(await look())) {
    if (systemClock.monotonicMs() > endMs) throw new Error(`not within ${limitMs / 1000} s: ${what}`);
    await systemClock.sleep(everyMs);
  }
}
