import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { openStateDirectory } from '../src/events/state-directory.js';
import type { Append } from '../src/events/store.js';
import { JobId, TaskId, Token } from '../src/machines/vocabulary.js';
import { systemRandom, uniquePart } from '../src/runtime/random.js';
import { JobBook } from '../src/worker/job-book.js';
import { DEFAULT_WORKER_CONFIG } from '../src/worker/context.js';
import { at, created } from '../test/support/job-events.js';
import type { Bench } from './support/bench.js';
import { atMost, median, spread } from './support/figures.js';

const JOBS = 100_000;
const ROUNDS = 5;
const JOBS_PER_APPEND = 500;

/**
 * A worker process that starts again with 100,000 jobs in its log, up to its first question to the backend. Backend and
 * coordinator answer at once, inside the process; everything else is the worker's own: Node's start, the lock, the log.
 */
export const restart: Bench = {
  name: 'restart',
  summary: 'restart with 100,000 live jobs to the first poll',
  needsCluster: false,
  run: async ({ directory, divisor, say }) => {
    const jobs = Math.ceil(JOBS / divisor);
    const tail = Math.min(DEFAULT_WORKER_CONFIG.checkpointEvery, jobs) - 1;
    await writeLog(directory, jobs);
    say(`a log of ${jobs} live jobs`);
    const clean = await rounds(directory, jobs);
    await writeTail(directory, jobs, tail);
    const killed = await rounds(directory, jobs);
    const figure = (what: string, starts: readonly Start[], note: string) => ({
      what,
      unit: 's',
      ours: median(starts.map(({ wallMs }) => wallMs)) / 1000,
      raw: null,
      ratio: null,
      aim: atMost(1),
      note: `${note}; ${spread(starts.map(({ wallMs }) => wallMs / 1000))}; CPU ${median(starts.map(({ cpuMs }) => cpuMs / 1000)).toFixed(2)} s`,
    });
    return [
      figure(
        `restart with ${jobs.toLocaleString('en-US')} live jobs, after a clean stop`,
        clean,
        'from spawn to the first observe',
      ),
      figure(
        `restart with ${jobs.toLocaleString('en-US')} live jobs, after a kill`,
        killed,
        `${tail.toLocaleString('en-US')} events after the last checkpoint, as many as there can be`,
      ),
    ];
  },
};

interface Start {
  readonly wallMs: number;
  readonly cpuMs: number;
}

async function rounds(directory: string, jobs: number): Promise<readonly Start[]> {
  const starts: Start[] = [];
  for (let round = 0; round < ROUNDS; round += 1) starts.push(await start(directory, jobs));
  return starts;
}

/** One start of a worker process, which ends itself at its first poll without a trace in the log. */
async function start(directory: string, jobs: number): Promise<Start> {
  const startedMs = performance.now();
  const { text: said, wallMs } = await new Promise<{ text: string; wallMs: number }>((resolve, reject) => {
    const child = spawn(process.execPath, [fileURLToPath(new URL('restarted-worker.js', import.meta.url)), directory], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    let polled = NaN;
    child.stdout.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      if (text.endsWith('\n')) polled = performance.now();
    });
    // Its lock goes with it: the next one must not come before.
    child.once('exit', () => {
      if (Number.isNaN(polled)) reject(new Error(`the worker ended without a poll: ${text}`));
      else resolve({ text, wallMs: polled - startedMs });
    });
  });
  const [watched = NaN, cpuMs = NaN] = said.trim().split(' ').map(Number);
  if (watched !== jobs) throw new Error(`${watched} jobs were watched, not ${jobs}`);
  return { wallMs, cpuMs };
}

async function writeLog(directory: string, jobs: number): Promise<void> {
  const nowMs = Date.now();
  const state = await openStateDirectory(directory, { mode: 'write', writer: 'bench', nowMs: Date.now });
  for (let from = 0; from < jobs; from += JOBS_PER_APPEND) {
    const count = Math.min(JOBS_PER_APPEND, jobs - from);
    await state.store.appendAll(Array.from({ length: count }, (_, index) => liveJob(from + index, nowMs)));
  }
  const book = await JobBook.open(state.store);
  await book.checkpoint(0);
  await state.close();
}

/** Created, submitted, accepted, seen waiting. */
function liveJob(n: number, nowMs: number): Append {
  const unique = (): string => uniquePart(nowMs, systemRandom);
  const jobId = JobId.parse(`job_${unique()}`);
  const event = at(nowMs);
  const handle = { id: String(n + 1), cluster: null, submittedAtMs: nowMs };
  const seen = event.pending('queued', 'Priority');
  return {
    stream: `job/${jobId}`,
    expectedVersion: 0,
    events: [
      created({
        jobId,
        taskId: TaskId.parse(`task_${unique()}`),
        token: Token.parse(unique()),
        atMs: nowMs,
        watchUntilMs: nowMs + 86_400_000,
      }),
      event.started(),
      event.accepted(handle),
      seen.type === 'job.observed' ? { ...seen, handle } : seen,
    ],
  };
}

/** What is lost of the checkpoint when the worker is killed just before the next one. */
async function writeTail(directory: string, jobs: number, tail: number): Promise<void> {
  const state = await openStateDirectory(directory, { mode: 'write', writer: 'bench', nowMs: Date.now });
  const book = await JobBook.open(state.store);
  const some = [...book.all()].slice(0, tail).map((job) => job.snapshot.context.jobId);
  for (let from = 0; from < some.length; from += JOBS_PER_APPEND) {
    await book.record(
      some.slice(from, from + JOBS_PER_APPEND).map((jobId) => ({ jobId, events: [at(Date.now()).running()] })),
    );
  }
  await state.close();
  if (book.size !== jobs) throw new Error('the tail ended jobs');
}
