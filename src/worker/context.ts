import type { Backend, Profile } from '../backend.js';
import type { WorkerPort } from '../coordinator/worker-api.js';
import type { EventStore } from '../events/store.js';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import type { JobDirectories } from './directories.js';
import type { SessionDeps } from './sessions/context.js';

export interface WorkerConfig {
  /** Jobs that are not over, at most. */
  readonly capacity: number;
  /** Longest interval between two polls at rest, ms. */
  readonly pollMs: number;
  /** A job is watched for at most this long, ms; then it is cancelled and fails. */
  readonly watchLimitMs: number;
  /** How long the directory of a job without a result is kept, ms. */
  readonly keepDirectoryMs: number;
  readonly resultLimitBytes: number;
  readonly logTailBytes: number;
  /** How long a result may take to appear on a shared file system after the job completed, ms. */
  readonly resultGraceMs: number;
  readonly submitConcurrency: number;
  /** Submissions of one job that may come to nothing, each proven so, before the job counts as rejected. */
  readonly attemptsMax: number;
  readonly deliverConcurrency: number;
  /** Longest time that one acquire call may wait at the coordinator, ms. */
  readonly acquireWaitMs: number;
  /** A checkpoint is saved after so many events. */
  readonly checkpointEvery: number;
}

export const DEFAULT_WORKER_CONFIG: WorkerConfig = {
  capacity: 1_000,
  pollMs: 30_000,
  watchLimitMs: 24 * 3_600_000,
  keepDirectoryMs: 24 * 3_600_000,
  resultLimitBytes: 4 * 1024 * 1024,
  logTailBytes: 64 * 1024,
  resultGraceMs: 5_000,
  submitConcurrency: 8,
  attemptsMax: 20,
  deliverConcurrency: 16,
  acquireWaitMs: 20_000,
  checkpointEvery: 20_000,
};

/** Everything the worker touches, as ports: the simulation passes its own. */
export interface WorkerDeps {
  readonly name: string;
  readonly backend: Backend;
  readonly coordinator: WorkerPort;
  readonly store: EventStore;
  readonly directories: JobDirectories;
  readonly profiles: ReadonlyMap<string, Profile>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly config: WorkerConfig;
  /** null: this worker serves no sessions. */
  readonly sessions: SessionDeps | null;
}

/** The worker can not start, and waiting would not help. The message says what to do. */
export class WorkerStartError extends Error {
  override readonly name = 'WorkerStartError';
}
