import type { Profile } from '../../src/backend.js';
import { MemoryEventStore, type FaultHook } from '../../src/events/memory-store.js';
import type { RecordedEvent } from '../../src/events/store.js';
import { contextOf, evolveJob, type Job } from '../../src/machines/job-aggregate.js';
import type { JobEvent } from '../../src/machines/job-events.js';
import type { Log } from '../../src/runtime/log.js';
import { DEFAULT_WORKER_CONFIG, type WorkerConfig, type WorkerDeps } from '../../src/worker/context.js';
import { Worker } from '../../src/worker/worker.js';
import { FakeBackend } from './fake-backend.js';
import { FakeCoordinator } from './fake-coordinator.js';
import { FakeDirectories } from './fake-directories.js';
import { flush, ManualClock } from './manual-clock.js';
import { profile } from './profiles.js';
import { SeededRandom } from './seeded-random.js';

/** As often as the loop looks for end markers; a long wait goes in longer steps. */
const STEP_MS = 200;
const LONG_MS = 300_000;
const LONG_STEP_MS = 1000;

const isJobEvent = ({ stream }: RecordedEvent, event: RecordedEvent['event']): event is JobEvent =>
  stream.startsWith('job/') && !event.type.startsWith('task.');

/** The production worker between fakes, with time that moves only when the test says so. */
export class WorkerWorld {
  readonly clock = new ManualClock();
  readonly backend = new FakeBackend(this.clock);
  readonly coordinator = new FakeCoordinator();
  readonly directories = new FakeDirectories();
  readonly profiles = new Map<string, Profile>([['smoke', profile()]]);
  readonly logged: string[] = [];
  readonly config: WorkerConfig;
  onAppend: FaultHook = () => undefined;
  store = new MemoryEventStore({
    writer: 'test',
    nowMs: () => this.clock.nowMs(),
    onAppend: (when, appends) => {
      this.onAppend(when, appends);
    },
  });
  #worker: Worker | null = null;

  constructor(config: Partial<WorkerConfig> = {}) {
    this.config = { ...DEFAULT_WORKER_CONFIG, ...config };
  }

  get worker(): Worker {
    if (this.#worker === null) throw new Error('the worker is not started');
    return this.#worker;
  }

  async start(): Promise<Worker> {
    const worker = await Worker.start(this.deps(), new AbortController().signal);
    if (worker === null) throw new Error('the worker did not start');
    this.#worker = worker;
    return worker;
  }

  /** The worker's memory is gone; its log is not. What it still tries to write is refused. */
  async crash(): Promise<void> {
    this.store = this.store.reopen();
    this.#worker = null;
    await flush();
  }

  /** One round of the loop, and everything that it set off and that waits for no time. */
  async round(stepMs = STEP_MS): Promise<void> {
    const { coordinator, worker } = this;
    if (coordinator.grants.length > 0 && coordinator.trouble === null) {
      await worker.acquire(new AbortController().signal);
    }
    await worker.round();
    for (let turn = 0; turn < 20; turn += 1) await flush();
    await this.clock.advance(stepMs);
  }

  async run(ms: number): Promise<void> {
    const endMs = this.clock.monotonicMs() + ms;
    const stepMs = ms > LONG_MS ? LONG_STEP_MS : STEP_MS;
    while (this.clock.monotonicMs() < endMs) await this.round(stepMs);
  }

  /** Runs until `look` answers true; throws after `limitMs` of the manual clock. */
  async until(look: (jobs: readonly Job[]) => boolean, limitMs = 600_000): Promise<void> {
    const endMs = this.clock.monotonicMs() + limitMs;
    while (!look(await this.jobs())) {
      if (this.clock.monotonicMs() > endMs)
        throw new Error(`not seen within ${String(limitMs)} ms: ${look.toString()}`);
      await this.round();
    }
  }

  /** Every job as the log alone tells it, the oldest first. */
  async jobs(): Promise<readonly Job[]> {
    const jobs = new Map<string, Job>();
    for (const recorded of await this.recorded()) {
      const { stream, event } = recorded;
      if (isJobEvent(recorded, event)) jobs.set(stream, evolveJob(jobs.get(stream) ?? null, event));
    }
    return [...jobs.values()];
  }

  /** The one job that there is. Throws if there are none or several. */
  async job(): Promise<Job> {
    const [job, ...others] = await this.jobs();
    if (job === undefined || others.length > 0) throw new Error(`one job expected, not ${String(others.length + 1)}`);
    return job;
  }

  async recorded(): Promise<readonly RecordedEvent[]> {
    const all: RecordedEvent[] = [];
    for await (const recorded of this.store.readAll()) all.push(recorded);
    return all;
  }

  /** Types of the events of one job (of the only one, if none is named), in order. */
  async types(job?: Job): Promise<readonly string[]> {
    const { jobId } = contextOf(job ?? (await this.job()));
    return (await this.store.readStream(`job/${jobId}`)).map(({ event }) => event.type);
  }

  deps(): WorkerDeps {
    const { backend, coordinator, store, directories, profiles, clock, config } = this;
    const say = (fields: object, message: string): void => {
      this.logged.push(`${message} ${JSON.stringify(fields)}`);
    };
    const log: Log = { info: say, warn: say, error: say };
    const random = new SeededRandom(1);
    return {
      name: 'w',
      backend,
      coordinator,
      store,
      directories,
      profiles,
      clock,
      random,
      log,
      config,
      sessions: null,
    };
  }
}
