import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { createPace, hurry, polled, type PollPace } from '../../src/worker/poll-pace.js';

const CONFIG = { baseMs: 30_000 };
const MINUTE = 60_000;

interface Wake {
  readonly atMs: number;
  readonly why: 'ended' | 'started';
}

/**
 * Runs the pace against wakes and a backend that takes `tookMs` for an answer. Gives the times at which it was asked.
 */
function run(
  untilMs: number,
  wakes: readonly Wake[] = [],
  answer: (atMs: number) => { readonly answered: boolean; readonly news: boolean; readonly tookMs: number } = () => ({
    answered: true,
    news: false,
    tookMs: 20,
  }),
): readonly number[] {
  const asked: number[] = [];
  let pace: PollPace = createPace(0);
  let nowMs = 0;
  let next = 0;
  while (nowMs < untilMs) {
    const wake = wakes[next];
    if (wake !== undefined && wake.atMs <= Math.max(nowMs, pace.nextAtMs)) {
      nowMs = Math.max(nowMs, wake.atMs);
      pace = hurry(pace, wake.why, nowMs, CONFIG);
      next += 1;
      continue;
    }
    nowMs = Math.max(nowMs, pace.nextAtMs);
    if (nowMs >= untilMs) break;
    asked.push(nowMs);
    const { tookMs, ...outcome } = answer(nowMs);
    pace = polled(pace, { startedAtMs: nowMs, ...outcome }, nowMs + tookMs, CONFIG);
    nowMs += tookMs;
  }
  return asked;
}

const between = (asked: readonly number[], fromMs: number, toMs: number): number =>
  asked.filter((atMs) => atMs >= fromMs && atMs < toMs).length;

/** The most polls in any minute. */
const busiestMinute = (asked: readonly number[]): number =>
  Math.max(0, ...asked.map((atMs) => between(asked, atMs, atMs + MINUTE)));

const every = (gapMs: number, untilMs: number, why: Wake['why']): readonly Wake[] =>
  Array.from({ length: Math.floor(untilMs / gapMs) }, (_, i) => ({ atMs: i * gapMs, why }));

describe('when the backend is asked', () => {
  test('at once, then with growing pauses, at rest at most twice a minute', () => {
    const asked = run(20 * MINUTE);
    expect(asked[0]).toBe(0);
    expect(between(asked, 0, MINUTE)).toBeLessThanOrEqual(5);
    for (let minute = 2; minute < 20; minute += 1) {
      expect(between(asked, minute * MINUTE, (minute + 1) * MINUTE)).toBeLessThanOrEqual(2);
    }
    expect(between(asked, 10 * MINUTE, 20 * MINUTE)).toBeGreaterThanOrEqual(19);
  });

  test('at once when a job leaves its end marker, however quiet it was before', () => {
    const ends = [305_000, 437_000, 551_000].map((atMs) => ({ atMs, why: 'ended' as const }));
    const asked = run(10 * MINUTE, ends);
    for (const { atMs } of ends) expect(between(asked, atMs, atMs + 1)).toBe(1);
  });

  test('right after a poll, an end marker waits for ten times as long as that poll took, and at least 100 ms', () => {
    const rest = run(3 * MINUTE).at(-1) ?? 0;
    const quick = run(3 * MINUTE, [{ atMs: rest + 25, why: 'ended' }]);
    expect(quick.at(-1)).toBe(rest + 20 + 200);
    const instant = (): { answered: boolean; news: boolean; tookMs: number } => ({
      answered: true,
      news: false,
      tookMs: 0,
    });
    const last = run(3 * MINUTE, [], instant).at(-1) ?? 0;
    expect(run(3 * MINUTE, [{ atMs: last + 1, why: 'ended' }], instant).at(-1)).toBe(last + 100);
  });

  test('within two seconds of a submission', () => {
    const asked = run(10 * MINUTE, [{ atMs: 5 * MINUTE, why: 'started' }]);
    expect(between(asked, 5 * MINUTE, 5 * MINUTE + 2001)).toBeGreaterThanOrEqual(1);
  });

  test('a stream of ends becomes one poll a second, after a first burst', () => {
    const asked = run(10 * MINUTE, every(10, 10 * MINUTE, 'ended'));
    expect(busiestMinute(asked)).toBeLessThanOrEqual(60 + 21);
    expect(between(asked, 5 * MINUTE, 6 * MINUTE)).toBeLessThanOrEqual(61);
    expect(between(asked, 5 * MINUTE, 6 * MINUTE)).toBeGreaterThanOrEqual(50);
  });

  test('a stream of submissions becomes one poll in two seconds', () => {
    const asked = run(10 * MINUTE, every(10, 10 * MINUTE, 'started'));
    expect(busiestMinute(asked)).toBeLessThanOrEqual(31);
  });

  test('a slow backend is asked for at most a tenth of the time', () => {
    const asked = run(10 * MINUTE, every(100, 10 * MINUTE, 'ended'), () => ({
      answered: true,
      news: true,
      tookMs: 2000,
    }));
    expect(busiestMinute(asked)).toBeLessThanOrEqual(3);
  });

  test('INV-10 an outage is met with growing pauses of up to a minute, and no wake shortens them', () => {
    const wakes = [...every(500, 30 * MINUTE, 'ended')];
    const asked = run(30 * MINUTE, wakes, () => ({ answered: false, news: false, tookMs: 10 }));
    const pauses = asked.slice(1).map((atMs, i) => atMs - (asked[i] ?? 0) - 10);
    expect(pauses.slice(0, 6)).toEqual([2000, 4000, 8000, 16_000, 32_000, 60_000]);
    expect(new Set(pauses.slice(5))).toEqual(new Set([60_000]));
  });

  test('after an outage the first answer brings back the usual pace', () => {
    const asked = run(20 * MINUTE, [{ atMs: 15 * MINUTE, why: 'ended' }], (atMs) => ({
      answered: atMs > 10 * MINUTE,
      news: false,
      tookMs: 10,
    }));
    expect(between(asked, 15 * MINUTE, 15 * MINUTE + 101)).toBe(1);
  });

  test('a base interval below the first one is kept', () => {
    const quick = { baseMs: 500 };
    const pace = polled(createPace(0), { startedAtMs: 0, answered: true, news: true }, 10, quick);
    expect(pace.nextAtMs).toBe(510);
    expect(hurry(pace, 'started', 20, quick).nextAtMs).toBe(510);
  });

  test('whatever wakes it, it never stops and never asks more than 81 times a minute', () => {
    const wakes = fc
      .array(fc.record({ atMs: fc.nat(5 * MINUTE), why: fc.constantFrom('ended', 'started') }), { maxLength: 400 })
      .map((list): readonly Wake[] => list.sort((a, b) => a.atMs - b.atMs));
    const outcome = fc.record({ answered: fc.boolean(), news: fc.boolean(), tookMs: fc.constantFrom(1, 20, 500) });
    fc.assert(
      fc.property(wakes, fc.array(outcome, { minLength: 1 }), (list, outcomes) => {
        let polls = 0;
        const asked = run(5 * MINUTE, list, () => {
          polls += 1;
          return outcomes[polls % outcomes.length] ?? { answered: true, news: false, tookMs: 1 };
        });
        expect(busiestMinute(asked)).toBeLessThanOrEqual(81);
        const gaps = [...asked.slice(1), 5 * MINUTE].map((atMs, i) => atMs - (asked[i] ?? 0));
        expect(Math.max(...gaps)).toBeLessThanOrEqual(MINUTE + 5000);
      }),
    );
  });
});
