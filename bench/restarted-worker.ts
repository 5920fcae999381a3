import { openStateDirectory } from '../src/events/state-directory.js';
import { systemClock } from '../src/runtime/clock.js';
import { silentLog } from '../src/runtime/log.js';
import { systemRandom } from '../src/runtime/random.js';
import { DEFAULT_WORKER_CONFIG } from '../src/worker/context.js';
import { Worker } from '../src/worker/worker.js';
import { instantBackend, instantCoordinator, noDirectories } from './support/instant-backend.js';

/** The process that restart.ts starts: a worker on a state directory; prints `jobs CPU-ms` at its first poll and ends. */
const [, , directory = '.'] = process.argv;
const state = await openStateDirectory(directory, { mode: 'write', writer: 'worker bench', nowMs: Date.now });
const stopped = new AbortController();
const backend = instantBackend((items) => {
  const { user, system } = process.cpuUsage();
  process.stdout.write(`${items.length} ${(user + system) / 1000}\n`);
  // At once, as a kill would: no checkpoint is saved, so the next start finds the same log.
  process.kill(process.pid, 'SIGKILL');
});
const worker = await Worker.start(
  {
    name: 'bench',
    backend,
    coordinator: instantCoordinator,
    store: state.store,
    directories: noDirectories,
    profiles: new Map(),
    clock: systemClock,
    random: systemRandom,
    log: silentLog,
    config: { ...DEFAULT_WORKER_CONFIG, capacity: 100_000 },
    sessions: null,
  },
  stopped.signal,
);
await worker?.run(stopped.signal);
