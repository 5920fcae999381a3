import type { Backend, JobAnswer, Observations, WatchItem } from '../../src/backend.js';
import { VersionConflictError, type Append, type RecordedEvent } from '../../src/events/store.js';
import type { Fault } from './faults.js';

/** What can be broken on purpose, to see the checker catch it. Each is a wrapper around a part; no source is changed. */
export const BREAKS = ['settling', 'lookup', 'epoch', 'version'] as const;
export type Break = (typeof BREAKS)[number];

/** A world without the fault that a promise guards against does not need the promise: these are always on then. */
export const NEEDED_FAULTS: Readonly<Record<Break, readonly Fault[]>> = {
  settling: ['landsLate', 'submitHangs'],
  lookup: ['answerLostAfterLanding', 'submitKilled'],
  epoch: ['coordinatorUnreachable', 'workerCrashTimed', 'answerLost', 'slowDisk'],
  version: ['twoWriters', 'workerCrashTimed'],
};

export interface BackendWatch {
  /** Around each poll. */
  readonly observe: (ask: () => Promise<Observations>) => Promise<Observations>;
  /** Before a cancel is made out. */
  readonly cancelling: () => void;
}

/** The port, with what the world wants to see of it, and with what is broken. */
export function watchedBackend(backend: Backend, broken: Break | null, watch: BackendWatch): Backend {
  return {
    get name() {
      return backend.name;
    },
    get site() {
      return backend.site;
    },
    get sources() {
      return backend.sources;
    },
    get timing() {
      return broken === 'settling' ? { ...backend.timing, settleMs: 0, looks: 1 } : backend.timing;
    },
    selfTest: () => backend.selfTest(),
    prepare: (request) => backend.prepare(request),
    submit: (request) => backend.submit(request),
    endAttempt: (token) => backend.endAttempt(token),
    observe: async (items) => {
      const seen = await watch.observe(() => backend.observe(items));
      return broken === 'lookup' ? withoutLookups(items, seen) : seen;
    },
    cancel: (targets) => {
      watch.cancelling();
      return backend.cancel(targets);
    },
    mayCancel: (target) => backend.mayCancel(target),
    runStep: (request) => backend.runStep(request),
    callCounts: () => backend.callCounts(),
    close: () => backend.close(),
  };
}

/** Every look-up by token says "not here". */
function withoutLookups(items: readonly WatchItem[], seen: Observations): Observations {
  const jobs = new Map(seen.jobs);
  for (const { jobId, handle } of items) {
    const answer: JobAnswer | undefined = jobs.get(jobId);
    if (handle !== null || answer?.kind !== 'seen') continue;
    jobs.set(jobId, { kind: 'absent', queue: 'absent', accounting: 'absent', limitEndsAtMs: null, detail: 'broken' });
  }
  return { ...seen, jobs };
}

/** A store that does not care which version its writer knows. */
export async function appendAnyway(
  append: (appends: readonly Append[]) => Promise<readonly RecordedEvent[]>,
  appends: readonly Append[],
): Promise<readonly RecordedEvent[]> {
  try {
    return await append(appends);
  } catch (error) {
    if (!(error instanceof VersionConflictError)) throw error;
    const corrected = appends.map((one) =>
      one.stream === error.stream
        ? { ...one, expectedVersion: one.expectedVersion + error.actualVersion - error.expectedVersion }
        : one,
    );
    return appendAnyway(append, corrected);
  }
}
