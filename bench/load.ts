import { setMaxListeners } from 'node:events';
import { CoordinatorClient } from '../src/coordinator/client.js';
import { WorkerClient } from '../src/coordinator/worker-client.js';
import type { TaskId } from '../src/machines/vocabulary.js';
import { systemClock } from '../src/runtime/clock.js';
import { systemRandom } from '../src/runtime/random.js';
import type { Bench } from './support/bench.js';
import { inParallel, rate, until } from './support/measure.js';
import { answered, cpuS, Gateway, memoryMB } from './support/services.js';
import { completedBy, HELLO, newJob, portAnswered, taskOf } from './support/tasks.js';

const WORKERS = 100;
const TASKS = 20_000;
const SUBMITTERS = 32;
/** What one worker has at a time. */
const GRANTS = 4;
const WAIT_MS = 20_000;
const PATIENCE_MS = 900_000;
const SAMPLE_MS = 500;

/** 100 workers, 20,000 tasks, long-polled leases, one client that watches everything: nothing may be lost. */
export const load: Bench = {
  name: 'load',
  summary: '100 workers against one coordinator, 20,000 tasks, one client that watches everything',
  needsCluster: false,
  run: async ({ directory, app, divisor, say }) => {
    const tasks = Math.ceil(TASKS / divisor);
    const gateway = await Gateway.start(app, directory);
    const { pid } = gateway.service;
    const stop = new AbortController();
    setMaxListeners(0, stop.signal); // every worker waits with it
    try {
      const watched = new Watched();
      const watching = watched.follow(gateway.admin, stop.signal);
      const crowd = new Crowd(tasks);
      const leasing = await crowd.start(gateway, stop.signal);
      const idleMB = memoryMB(pid).nowMB;
      const memory = new Memory(pid);
      const sampling = memory.sample(stop.signal);
      const startedMs = performance.now();
      const startedCpuS = cpuS(pid);
      const submitting = submitAll(gateway, tasks);
      await until('every task is completed', () => crowd.completed >= tasks, PATIENCE_MS);
      const wallS = (performance.now() - startedMs) / 1000;
      const usedS = cpuS(pid) - startedCpuS;
      const ids = await submitting;
      await until('every end is told', () => watched.over.size >= tasks, PATIENCE_MS);
      const listed = await countCompleted(gateway.admin);
      stop.abort();
      await Promise.all([watching, sampling, ...leasing]);
      const lost = ids.filter((id) => watched.over.get(id) !== 'Completed').length;
      say(
        `${crowd.completed} completed, ${crowd.doubled} leased twice, ${watched.changes} changes seen, ${watched.gaps} out of order`,
      );
      if (listed !== tasks) throw new Error(`${listed} tasks are listed as Completed, not ${tasks}`);
      const figure = { raw: null, ratio: null, aim: null };
      return [
        {
          ...figure,
          what: `${WORKERS} workers, ${tasks.toLocaleString('en-US')} tasks: tasks lost, doubled or told out of order`,
          unit: 'tasks',
          ours: lost + crowd.doubled + watched.gaps,
          aim: { of: 'ours', is: 'atMost', value: 0 },
          note: `${watched.changes.toLocaleString('en-US')} changes told to one watcher, each once and in order`,
        },
        {
          ...figure,
          what: 'tasks from submission to result',
          unit: '/s',
          ours: rate(tasks, wallS * 1000),
          note: `${wallS.toFixed(0)} s; the coordinator used ${usedS.toFixed(0)} s of CPU: ${((usedS / tasks) * 1000).toFixed(2)} ms a task; workers and clients shared the machine`,
        },
        {
          ...figure,
          what: "the coordinator's memory, highest",
          unit: 'MB',
          ours: memory.highestMB,
          raw: idleMB,
          ratio: memory.highestMB / idleMB,
          note: 'raw: with all workers waiting and nothing to do',
        },
      ];
    } finally {
      stop.abort();
      await gateway.stop();
    }
  },
};

/** The client that watches everything. */
class Watched {
  readonly over = new Map<TaskId, string>();
  changes = 0;
  gaps = 0;

  async follow(client: CoordinatorClient, signal: AbortSignal): Promise<void> {
    let position = 0;
    for await (const item of client.watchAll(signal)) {
      if (item.kind !== 'change') throw new Error(`the watch: ${JSON.stringify(item)}`);
      const { change } = item;
      if (change.position <= position) this.gaps += 1;
      position = change.position;
      this.changes += 1;
      if (change.phase !== 'Queued' && change.phase !== 'Leased') this.over.set(change.taskId, change.phase);
    }
  }
}

/** The workers: each waits for leases, opens a job, says that it runs, completes it. */
class Crowd {
  completed = 0;
  doubled = 0;
  readonly #leased = new Set<TaskId>();
  readonly #tasks: number;

  constructor(tasks: number) {
    this.#tasks = tasks;
  }

  async start(gateway: Gateway, signal: AbortSignal): Promise<readonly Promise<void>[]> {
    const loops: Promise<void>[] = [];
    for (let n = 0; n < WORKERS; n += 1) {
      const client = new WorkerClient(await gateway.credentials('worker', `worker-${n}`), systemClock);
      portAnswered(await client.hello(HELLO));
      loops.push(this.#work(client, signal).finally(() => client.close()));
    }
    return loops;
  }

  async #work(client: WorkerClient, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && this.completed < this.#tasks) {
      const answer = await client.acquire({ count: GRANTS, waitMs: WAIT_MS }, signal);
      // At the end the long polls of all others are broken off.
      if (answer.kind === 'unreachable' && this.completed >= this.#tasks) return;
      for (const grant of portAnswered(answer)) {
        if (this.#leased.has(grant.taskId)) this.doubled += 1;
        this.#leased.add(grant.taskId);
        const { taskId, epoch } = grant;
        const { jobId, token } = newJob();
        portAnswered(
          await client.report([
            { type: 'opened', taskId, epoch, jobId, token },
            { type: 'progressed', taskId, epoch, jobId, phase: 'Running', reason: null, detail: '' },
          ]),
        );
        portAnswered(await client.outcome(completedBy(grant, jobId)));
        this.completed += 1;
      }
    }
  }
}

class Memory {
  readonly #pid: number;
  highestMB = 0;

  constructor(pid: number) {
    this.#pid = pid;
  }

  async sample(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.highestMB = Math.max(this.highestMB, memoryMB(this.#pid).nowMB);
      await systemClock.sleep(SAMPLE_MS, signal);
    }
  }
}

async function submitAll(gateway: Gateway, tasks: number): Promise<readonly TaskId[]> {
  const deps = { clock: systemClock, random: systemRandom };
  const client = new CoordinatorClient(await gateway.credentials('submitter', 'client'), deps);
  const ids: TaskId[] = [];
  await inParallel(tasks, SUBMITTERS, async (n) => {
    ids.push(answered(await client.submit(taskOf(n))).taskId);
  });
  client.close();
  return ids;
}

async function countCompleted(client: CoordinatorClient): Promise<number> {
  let count = 0;
  for (let cursor: number | null | undefined = undefined; cursor !== null;) {
    const page: { readonly tasks: readonly unknown[]; readonly next: number | null } = answered(
      await client.list({ phase: 'Completed', limit: 1000, ...(cursor === undefined ? {} : { cursor }) }),
    );
    count += page.tasks.length;
    cursor = page.next;
  }
  return count;
}
