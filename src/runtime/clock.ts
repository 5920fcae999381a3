/** Time as the shell hands it to the rest. Tests and the simulation pass a manual one. */
export interface Clock {
  /** Unix epoch ms. May step. */
  nowMs(): number;
  /** ms from an arbitrary start; never goes back. For leases and time limits. */
  monotonicMs(): number;
  /** Resolves after `ms`, or at once when the signal aborts; never rejects. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  sleep: (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted === true) {
        resolve();
        return;
      }
      const finish = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', finish);
        resolve();
      };
      const timer = setTimeout(finish, ms);
      signal?.addEventListener('abort', finish, { once: true });
    }),
};

/**
 * A clock whose wall time advances with the monotonic one from now on: a step of the host's clock neither shortens nor
 * lengthens anything that is measured by event times within one process.
 */
export function steadyClock(clock: Clock): Clock {
  const offsetMs = clock.nowMs() - clock.monotonicMs();
  return {
    nowMs: () => Math.round(clock.monotonicMs() + offsetMs),
    monotonicMs: () => clock.monotonicMs(),
    sleep: (ms, signal) => clock.sleep(ms, signal),
  };
}

/** Resolves when one of the signals aborts, and leaves no listener behind. */
export function whenAborted(...signals: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      for (const signal of signals) signal.removeEventListener('abort', done);
      resolve();
    };
    for (const signal of signals) signal.addEventListener('abort', done);
    if (signals.some((signal) => signal.aborted)) done();
  });
}
