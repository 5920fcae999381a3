import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Backend } from '../src/backend.js';
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
import type { Bench } from './support/bench.js';
import { cancelJobs, command, openBackend, WAITING_PROFILE, writeProfile } from './support/cluster.js';
import { atLeast, compared, median } from './support/figures.js';
import { instantCoordinator } from './support/instant-backend.js';
import { inParallel, rate, took } from './support/measure.js';

const ROUNDS = 9;
const PER_ROUND = 40;

/** The whole way from a lease to an accepted submission, against a loop that submits the same script. */
export const submissions: Bench = {
  name: 'submissions',
  summary: 'submissions per second, durable appends and job directory included, against a plain sbatch loop',
  needsCluster: true,
  run: async ({ directory, divisor }) => {
    const count = Math.ceil(PER_ROUND / divisor);
    const backend = await openBackend();
    const state = await openStateDirectory(join(directory, 'state'), {
      mode: 'write',
      create: true,
      writer: 'worker bench',
      nowMs: Date.now,
    });
    try {
      const ours = await Ours.open(directory, backend, state.store);
      const script = join(directory, 'plain.sh');
      copyFileSync(await ours.anyScript(), script);
      const figures = [];
      for (const width of [1, 8]) {
        const rounds: { ours: number; raw: number; cpuMs: number }[] = [];
        for (let round = 0; round < ROUNDS; round += 1) {
          const raw = await plainLoop(script, count, width);
          const whole = await took(() => ours.submit(count, width));
          rounds.push({ ours: rate(count, whole.wallMs), raw: rate(count, raw.wallMs), cpuMs: whole.cpuMs / count });
          await cancelJobs([...raw.ids, ...whole.value]);
        }
        const { note, ...figure } = compared(rounds);
        figures.push({
          ...figure,
          what: width === 1 ? 'submissions, one by one' : `submissions, ${width} at a time`,
          unit: '/s',
          aim: atLeast(0.9, 'ratio'),
          note: `${note}; own CPU ${median(rounds.map(({ cpuMs }) => cpuMs)).toFixed(1)} ms each`,
        });
      }
      return figures;
    } finally {
      await backend.close();
      await state.close();
    }
  },
};

/** The worker's parts that submit, without its loop. */
class Ours {
  readonly #deps: WorkerDeps;
  readonly #book: JobBook;
  readonly #submitter: Submitter;

  private constructor(deps: WorkerDeps, book: JobBook) {
    this.#deps = deps;
    this.#book = book;
    this.#submitter = new Submitter(deps, book);
  }

  static async open(directory: string, backend: Backend, store: WorkerDeps['store']): Promise<Ours> {
    const runsDir = join(directory, 'runs');
    const check = await checkRunsDirectory(runsDir);
    if (check.kind !== 'ok') throw new Error(check.problem);
    const profile = profileFromPath('waiting', writeProfile(directory, 'waiting.sh', WAITING_PROFILE));
    const deps: WorkerDeps = {
      name: 'bench',
      backend,
      coordinator: instantCoordinator,
      store,
      directories: jobDirectories(runsDir, silentLog),
      profiles: new Map([[profile.name, profile]]),
      clock: systemClock,
      random: systemRandom,
      log: silentLog,
      config: DEFAULT_WORKER_CONFIG,
    };
    return new Ours(deps, await JobBook.open(store));
  }

  /** The ids of the accepted jobs. */
  async submit(count: number, width: number): Promise<readonly string[]> {
    const ids: string[] = [];
    await inParallel(count, width, async (n) => {
      const job = this.#book.get(await this.#submitOne(n));
      const handle = job === null ? null : contextOf(job).handle;
      if (handle === null) throw new Error('a submission was not accepted');
      ids.push(handle.id);
    });
    return ids;
  }

  async #submitOne(n: number): Promise<JobId> {
    const { profiles, backend, random, config, clock } = this.#deps;
    const context = { profiles, backend, random, nowMs: clock.nowMs(), watchLimitMs: config.watchLimitMs };
    const { created, more } = jobForGrant(grantOf(n), context);
    await this.#book.create(created, more);
    const result = await this.#submitter.submit(created.jobId, () => true);
    if (result.kind !== 'done') throw new Error(result.detail);
    return created.jobId;
  }

  /** The script of a first submission, which is cancelled at once. */
  async anyScript(): Promise<string> {
    const jobId = await this.#submitOne(0);
    const job = this.#book.get(jobId);
    const handle = job === null ? null : contextOf(job).handle;
    if (handle !== null) await cancelJobs([handle.id]);
    return join(this.#deps.directories.path(jobId), 'run.sh');
  }
}

const grantOf = (n: number): LeaseGrant => ({
  taskId: TaskId.parse(`task_${uniquePart(Date.now(), systemRandom)}`),
  epoch: Epoch.parse(1),
  kind: 'training',
  payload: { profile: 'waiting', parameters: { message: `task ${n}` } },
  ttlMs: 900_000,
  openJobs: [],
});

/** What somebody would do by hand: a shell loop, or xargs for several at a time. */
async function plainLoop(
  script: string,
  count: number,
  width: number,
): Promise<{ wallMs: number; ids: readonly string[] }> {
  const one = `sbatch --parsable --output=/dev/null '${script}'`;
  const text =
    width === 1 ? `for n in $(seq ${count}); do ${one}; done` : `seq ${count} | xargs -P ${width} -I '{}' ${one}`;
  const { value, wallMs } = await took(() => command('sh', '-c', text));
  const ids = value.split('\n').filter((line) => line !== '');
  if (ids.length !== count) throw new Error(`${ids.length} of ${count} plain submissions were accepted`);
  return { wallMs, ids };
}
