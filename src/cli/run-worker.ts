import type { Profile } from '../backend.js';
import type { CredentialsFile } from '../coordinator/credentials-file.js';
import { WorkerClient } from '../coordinator/worker-client.js';
import { openStateDirectory } from '../events/state-directory.js';
import type { Log } from '../runtime/log.js';
import { WorkerStartError, type WorkerConfig } from '../worker/context.js';
import { jobDirectories } from '../worker/job-directories.js';
import { Worker } from '../worker/worker.js';
import { createBackend, prepareRunsDirectory, type BackendName, type ClusterConfig } from './compose.js';
import { CliError } from './errors.js';
import { EXIT } from './exit-codes.js';
import type { Io } from './io.js';
import { sessionDeps, type SessionGateway } from './session-gateway.js';
import { sayStatus } from './worker-status.js';
import { keepHeapSmall } from './small-heap.js';

export interface WorkerPlan {
  readonly name: string;
  readonly credentials: CredentialsFile;
  readonly backend: BackendName;
  readonly cluster: ClusterConfig | null;
  readonly profiles: ReadonlyMap<string, Profile>;
  /** Absolute. */
  readonly stateDir: string;
  /** As the user named it; undefined: the default. */
  readonly runsDir: string | undefined;
  /** Jobs at once on this machine; null: one per processor. */
  readonly maxRunning: number | null;
  readonly config: WorkerConfig;
  readonly statusEveryMs: number;
  /** null: agents can not dial in, and sessions are not served. */
  readonly sessions: SessionGateway | null;
}

/**
 * Opens a worker's state and runs directories and its backend, and runs it until the signal aborts. Jobs are left
 * running. Throws a `CliError` or `StoreError` when it can not start.
 */
export async function runWorker(io: Io, plan: WorkerPlan, log: Log, signal: AbortSignal): Promise<void> {
  const { name, cluster, profiles, config } = plan;
  const { clock, random } = io;
  const state = await openStateDirectory(plan.stateDir, {
    mode: 'write',
    create: true,
    writer: `worker ${name}`,
    nowMs: () => clock.nowMs(),
  });
  try {
    const place = { chosen: plan.runsDir, worker: name, stateDir: state.path };
    const runsDir = await prepareRunsDirectory(io, plan.backend, place);
    const backend = await createBackend(io, { name: plan.backend, cluster, runsDir, maxRunning: plan.maxRunning });
    const coordinator = new WorkerClient(plan.credentials, clock);
    const offered = [...profiles.keys()];
    log.info(
      { name, stateDir: state.path, runsDir, clusterConfig: cluster?.file ?? null, profiles: offered },
      'starting',
    );
    try {
      const directories = jobDirectories(runsDir, log);
      const deps = {
        name,
        backend,
        coordinator,
        store: state.store,
        directories,
        profiles,
        clock,
        random,
        log,
        config,
        sessions:
          plan.sessions === null
            ? null
            : sessionDeps(io, plan.sessions, { coordinator: coordinator.sessions, runsDir, log }),
      };
      const worker = await Worker.start(deps, signal);
      if (worker === null) return;
      keepHeapSmall();
      const saying = sayStatus(() => worker.status(), plan.statusEveryMs, { log, clock, signal });
      await worker.run(signal);
      await saying;
      log.info({ jobs: worker.status().jobs }, 'stopped; jobs are left running, the next start adopts them');
    } finally {
      coordinator.close();
      await backend.close();
    }
  } catch (cause) {
    if (!(cause instanceof WorkerStartError)) throw cause;
    throw new CliError(EXIT.failed, cause.message, 'open-compute doctor says more', { cause });
  } finally {
    await state.close();
  }
}
