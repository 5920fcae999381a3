// First, as in main.ts: it sets how the heap grows while modules are loaded.
import { keepHeapSmall } from '../src/cli/small-heap.js';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { LeaseGrant } from '../src/coordinator/worker-api.js';
import { openStateDirectory } from '../src/events/state-directory.js';
import { contextOf } from '../src/machines/job-aggregate.js';
import { Epoch, TaskId, type JobId } from '../src/machines/vocabulary.js';
import { systemClock } from '../src/runtime/clock.js';
import { silentLog } from '../src/runtime/log.js';
import { systemRandom, uniquePart } from '../src/runtime/random.js';
import { profileFromPath } from '../src/slurm/index.js';
import { checkRunsDirectory } from '../src/workdir/runs-directory.js';
import { DEFAULT_WORKER_CONFIG, type WorkerDeps } from '../src/worker/context.js';
import { jobForGrant } from '../src/worker/intake.js';
import { JobBook } from '../src/worker/job-book.js';
import { jobDirectories } from '../src/worker/job-directories.js';
import { Submitter } from '../src/worker/submit.js';
import { openBackend, WAITING_PROFILE, writeProfile } from './support/cluster.js';
import { instantCoordinator } from './support/instant-backend.js';
import { took } from './support/measure.js';

/**
 * The process that submissions.ts starts, with `worker DIRECTORY WIDTH`: the worker's parts that submit, without its loop,
 * and with its memory settings. Submits as many as each message says; ends when its parent is gone.
 */
export interface Order {
  readonly count: number;
}

export interface Answer {
  /** Of the accepted jobs. */
  readonly ids: readonly string[];
  /** What the last one submitted. */
  readonly script: string;
  readonly wallMs: number;
  readonly cpuMs: number;
}

const [, , , directory = '.', width = '1'] = process.argv;
mkdirSync(directory);
const runsDir = join(directory, 'runs');
const check = await checkRunsDirectory(runsDir);
if (check.kind !== 'ok') throw new Error(check.problem);
const state = await openStateDirectory(join(directory, 'state'), {
  mode: 'write',
  create: true,
  writer: 'worker bench',
  nowMs: Date.now,
});
const profile = profileFromPath('waiting', writeProfile(directory, 'waiting.sh', WAITING_PROFILE));
const deps: WorkerDeps = {
  name: 'bench',
  backend: await openBackend(),
  coordinator: instantCoordinator,
  store: state.store,
  directories: jobDirectories(runsDir, silentLog),
  profiles: new Map([[profile.name, profile]]),
  clock: systemClock,
  random: systemRandom,
  log: silentLog,
  config: { ...DEFAULT_WORKER_CONFIG, submitConcurrency: Number(width) },
  sessions: null,
};
const book = await JobBook.open(state.store);
const submitter = new Submitter(deps, book, () => Promise.reject(new Error('no sessions here')));
keepHeapSmall();

const grantOf = (n: number): LeaseGrant => ({
  taskId: TaskId.parse(`task_${uniquePart(Date.now(), systemRandom)}`),
  epoch: Epoch.parse(1),
  kind: 'training',
  payload: { profile: 'waiting', parameters: { message: `task ${n}` } },
  ttlMs: 900_000,
  openJobs: [],
});

/** As the worker does it: what was leased together is recorded together. */
async function open(count: number): Promise<readonly JobId[]> {
  const { profiles, backend, random, config, clock } = deps;
  const { watchLimitMs } = config;
  const context = { profiles, backend, random, nowMs: clock.nowMs(), watchLimitMs, kinds: ['training'] };
  const jobs = Array.from({ length: count }, (_, n) => jobForGrant(grantOf(n), context));
  await book.record(jobs.map(({ created, more }) => ({ jobId: created.jobId, events: [created, ...more] })));
  return jobs.map(({ created }) => created.jobId);
}

async function submit(jobId: JobId): Promise<string> {
  const result = await submitter.submit(jobId, () => true);
  if (result.kind !== 'done') throw new Error(result.detail);
  const job = book.get(jobId);
  const handle = job === null ? null : contextOf(job).handle;
  if (handle === null) throw new Error('a submission was not accepted');
  return handle.id;
}

async function carryOut({ count }: Order): Promise<Answer> {
  const ids: string[] = [];
  let script = '';
  const { wallMs, cpuMs } = await took(async () => {
    const jobIds = (await open(count)).values();
    const lane = async (): Promise<void> => {
      for (const jobId of jobIds) {
        ids.push(await submit(jobId));
        script = join(deps.directories.path(jobId), 'run.sh');
      }
    };
    await Promise.all(Array.from({ length: submitter.width }, lane));
  });
  return { ids, script, wallMs, cpuMs };
}

const reply = (answer: Answer): void => void process.send?.(answer);

process.on('message', (order: Order) => {
  carryOut(order).then(reply, (error: unknown) => {
    console.error(error);
    process.exit(1);
  });
});
process.once('disconnect', () => {
  void deps.backend
    .close()
    .then(() => state.close())
    .then(() => process.exit(0));
});
reply({ ids: [], script: '', wallMs: 0, cpuMs: 0 });
