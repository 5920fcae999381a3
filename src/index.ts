/**
 * The engine as a library: a worker on a backend, a coordinator, and their client. The machines are in
 * `open-compute/machines`, the log in `open-compute/events`, each backend in a module of its own.
 */
export { Worker } from './worker/worker.js';
export { DEFAULT_WORKER_CONFIG, WorkerStartError, type WorkerConfig, type WorkerDeps } from './worker/context.js';
export type { JobDirectories } from './worker/directories.js';
export { jobDirectories } from './worker/job-directories.js';
export { checkRunsDirectory, type RunsDirectoryCheck } from './workdir/runs-directory.js';

/** The port that a backend fills. */
export type { Backend, BackendTiming, Profile } from './backend.js';

export { startServer, type Server, type ServerDeps } from './coordinator/server.js';
export { DEFAULT_CONFIG as DEFAULT_COORDINATOR_CONFIG, type CoordinatorConfig } from './coordinator/config.js';
export { CoordinatorClient, type ClientAnswer, type WatchItem } from './coordinator/client.js';
export { WorkerClient } from './coordinator/worker-client.js';
export type { WorkerPort } from './coordinator/worker-api.js';
export {
  CredentialsFileError,
  readCredentialsFile,
  writeCredentialsFile,
  type CredentialsFile,
} from './coordinator/credentials-file.js';
export type { Role, TaskChange, TaskList, TaskResult, TaskView } from './coordinator/api.js';

/** What the process hands in: its own time, chance and log. */
export { systemClock, type Clock } from './runtime/clock.js';
export { systemRandom, type Random } from './runtime/random.js';
export { silentLog, type Log } from './runtime/log.js';
