import { describe, expect, jest, test } from '@jest/globals';
import { BREAKS } from './breaks.js';
import type { Fault } from './faults.js';
import { runSeed } from './run-seed.js';

/** A world takes half a second; on a machine that is busy with other things it may take much longer. */
jest.setTimeout(120_000);

/** Worlds that once broke a promise, with the faults that they had in any case, and which promise. */
const ONCE_BROKEN: readonly (readonly [seed: number, promise: string, forced: readonly Fault[]])[] = [
  [
    28,
    'a cancel ended a job of the same user that had got a used id again (INV-13)',
    ['idReuse', 'runawayRows', 'cancelLost', 'workerCrashTimed'],
  ],
  [
    296,
    'a cancelled task was announced while a second job with its token was running (INV-3)',
    ['answerLostAfterLanding', 'submitKilled'],
  ],
  [
    112,
    'a worker that was full never greeted a coordinator that had forgotten it, and could deliver nothing',
    ['twoWriters', 'workerCrashTimed'],
  ],
  [
    188,
    'a cancel went to another job of ours that had got a used id (INV-13)',
    ['idReuse', 'workerCrash', 'cancels', 'cancelLost'],
  ],
  [1974, 'a worker with a full disk heard of a lost lease once, could not record it, and waited for ever', []],
  [546, 'a job stayed Unknown for as long as a clock had gone back, which the worker was restarted after', []],
  [457, 'a worker that had just started cancelled by the ids in its log before it asked whose they were (INV-13)', []],
  [
    96,
    'a worker cancelled by the ids that it knew from before an outage (INV-13)',
    ['idReuse', 'workerCrash', 'cancels', 'queryFails'],
  ],
];

/** For each break a few worlds in which the checker sees it. */
const SEEN_IN: Readonly<Record<(typeof BREAKS)[number], readonly number[]>> = {
  settling: [1, 3, 4],
  lookup: [1, 2, 3],
  epoch: [2, 6, 13],
  version: [1, 2, 3],
};

describe('a whole site with a scripted scheduler', () => {
  test.each(Array.from({ length: 8 }, (_, index) => 1 + index))(
    'seed %i: keeps every promise under faults, and settles everything when they have healed',
    async (seed) => {
      const { violations, tasks, ends } = await runSeed(seed);
      expect(violations).toEqual([]);
      expect(tasks).toBeGreaterThan(0);
      expect(Object.keys(ends).filter((phase) => phase === 'Queued' || phase === 'Leased')).toEqual([]);
    },
  );

  test.each(ONCE_BROKEN)('seed %i once broke a promise: %s', async (seed, _promise, forced) => {
    expect((await runSeed(seed, { forced })).violations).toEqual([]);
  });

  test('one seed gives the same events twice, another seed gives others', async () => {
    const [once, again, other] = [await runSeed(7), await runSeed(7), await runSeed(8)];
    expect(again).toEqual(once);
    expect(other.digest).not.toBe(once.digest);
  });

  test.each(BREAKS)('the checker sees a broken part: %s', async (broken) => {
    const seen: string[] = [];
    for (const seed of SEEN_IN[broken]) {
      seen.push(...(await runSeed(seed, { broken })).violations);
      if (seen.length > 0) break;
    }
    expect(seen).not.toEqual([]);
  });
});
