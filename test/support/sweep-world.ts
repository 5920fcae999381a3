import { Coordinator } from '../../src/coordinator/service.js';
import type { Principal } from '../../src/coordinator/principal.js';
import { MemoryEventStore } from '../../src/events/memory-store.js';
import type { EventStore, RecordedEvent } from '../../src/events/store.js';
import { isJobEvent } from '../../src/events/schemas.js';
import { contextOf, evolveJob, type Job } from '../../src/machines/job-aggregate.js';
import { isSettled } from '../../src/machines/job-asks.js';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { silentLog } from '../../src/runtime/log.js';
import { DEFAULT_WORKER_CONFIG, type WorkerDeps } from '../../src/worker/context.js';
import { Worker } from '../../src/worker/worker.js';
import { FakeBackend, TIMING } from './fake-backend.js';
import { FakeDirectories } from './fake-directories.js';
import { FaultPlan, intercepted, type Effect, type Fault, type Side } from './fault-plan.js';
import { flush, ManualClock } from './manual-clock.js';
import { profile } from './profiles.js';
import { SeededRandom } from './seeded-random.js';

const ALICE: Principal = { id: 'alice-1', name: 'alice', role: 'submitter' };
const WORKER: Principal = { id: 'w-1', name: 'w', role: 'worker' };
const STEP_MS = 200;
/** Whoever waits for longer than this waits for a time-out: the clock may go in longer steps. */
const BRISK_MS = 5_000;
const LONG_STEP_MS = 1_000;
const FLUSHES = 6;
/** Long enough for a conclusive negative, a lease that runs out, and every back-off of one failure. */
const LIMIT_MS = 20 * 60_000;
const RUNS_AFTER_MS = 400;
const ENDS_AFTER_MS = 1_000;

const BACKEND_CALLS = ['selfTest', 'prepare', 'submit', 'endAttempt', 'observe', 'cancel'] as const;
const DIRECTORY_CALLS = ['prepare', 'collect', 'endMarker', 'tails', 'remove', 'takeWakes'] as const;
const WORKER_CALLS = ['hello', 'acquire', 'renew', 'report', 'outcome', 'putLogs'] as const;

/** Times short enough for a thousand lives. */
class QuickBackend extends FakeBackend {
  override readonly timing = { ...TIMING, settleMs: 6_000, lossGraceMs: 6_000 };
}

/** One way that a task's life can go, without faults. */
export interface Story {
  /** What the first submission meets. */
  readonly firstSubmission: 'answered' | 'answerLost' | 'requestLost';
  /** What becomes of the first job; `cancelled`: somebody cancels once it runs; `lost`: its node fails. */
  readonly end: 'completes' | 'cancelled' | 'lost';
}

/** Where a world begins that is not new: the truth of another one, and logs that may hold less than it. */
export interface Beginning {
  readonly world: SweepWorld;
  readonly worker: MemoryEventStore;
  readonly coordinator: MemoryEventStore;
}

interface Life {
  dead: boolean;
  ended: boolean;
  readonly stop: AbortController;
}

interface Logs {
  readonly worker: MemoryEventStore;
  readonly coordinator: MemoryEventStore;
}

/**
 * The production worker and coordinator, each over its own log, with one task, a backend whose jobs go their way by
 * themselves, and one effect that fails. Whoever crashes or stops is started again on the same log. A dead process does
 * nothing any more: its calls hang for ever.
 */
export class SweepWorld {
  readonly clock: ManualClock;
  readonly backend: FakeBackend;
  readonly directories: FakeDirectories;
  readonly logs: Logs;
  readonly plan: FaultPlan;
  restarts = 0;
  readonly #story: Story;
  readonly #random: SeededRandom;
  #coordinator: Coordinator | null = null;
  #coordinatorLife: Life = { dead: true, ended: false, stop: new AbortController() };
  #workerLife: Life = { dead: true, ended: false, stop: new AbortController() };
  readonly #startedAtMs: number;
  #tickAtMs = 0;
  #busy = new Map<string, Promise<void>>();
  taskId: TaskId | null = null;
  #cancelled = false;

  /** `at`: index of the effect that fails; null: none does. */
  constructor(story: Story, at: number | null = null, fault: Fault = 'crashBefore', from?: Beginning) {
    this.#story = story;
    this.clock = from?.world.clock ?? new ManualClock();
    this.backend = from?.world.backend ?? new QuickBackend(this.clock);
    this.directories = from?.world.directories ?? new FakeDirectories();
    // Nobody mints an id that somebody minted before.
    this.#random = new SeededRandom(from === undefined ? 1 : 2);
    this.#startedAtMs = this.clock.monotonicMs();
    const empty = (writer: string) => new MemoryEventStore({ writer, nowMs: () => this.clock.nowMs() });
    this.logs = from ?? { worker: empty('worker'), coordinator: empty('coordinator') };
    this.plan = new FaultPlan(at, fault, (side) => {
      if (side === 'worker') this.#workerLife.dead = true;
      else this.#coordinatorLife.dead = true;
    });
    if (from !== undefined) return;
    const lost = { kind: 'timedOut', afterMs: 60_000, detail: 'no answer', hint: null } as const;
    if (story.firstSubmission === 'answerLost') this.backend.plans.push({ lands: true, reply: lost });
    if (story.firstSubmission === 'requestLost') this.backend.plans.push({ lands: false, reply: lost });
  }

  /** Runs until the task is over and every job is settled, and for at least `leastMs`; throws if it does not settle. */
  async settle(leastMs = 0): Promise<void> {
    const leastEndMs = this.clock.monotonicMs() + leastMs;
    const endMs = this.clock.monotonicMs() + LIMIT_MS;
    for (let step = 1; ; step += 1) {
      await this.step();
      const isDue = step % 5 === 0 && this.clock.monotonicMs() >= leastEndMs;
      if (isDue && (await this.#isSettled())) break;
      if (this.clock.monotonicMs() > endMs) throw new Error(`not settled: ${JSON.stringify(await this.summary())}`);
    }
    this.#workerLife.stop.abort();
    this.#workerLife.dead = true;
  }

  async step(): Promise<void> {
    if (this.#coordinatorLife.dead) await this.#startCoordinator();
    if (this.#workerLife.dead || this.#workerLife.ended) this.#startWorker();
    this.#once('submit', this.taskId === null, async (coordinator) => {
      const request = { kind: 'training', payload: { profile: 'smoke', parameters: {} } };
      const answer = await coordinator.client.submit(ALICE, request, 'key');
      if (answer.ok) this.taskId = answer.value.taskId;
    });
    const runs = this.backend.jobs.some(({ state }) => state?.phase === 'Running');
    this.#once('cancel', this.#story.end === 'cancelled' && runs && !this.#cancelled, async (coordinator) => {
      if (this.taskId === null) return;
      const answer = await coordinator.client.cancel(ALICE, this.taskId);
      this.#cancelled = answer.ok;
    });
    const due = this.clock.monotonicMs() >= this.#tickAtMs;
    if (due) this.#tickAtMs = this.clock.monotonicMs() + 1000;
    this.#once('tick', due, (coordinator) => coordinator.tick(this.clock.monotonicMs()));
    this.#letJobsGoOn();
    for (let turn = 0; turn < FLUSHES; turn += 1) await flush();
    const brisk = this.clock.monotonicMs() - this.#startedAtMs < BRISK_MS;
    await this.clock.advance(brisk ? STEP_MS : LONG_STEP_MS);
  }

  /** A wish of somebody outside, repeated until it is answered; the failure of one try is not its end. */
  #once(what: string, wanted: boolean, run: (coordinator: Coordinator) => Promise<void>): void {
    const life = this.#coordinatorLife;
    if (!wanted || this.#busy.has(what) || this.#coordinator === null || life.dead) return;
    const trying = run(this.#coordinator)
      .catch(() => undefined)
      .finally(() => this.#busy.delete(what));
    this.#busy.set(what, trying);
  }

  #letJobsGoOn(): void {
    for (const [index, job] of this.backend.jobs.entries()) {
      const ageMs = this.clock.nowMs() - job.handle.submittedAtMs;
      const { state } = job;
      const older = this.backend
        .of(job.token)
        .find((other) => other !== job && this.backend.jobs.indexOf(other) < index);
      if (older !== undefined) {
        // The lock inside the backend: it waits for the older one, then finds the claim taken.
        const isOver = older.state?.phase !== 'Pending' && older.state?.phase !== 'Running';
        if (isOver && state?.phase === 'Pending') job.state = { phase: 'Failed', reason: 'EXIT_NONZERO' };
        continue;
      }
      if (state?.phase === 'Pending' && ageMs >= RUNS_AFTER_MS) job.state = { phase: 'Running', ending: false };
      if (state?.phase !== 'Running' || this.#story.end === 'cancelled' || ageMs < ENDS_AFTER_MS) continue;
      const isLost = this.#story.end === 'lost' && index === 0;
      job.state = isLost ? { phase: 'Lost', reason: 'NODE_FAILED' } : { phase: 'Completed' };
    }
  }

  async #startCoordinator(): Promise<void> {
    this.restarts += 1;
    const life: Life = { dead: false, ended: false, stop: new AbortController() };
    this.#coordinatorLife = life;
    // Whoever waited for the dead one will never hear from it.
    this.#busy = new Map();
    const { clock } = this;
    const store = this.#log('coordinator', life, this.logs.coordinator);
    this.#coordinator = await Coordinator.open({ store, clock, random: this.#random });
  }

  #startWorker(): void {
    this.restarts += 1;
    const life: Life = { dead: false, ended: false, stop: new AbortController() };
    this.#workerLife = life;
    void this.#work(life).finally(() => {
      life.ended = true;
    });
  }

  async #work(life: Life): Promise<void> {
    try {
      const worker = await Worker.start(this.#deps(life), life.stop.signal);
      await worker?.run(life.stop.signal);
    } catch {
      // As a service manager does: what ended is started again, on the same log.
    }
  }

  #deps(life: Life): WorkerDeps {
    const around =
      (port: Effect['port']) =>
      (name: string, run: () => unknown): unknown =>
        this.#around('worker', port, life, name, run);
    return {
      name: 'w',
      sessions: null,
      backend: intercepted<WorkerDeps['backend']>(this.backend, BACKEND_CALLS, around('backend')),
      coordinator: intercepted<WorkerDeps['coordinator']>(this.#port(), WORKER_CALLS, around('coordinator')),
      store: this.#log('worker', life, this.logs.worker),
      directories: intercepted<WorkerDeps['directories']>(this.directories, DIRECTORY_CALLS, around('directories')),
      profiles: new Map([['smoke', profile()]]),
      clock: this.clock,
      random: this.#random,
      log: silentLog,
      config: { ...DEFAULT_WORKER_CONFIG, keepDirectoryMs: 0, acquireWaitMs: 1_000 },
    };
  }

  /** The wire: a call that meets a dead coordinator is not answered; one that has forgotten us is greeted first. */
  #port(): WorkerDeps['coordinator'] {
    const unreachable = { kind: 'unreachable', detail: 'the coordinator is down' } as const;
    const ask = async <T>(call: (port: WorkerDeps['coordinator']) => Promise<T>): Promise<T | typeof unreachable> => {
      const life = this.#coordinatorLife;
      const coordinator = this.#coordinator;
      if (coordinator === null || life.dead) return unreachable;
      const answer = call(coordinator.workerPort(WORKER));
      const line = { waits: true };
      void answer.catch(() => undefined).finally(() => (line.waits = false));
      // A connection breaks when the process at its other end dies.
      while (line.waits && !isDead(life)) await flush();
      return isDead(life) ? unreachable : answer;
    };
    return {
      hello: (hello) => ask((port) => port.hello(hello)),
      acquire: (request, signal) => ask((port) => port.acquire({ ...request, waitMs: 0 }, signal)),
      renew: (leases) => ask((port) => port.renew(leases)),
      report: (items) => ask((port) => port.report(items)),
      outcome: (outcome) => ask((port) => port.outcome(outcome)),
      putLogs: (logs) => ask((port) => port.putLogs(logs)),
    };
  }

  #log(side: Side, life: Life, store: EventStore): EventStore {
    return intercepted<EventStore>(store, ['append', 'appendAll', 'saveCheckpoint'], (name, run) =>
      this.#around(side, 'log', life, name, run),
    );
  }

  async #around(side: Side, port: Effect['port'], life: Life, name: string, run: () => unknown): Promise<unknown> {
    if (life.dead) return new Promise<never>(() => undefined);
    const { worker, coordinator } = this.logs;
    const mark = `${String(await worker.lastPosition())}/${String(await coordinator.lastPosition())}`;
    const answer = await this.plan.around({ side, port, name, mark }, run);
    return isDead(life) ? new Promise<never>(() => undefined) : answer;
  }

  async #isSettled(): Promise<boolean> {
    const isOver = (await this.outcomes()).some((type) => type !== 'task.lost');
    return isOver && (await this.jobs()).every(isSettled);
  }

  /** Every job as the worker's log alone tells it. */
  async jobs(): Promise<readonly Job[]> {
    const jobs = new Map<string, Job>();
    for await (const { stream, event } of this.logs.worker.readAll()) {
      if (stream.startsWith('job/') && isJobEvent(event)) jobs.set(stream, evolveJob(jobs.get(stream) ?? null, event));
    }
    return [...jobs.values()];
  }

  /** Types of the events that end a task or a try of it, as the coordinator's log has them. */
  async outcomes(): Promise<readonly string[]> {
    const ends = ['task.completed', 'task.failed', 'task.cancelled', 'task.lost'];
    const log = await all(this.logs.coordinator);
    return log.map(({ event }) => event.type as string).filter((type) => ends.includes(type));
  }

  /** What a case is judged by, in few words. */
  async summary(): Promise<Summary> {
    const tokens = new Set((await this.jobs()).map((job) => contextOf(job).token));
    return {
      outcomes: await this.outcomes(),
      landed: this.backend.jobs.map(({ state }) => state?.phase ?? 'gone'),
      foreign: this.backend.jobs.filter(({ token }) => !tokens.has(token)).length,
    };
  }
}

export interface Summary {
  readonly outcomes: readonly string[];
  /** Where each job that ever landed is now, the oldest first. */
  readonly landed: readonly string[];
  /** Jobs whose token the worker's log does not know. */
  readonly foreign: number;
}

/** It may have died while somebody else had the turn. */
const isDead = (life: Life): boolean => life.dead;

async function all(store: EventStore): Promise<readonly RecordedEvent[]> {
  const records: RecordedEvent[] = [];
  for await (const record of store.readAll()) records.push(record);
  return records;
}
