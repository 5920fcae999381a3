import { join } from 'node:path';
import { CoordinatorClient } from '../src/coordinator/client.js';
import type { Principal } from '../src/coordinator/principal.js';
import { Coordinator } from '../src/coordinator/service.js';
import { WorkerClient } from '../src/coordinator/worker-client.js';
import type { WorkerPort } from '../src/coordinator/worker-api.js';
import { openForWriting } from '../src/events/sqlite-schema.js';
import { openStateDirectory } from '../src/events/state-directory.js';
import { systemClock } from '../src/runtime/clock.js';
import { systemRandom } from '../src/runtime/random.js';
import type { Bench } from './support/bench.js';
import { median, spread } from './support/figures.js';
import { inParallel, rate, took } from './support/measure.js';
import { answered, Gateway } from './support/services.js';
import { completedBy, HELLO, newJob, portAnswered, taskOf } from './support/tasks.js';

const ROUNDS = 5;
const ONE_BY_ONE = 200;
const TOGETHER = 2_000;
const WIDTH = 32;
/** Durable commits of one cycle: submitted, leased, completed. */
const COMMITS = 3;

/** One task at the coordinator from submission to result, with everything on disk. */
export const cycles: Bench = {
  name: 'cycles',
  summary: 'coordinator task cycles (submit, lease, complete) per second, durable',
  needsCluster: false,
  run: async ({ directory, app, divisor }) => {
    const bare = await bareCommits(directory, Math.ceil(ONE_BY_ONE / divisor));
    const figures = [];
    for (const [where, open] of [
      ['in process', inProcess],
      ['over HTTP', overHttp],
    ] as const) {
      const { submit, worker, close } = await open(directory, app);
      try {
        portAnswered(await worker.hello(HELLO));
        const alone: number[] = [];
        const together: number[] = [];
        for (let round = 0; round < ROUNDS; round += 1) {
          alone.push(await cyclesPerSecond(submit, worker, Math.ceil(ONE_BY_ONE / divisor), 1));
          together.push(await cyclesPerSecond(submit, worker, Math.ceil(TOGETHER / divisor), WIDTH));
        }
        const figure = { unit: '/s', aim: null };
        figures.push(
          {
            ...figure,
            what: `task cycles ${where}, one by one`,
            ours: median(alone),
            raw: bare,
            ratio: median(alone) / bare,
            note: `raw: ${COMMITS} bare commits; ${spread(alone)}`,
          },
          {
            ...figure,
            what: `task cycles ${where}, ${WIDTH} at a time`,
            ours: median(together),
            raw: null,
            ratio: null,
            note: spread(together),
          },
        );
      } finally {
        await close();
      }
    }
    return figures;
  },
};

type Submit = (n: number) => Promise<void>;

interface Opened {
  readonly submit: Submit;
  readonly worker: WorkerPort;
  readonly close: () => Promise<void>;
}

/** `width` tasks are submitted at a time; whatever waits is leased in one call and completed, `width` at a time. */
async function cyclesPerSecond(submit: Submit, worker: WorkerPort, count: number, width: number): Promise<number> {
  const { wallMs } = await took(async () => {
    for (let done = 0; done < count;) {
      const batch = Math.min(width, count - done);
      await inParallel(batch, width, (index) => submit(done + index));
      for (let leased = 0; leased < batch;) {
        const grants = portAnswered(await worker.acquire({ count: batch - leased, waitMs: 1_000 }));
        await inParallel(grants.length, width, async (index) => {
          const grant = grants[index];
          if (grant !== undefined) portAnswered(await worker.outcome(completedBy(grant, newJob().jobId)));
        });
        leased += grants.length;
      }
      done += batch;
    }
  });
  return rate(count, wallMs);
}

async function inProcess(directory: string): Promise<Opened> {
  const state = await openStateDirectory(join(directory, 'state'), {
    mode: 'write',
    create: true,
    writer: 'coordinator',
    nowMs: Date.now,
  });
  const coordinator = await Coordinator.open({ store: state.store, clock: systemClock, random: systemRandom });
  const client: Principal = { id: 'client-1', name: 'client', role: 'submitter' };
  return {
    submit: async (n) => {
      const given = await coordinator.client.submit(client, taskOf(n), null);
      if (!given.ok) throw new Error(given.problem.message);
    },
    worker: coordinator.workerPort({ id: 'worker-1', name: 'worker', role: 'worker' }),
    close: async () => {
      await coordinator.close();
      await state.close();
    },
  };
}

async function overHttp(directory: string, app: string): Promise<Opened> {
  const gateway = await Gateway.start(app, directory);
  const client = new CoordinatorClient(await gateway.credentials('submitter', 'client'), {
    clock: systemClock,
    random: systemRandom,
  });
  const worker = new WorkerClient(await gateway.credentials('worker', 'worker'), systemClock);
  return {
    submit: async (n) => {
      answered(await client.submit(taskOf(n)));
    },
    worker,
    close: async () => {
      client.close();
      worker.close();
      await gateway.stop();
    },
  };
}

/** How often a second better-sqlite3 alone makes a cycle's commits, of the same size. */
async function bareCommits(directory: string, count: number): Promise<number> {
  const bare = openForWriting(join(directory, 'bare.db'));
  const insert = bare.prepare('insert into events(stream, version, data, recorded_at, writer) values (?, ?, ?, ?, ?)');
  const data = JSON.stringify({ type: 'task.submitted', ...taskOf(1), filler: 'x'.repeat(150) });
  const rounds: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const { wallMs } = await took(() => {
      for (let n = 0; n < count; n += 1)
        for (let version = 1; version <= COMMITS; version += 1)
          insert.run(`task/${round}-${n}`, version, data, Date.now(), 'bench');
    });
    rounds.push(rate(count, wallMs));
  }
  bare.close();
  return median(rounds);
}
