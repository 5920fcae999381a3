import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';

/** What a worker says about itself. */
export interface WorkerStatus {
  readonly jobs: Readonly<Record<string, number>>;
  readonly calls: Readonly<Record<string, number>>;
  readonly sinceLastRoundMs: number;
}

/** A loop that has not come round for this long is stuck in something. */
const STUCK_MS = 120_000;

/**
 * Says every `everyMs` how many jobs there are by phase, and how many calls the backend made in that time, by command:
 * they must not grow with the number of jobs. Until the signal aborts.
 */
export async function sayStatus(
  read: () => WorkerStatus,
  everyMs: number,
  { log, clock, signal }: { readonly log: Log; readonly clock: Clock; readonly signal: AbortSignal },
): Promise<void> {
  let before = read().calls;
  for (;;) {
    await clock.sleep(everyMs, signal);
    if (signal.aborted) return;
    const { jobs, calls, sinceLastRoundMs } = read();
    const fresh = Object.entries(calls).map(([command, count]): [string, number] => [
      command,
      count - (before[command] ?? 0),
    ]);
    const total = Object.values(jobs).reduce((sum, count) => sum + count, 0);
    const fields = { jobs: { total, ...jobs }, calls: Object.fromEntries(fresh), inSeconds: everyMs / 1000 };
    log.info(fields, 'status');
    if (sinceLastRoundMs > STUCK_MS) log.error({ sinceLastRoundMs }, 'the loop has not come round');
    before = calls;
  }
}
