import type { Backend, Observations, WatchItem } from '../../src/backend.js';
import type { WorkerPort } from '../../src/coordinator/worker-api.js';
import type { JobDirectories } from '../../src/worker/directories.js';

/** A backend without a system behind it: it answers at once and says of every job that it waits. */
export function instantBackend(onObserve: (items: readonly WatchItem[]) => void): Backend {
  const unused = (): never => {
    throw new Error('not part of this benchmark');
  };
  return {
    name: 'instant',
    site: 'bench',
    sources: ['queue', 'accounting'],
    timing: { settleMs: 60_000, looks: 3, lossGraceMs: 60_000, lossLooks: 3 },
    selfTest: () => Promise.resolve({ kind: 'fit', report: {}, warnings: [] }),
    observe: (items) => {
      onObserve(items);
      const seen: Observations = { jobs: new Map(), outage: null, queueOutage: null, oddities: [] };
      return Promise.resolve(seen);
    },
    prepare: unused,
    submit: unused,
    endAttempt: unused,
    cancel: unused,
    mayCancel: () => true,
    runStep: unused,
    callCounts: () => ({}),
    close: () => Promise.resolve(),
  };
}

/** A coordinator that has nothing new and answers at once. */
export const instantCoordinator: WorkerPort = {
  hello: () => Promise.resolve({ kind: 'answered', value: { worker: 'bench', leaseTtlMs: 900_000 } }),
  acquire: (_request, signal) =>
    new Promise((resolve) => {
      signal?.addEventListener('abort', () => resolve({ kind: 'answered', value: [] }), { once: true });
    }),
  renew: () =>
    Promise.resolve({
      kind: 'answered',
      value: { ttlMs: 900_000, lost: [], cancel: [], abandon: [], wantLogs: [] },
    }),
  report: (items) => Promise.resolve({ kind: 'answered', value: { verdicts: items.map(() => 'ok' as const) } }),
  outcome: () => Promise.resolve({ kind: 'answered', value: null }),
  putLogs: () => Promise.resolve({ kind: 'answered', value: null }),
};

/** Job directories that nobody looks into. */
export const noDirectories: JobDirectories = {
  path: (jobId) => `/nowhere/${jobId}`,
  prepare: () => Promise.resolve({ kind: 'ok' }),
  collect: () => Promise.resolve({ kind: 'missing', detail: 'no such file' }),
  endMarker: () => Promise.resolve(null),
  claim: () => Promise.resolve({ kind: 'none' }),
  tails: () => Promise.resolve({ stdout: '', stderr: '' }),
  remove: () => Promise.resolve({ kind: 'ok' }),
  takeWakes: () => Promise.resolve([]),
};
