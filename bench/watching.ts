import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { WatchItem } from '../src/backend.js';
import { CoordinatorClient } from '../src/coordinator/client.js';
import { openStateDirectory } from '../src/events/state-directory.js';
import { contextOf } from '../src/machines/job-aggregate.js';
import { mintedAtMs } from '../src/machines/vocabulary.js';
import { systemClock } from '../src/runtime/clock.js';
import { systemRandom } from '../src/runtime/random.js';
import { queueArgv } from '../src/slurm/queue.js';
import { JobBook } from '../src/worker/job-book.js';
import type { Bench, BenchContext } from './support/bench.js';
import {
  cancelJobs,
  clusterConfig,
  command,
  countingCommands,
  openBackend,
  wallMs,
  WAITING_PROFILE,
  writeProfile,
} from './support/cluster.js';
import { atMost, median, spread, type Figure } from './support/figures.js';
import { inParallel, took, until } from './support/measure.js';
import { answered, cpuS, Gateway, memoryMB, type Service } from './support/services.js';

const SIZES = [
  { jobs: 200, memoryMax: null },
  { jobs: 1_000, memoryMax: 100 },
  { jobs: 10_000, memoryMax: 130 },
] as const;
const MINUTE_MS = 60_000;
const MINUTES = 2;
const SAMPLE_MS = 250;
/** A pause between two polls that only a worker at rest makes. */
const REST_GAP_MS = 25_000;
const SUBMIT_PATIENCE_MS = 3_600_000;
const OBSERVES = 9;

/** A whole worker process at default settings with many jobs that wait: how often it asks, and what it takes. */
export const watching: Bench = {
  name: 'watching',
  summary: 'scheduler calls, memory and CPU of a worker that watches 200, 1,000 and 10,000 jobs',
  needsCluster: true,
  run: async (context) => {
    const { directory, app, divisor, say } = context;
    const gateway = await Gateway.start(app, directory);
    const calls = countingCommands(directory);
    const profile = writeProfile(directory, 'waiting.sh', WAITING_PROFILE);
    const capacity = ['--capacity', '20000'];
    const path = `${calls.path}:${process.env['PATH'] ?? ''}`;
    const worker = await gateway.startWorker(['--training-profile', `waiting=${profile}`, ...capacity], { PATH: path });
    const figures: Omit<Figure, 'bench'>[] = [];
    const book = new Waiting(gateway);
    try {
      for (const { jobs, memoryMax } of SIZES) {
        const size = Math.ceil(jobs / divisor);
        const filled = await took(() => book.fill(size));
        say(`${size} jobs wait, after ${(filled.wallMs / 1000).toFixed(0)} s; waiting for the worker to be at rest`);
        await atRest(calls.log);
        const seen = await watchFor(MINUTES * MINUTE_MS, worker, calls.log);
        figures.push(...figuresOf(size, memoryMax, seen));
        say(
          `${seen.perMinute} calls a minute, ${seen.highestMB.toFixed(0)} MB, ${seen.cpuPercent.toFixed(1)} % of a CPU`,
        );
      }
    } finally {
      await worker.stop();
      await gateway.stop();
    }
    const { figure, ids } = await observing(context);
    await cancelJobs(ids);
    return [...figures, figure];
  },
};

/** Tasks whose jobs wait at the cluster. */
class Waiting {
  readonly #gateway: Gateway;
  #submitted = 0;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  async fill(size: number): Promise<void> {
    const deps = { clock: systemClock, random: systemRandom };
    const client = new CoordinatorClient(await this.#gateway.credentials('submitter', `client-${size}`), deps);
    await inParallel(size - this.#submitted, 8, async (n) => {
      answered(await client.submit({ kind: 'training', payload: { profile: 'waiting', parameters: { n } } }));
    });
    client.close();
    this.#submitted = size;
    const waiting = async (): Promise<boolean> => {
      const rows = await command('squeue', '--noheader', '--me', '--states=PENDING', '--format=%j');
      return rows.split('\n').filter((name) => name.startsWith('oc-')).length >= size;
    };
    await until(`${size} jobs wait`, waiting, SUBMIT_PATIENCE_MS, 3_000);
  }
}

const callsIn = (log: string): readonly string[] =>
  readFileSync(log, 'utf8')
    .split('\n')
    .filter((line) => line !== '');

async function atRest(log: string): Promise<void> {
  let count = callsIn(log).length;
  let changedAtMs = performance.now();
  const rested = (): boolean => {
    const now = callsIn(log).length;
    if (now === count) return false;
    const gapMs = performance.now() - changedAtMs;
    count = now;
    changedAtMs = performance.now();
    return gapMs >= REST_GAP_MS;
  };
  await until('the worker is at rest', rested, 10 * MINUTE_MS);
}

interface Watched {
  readonly perMinute: number;
  readonly words: string;
  readonly highestMB: number;
  readonly peakMB: number;
  readonly cpuPercent: number;
}

async function watchFor(ms: number, worker: Service, log: string): Promise<Watched> {
  const before = callsIn(log).length;
  const cpuBefore = cpuS(worker.pid);
  const endMs = performance.now() + ms;
  let highestMB = 0;
  while (performance.now() < endMs) {
    highestMB = Math.max(highestMB, memoryMB(worker.pid).nowMB);
    await systemClock.sleep(SAMPLE_MS);
  }
  const fresh = callsIn(log).slice(before);
  return {
    perMinute: fresh.length / (ms / MINUTE_MS),
    words: [...new Set(fresh)].join(', '),
    highestMB,
    peakMB: memoryMB(worker.pid).peakMB,
    cpuPercent: ((cpuS(worker.pid) - cpuBefore) / (ms / 1000)) * 100,
  };
}

function figuresOf(size: number, memoryMax: number | null, seen: Watched): readonly Omit<Figure, 'bench'>[] {
  const jobs = size.toLocaleString('en-US');
  const figure = { raw: null, ratio: null };
  return [
    {
      ...figure,
      what: `scheduler calls in a minute, ${jobs} jobs watched`,
      unit: 'calls',
      ours: seen.perMinute,
      aim: atMost(2),
      note: `${seen.words}, counted by wrappers on PATH over ${MINUTES} min at rest; the worker used ${seen.cpuPercent.toFixed(1)} % of a CPU`,
    },
    {
      ...figure,
      what: `memory of the worker process, ${jobs} jobs watched`,
      unit: 'MB',
      ours: seen.highestMB,
      aim: memoryMax === null ? null : atMost(memoryMax),
      note: `highest resident size in ${MINUTES} min at rest; highest since its start, submissions included: ${seen.peakMB.toFixed(0)} MB`,
    },
  ];
}

/** One question about all of the stopped worker's jobs: our CPU against the time of the command alone. */
async function observing({
  directory,
  say,
}: BenchContext): Promise<{ figure: Omit<Figure, 'bench'>; ids: readonly string[] }> {
  const state = await openStateDirectory(join(directory, 'worker'), { mode: 'read', writer: 'bench', nowMs: Date.now });
  const book = await JobBook.open(state.store);
  const items = [...book.all()].map((job): WatchItem => {
    const { jobId, token, handle } = contextOf(job);
    return { jobId, token, handle, sinceMs: mintedAtMs(token) };
  });
  const ids = items.flatMap(({ handle }) => handle?.id ?? []);
  await state.close();
  const backend = await openBackend();
  const argv = queueArgv({ uid: clusterConfig().user.uid, cluster: null, header: false });
  const rounds: { cpuMs: number; bareMs: number }[] = [];
  for (let round = 0; round < OBSERVES; round += 1) {
    const bareMs = await wallMs('squeue', argv);
    const { value, cpuMs } = await took(() => backend.observe(items));
    const seen = [...value.jobs.values()].filter(({ kind }) => kind === 'seen').length;
    if (seen !== items.length) throw new Error(`${seen} of ${items.length} jobs were seen`);
    rounds.push({ cpuMs, bareMs });
  }
  await backend.close();
  const [first, ...later] = rounds;
  say(`observed ${items.length} jobs; the first time took ${first?.cpuMs.toFixed(0) ?? '?'} ms of CPU`);
  const shares = later.map(({ cpuMs, bareMs }) => (cpuMs / bareMs) * 100);
  return {
    ids,
    figure: {
      what: `own CPU of one observe of ${items.length.toLocaleString('en-US')} jobs`,
      unit: 'ms',
      ours: median(later.map(({ cpuMs }) => cpuMs)),
      raw: median(later.map(({ bareMs }) => bareMs)),
      ratio: median(shares) / 100,
      aim: atMost(0.2, 'ratio'),
      note: `raw: wall time of the bare squeue; percent: ${spread(shares)}; the first observe of a process: ${first?.cpuMs.toFixed(0) ?? '?'} ms`,
    },
  };
}
