/**
 * When the backend is asked next. At rest once in `baseMs`; sooner when something is about to change; later when it
 * does not answer or answers slowly. None of it depends on how many jobs there are: an end marker makes the next poll
 * come at once, but only as often as the allowance refills, so a stream of short jobs can not become a stream of polls.
 * Times are monotonic ms.
 */
export interface PollPace {
  readonly nextAtMs: number;
  /** The interval that grows while nothing happens. */
  readonly intervalMs: number;
  readonly failures: number;
  readonly allowance: number;
  readonly refilledAtMs: number;
  readonly lastEndedAtMs: number;
  /** No wake makes a poll come closer to the last one than this. */
  readonly gapMs: number;
}

export interface PaceConfig {
  /** Longest interval between two polls of a backend that answers. */
  readonly baseMs: number;
}

const ALLOWANCE = 20;
const REFILL_MS = 1_000;
const MIN_GAP_MS = 100;
const FIRST_INTERVAL_MS = 2_000;
const OUTAGE_MAX_MS = 60_000;
/** A poll may take at most this part of the time. */
const DUTY = 10;

export function createPace(nowMs: number): PollPace {
  return {
    nextAtMs: nowMs,
    intervalMs: FIRST_INTERVAL_MS,
    failures: 0,
    allowance: ALLOWANCE,
    refilledAtMs: nowMs,
    lastEndedAtMs: nowMs,
    gapMs: MIN_GAP_MS,
  };
}

const sooner = (pace: PollPace, atMs: number): PollPace => ({ ...pace, nextAtMs: Math.min(pace.nextAtMs, atMs) });

/**
 * Something is about to show: `ended`, a job left its end marker or is being cleaned up, or all agents of a session are
 * in; `started`, one began or was submitted. During an outage neither makes the next question come earlier.
 */
export function hurry(pace: PollPace, why: 'ended' | 'started', nowMs: number, config: PaceConfig): PollPace {
  if (pace.failures > 0) return pace;
  const firstMs = Math.min(FIRST_INTERVAL_MS, config.baseMs);
  if (why === 'started') return sooner({ ...pace, intervalMs: firstMs }, nowMs + firstMs);
  const refilled = Math.floor((nowMs - pace.refilledAtMs) / REFILL_MS);
  const allowance = Math.min(ALLOWANCE, pace.allowance + refilled);
  const refilledAtMs = pace.refilledAtMs + refilled * REFILL_MS;
  const possible = Math.max(nowMs, pace.lastEndedAtMs + pace.gapMs);
  // With nothing left the poll waits for the next refill, and is what that refill pays for.
  const earliest = allowance < 1 ? Math.max(possible, refilledAtMs + REFILL_MS) : possible;
  if (pace.nextAtMs <= earliest) return { ...pace, allowance, refilledAtMs };
  return sooner({ ...pace, allowance: allowance - 1, refilledAtMs }, earliest);
}

/** After a poll that took from `startedAtMs` to `nowMs`. */
export function polled(
  pace: PollPace,
  outcome: { readonly startedAtMs: number; readonly answered: boolean; readonly news: boolean },
  nowMs: number,
  config: PaceConfig,
): PollPace {
  const tookMs = nowMs - outcome.startedAtMs;
  const gapMs = Math.min(OUTAGE_MAX_MS, Math.max(MIN_GAP_MS, tookMs * DUTY));
  if (!outcome.answered) {
    const failures = pace.failures + 1;
    const waitMs = Math.max(gapMs, Math.min(OUTAGE_MAX_MS, FIRST_INTERVAL_MS * 2 ** (failures - 1)));
    return { ...pace, failures, nextAtMs: nowMs + waitMs, lastEndedAtMs: nowMs, gapMs };
  }
  const firstMs = Math.min(FIRST_INTERVAL_MS, config.baseMs);
  const intervalMs = outcome.news ? firstMs : Math.min(config.baseMs, pace.intervalMs * 2);
  return {
    ...pace,
    failures: 0,
    intervalMs,
    nextAtMs: nowMs + Math.max(intervalMs, gapMs),
    lastEndedAtMs: nowMs,
    gapMs,
  };
}
