import type { EventStore } from '../events/store.js';
import {
  isTaskOver,
  liveLeaseOf,
  restoreTask,
  storeTask,
  taskContextOf,
  taskPhaseOf,
  type Task,
} from '../machines/task-aggregate.js';
import { SESSION_KIND } from '../machines/task-context.js';
import type { TaskPhase } from '../machines/task-events.js';
import type { TaskId } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import { CoordinatorCheckpoint, type CheckpointData } from './checkpoint.js';
import { decideExpiry, decideUnclaimed } from './commands.js';
import type { CoordinatorConfig } from './config.js';
import { Dispatch, type Waiting } from './dispatch.js';
import { Feed } from './feed.js';
import { LeaseTable, type TableLease } from './lease-table.js';
import type { TailStore } from './output-tails.js';
import { TaskBook, type Change } from './task-book.js';
import { TaskIndex } from './task-index.js';
import { changeOf } from './views.js';
import { WorkerRegistry } from './worker-registry.js';

const CHECKPOINT = 'coordinator/tasks';

export interface CoreDeps {
  readonly store: EventStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly tails: TailStore;
  readonly config: CoordinatorConfig;
}

/** What has happened since the start; for the metrics. */
export interface Counters {
  leasesGranted: number;
  leasesExpired: number;
  leasesUnclaimed: number;
  jobsLost: number;
  staleRefused: number;
  abandonedJobs: number;
}

/** The parts of the coordinator, kept in step with the log: every durable event passes through `#onChange`. */
export class Core {
  readonly deps: CoreDeps;
  readonly book: TaskBook;
  readonly index: TaskIndex;
  readonly leases: LeaseTable;
  readonly dispatch = new Dispatch();
  readonly workers: WorkerRegistry;
  readonly counters: Counters = {
    leasesGranted: 0,
    leasesExpired: 0,
    leasesUnclaimed: 0,
    jobsLost: 0,
    staleRefused: 0,
    abandonedJobs: 0,
  };
  readonly #onTask: ((task: Task) => void)[] = [];
  #feed: Feed;
  #position = 0;
  #sinceCheckpoint = 0;
  #replaying = true;
  #saving: Promise<void> | null = null;

  private constructor(deps: CoreDeps) {
    this.deps = deps;
    this.book = new TaskBook(
      deps.store,
      (change) => {
        this.#onChange(change);
      },
      () => {
        this.#feed.settle();
      },
    );
    this.index = new TaskIndex(deps.config.finishedMax);
    this.leases = new LeaseTable(deps.config.leaseTtlMs);
    this.workers = new WorkerRegistry(deps.store, deps.config.workerLiveMs);
    this.#feed = new Feed(deps.store, 0, deps.config.changesKept);
  }

  /** Loads the checkpoint and folds what the log has after it. Every live lease gets a fresh time. */
  static async open(deps: CoreDeps): Promise<Core> {
    const core = new Core(deps);
    await core.workers.load(deps.clock.monotonicMs());
    await core.#load();
    return core;
  }

  get feed(): Feed {
    return this.#feed;
  }

  /** Calls back after each change of a task. */
  onTask(listener: (task: Task) => void): void {
    this.#onTask.push(listener);
  }

  get nowMs(): number {
    return this.deps.clock.nowMs();
  }

  get monotonicMs(): number {
    return this.deps.clock.monotonicMs();
  }

  /** Expires leases, gives back what nobody knows of, lets held tasks go. Driven by a timer, or by a test. */
  async tick(nowMonotonicMs: number): Promise<void> {
    this.dispatch.tick(nowMonotonicMs);
    const expired = this.leases.expired(nowMonotonicMs).filter((lease) => this.#isGivenUp(lease, nowMonotonicMs));
    await this.#endLeases(expired, 'expired');
    if (this.#sinceCheckpoint >= this.deps.config.checkpointEvery) await this.checkpoint();
  }

  /**
   * A lease that ran out while its job is open can only be taken over by another worker of the site that offers what
   * the task needs. While there is none, its holder may renew it when it comes back: ending it would cancel a job that
   * nobody else can go on with.
   */
  #isGivenUp({ taskId, workerId, epoch }: TableLease, nowMs: number): boolean {
    const task = this.book.live.get(taskId);
    if (task === undefined) return true;
    const { openJobs, abandon } = taskContextOf(task);
    const isOpen = openJobs.some((job) => job.epoch === epoch);
    return !isOpen || abandon !== null || this.workers.hasOtherFor(this.waitingOf(task), workerId, nowMs);
  }

  /** Ends leases whose grant never reached its worker. */
  async endUnclaimed(workerId: string): Promise<void> {
    const { unclaimedGraceMs } = this.deps.config;
    await this.#endLeases(this.leases.unclaimed(workerId, this.monotonicMs, unclaimedGraceMs), 'unclaimed');
  }

  async #endLeases(ended: readonly TableLease[], why: 'expired' | 'unclaimed'): Promise<void> {
    if (ended.length === 0) return;
    const atMs = this.nowMs;
    const decide = why === 'expired' ? decideExpiry : decideUnclaimed;
    await this.book.run(
      ended.map(({ taskId, epoch }) => ({
        taskId,
        decide: (task) => (task === null ? { kind: 'already' } : decide(task, epoch, atMs)),
      })),
    );
    if (why === 'expired') this.counters.leasesExpired += ended.length;
    else this.counters.leasesUnclaimed += ended.length;
    this.deps.log.warn({ why, tasks: ended.slice(0, 20), count: ended.length }, 'leases ended without their worker');
  }

  /** Saves what a restart needs, unless an append is under way: then memory and log differ for a moment. */
  async checkpoint(): Promise<void> {
    if (!this.book.isIdle || this.#saving !== null || this.#sinceCheckpoint === 0) return;
    this.#sinceCheckpoint = 0;
    const data: CheckpointData = {
      v: 1,
      counts: Object.fromEntries(this.index.counts),
      index: this.index.entries.map(({ position, taskId, by, phase }) => [position, taskId, by, phase]),
      sessions: this.index.entries.filter(({ isSession }) => isSession).map(({ taskId }) => taskId),
      live: [...this.book.live.values()].map(storeTask),
    };
    this.#saving = this.deps.store.saveCheckpoint(CHECKPOINT, { position: this.#position, data });
    try {
      await this.#saving;
    } finally {
      this.#saving = null;
    }
  }

  /** Lets everybody who waits go, and saves. */
  async close(): Promise<void> {
    this.dispatch.wakeAll();
    this.#feed.wake();
    await this.#saving;
    await this.checkpoint();
  }

  async #load(): Promise<void> {
    const { store, log } = this.deps;
    const saved = await store.loadCheckpoint(CHECKPOINT);
    const parsed = saved === null ? null : CoordinatorCheckpoint.safeParse(saved.data);
    if (saved !== null && parsed?.success === true) {
      this.#position = saved.position;
      const sessions = new Set(parsed.data.sessions);
      for (const [position, taskId, by, phase] of parsed.data.index)
        this.index.add({ position, taskId, by, phase, isSession: sessions.has(taskId) });
      this.index.restoreCounts(parsed.data.counts);
      for (const stored of parsed.data.live) this.#adopt(restoreTask(stored));
    } else if (saved !== null) {
      log.warn({ checkpoint: CHECKPOINT }, 'the checkpoint is of another version: folding the whole log');
    }
    for await (const recorded of store.readAll(this.#position)) {
      this.#position = recorded.position;
      this.book.replay(recorded);
    }
    this.#feed = new Feed(store, this.#position, this.deps.config.changesKept);
    this.#replaying = false;
  }

  #adopt(task: Task): void {
    this.book.restore(taskContextOf(task).taskId, task);
    this.#place(null, task, false);
  }

  #onChange({ recorded, event, before, task }: Change): void {
    const { taskId, by, kind } = taskContextOf(task);
    const isSession = kind === SESSION_KIND;
    this.#position = Math.max(this.#position, recorded.position);
    this.#sinceCheckpoint += 1;
    if (before === null)
      this.index.add({ position: recorded.position, taskId, by, phase: taskPhaseOf(task), isSession });
    else this.index.setPhase(taskId, taskPhaseOf(task));
    this.#place(before, task, event.type === 'task.released');
    if (this.#replaying) return;
    if (event.type === 'task.leased') this.counters.leasesGranted += 1;
    if (event.type === 'task.lost') this.counters.jobsLost += 1;
    if (isTaskOver(task)) this.#warnOfForgotten(task);
    this.#feed.add(by, changeOf(recorded.position, event, task));
    for (const listener of this.#onTask) listener(task);
  }

  /** Brings the lease table and the queue in line with the task. */
  #place(before: Task | null, task: Task, givenBack: boolean): void {
    const { taskId, openJobs } = taskContextOf(task);
    const lease = liveLeaseOf(task);
    if (lease === null) {
      this.leases.drop(taskId);
    } else {
      const known = before === null ? null : liveLeaseOf(before);
      if (known?.epoch !== lease.epoch) {
        this.leases.hold({ taskId, workerId: lease.workerId, epoch: lease.epoch }, this.monotonicMs);
      }
      if (openJobs.some((job) => job.epoch === lease.epoch)) this.leases.claim(taskId, lease.epoch);
    }
    if (taskPhaseOf(task) !== 'Queued') this.dispatch.remove(taskId);
    else if (givenBack)
      this.dispatch.addLater(this.waitingOf(task), this.monotonicMs + this.deps.config.releaseBackoffMs);
    else this.dispatch.add(this.waitingOf(task));
  }

  /** Where a queued task stands in line: by its submission, however often it was given out. */
  waitingOf(task: Task): Waiting {
    const { taskId, kind, profile, openJobs } = taskContextOf(task);
    return {
      taskId,
      position: this.index.positionOf(taskId) ?? this.#position,
      kind,
      profile,
      site: openJobs[0]?.site ?? null,
    };
  }

  /** Puts a task that was taken out of the queue, but not leased, back into it. */
  putBack(taskId: TaskId): void {
    const task = this.book.live.get(taskId);
    if (task !== undefined && taskPhaseOf(task) === 'Queued') this.dispatch.add(this.waitingOf(task));
  }

  #warnOfForgotten(task: Task): void {
    const { taskId, forgotten, abandon } = taskContextOf(task);
    if (forgotten.length === 0) return;
    this.counters.abandonedJobs += forgotten.length;
    this.deps.log.error(
      { taskId, by: abandon?.by, jobs: forgotten.map(({ jobId, worker, site }) => ({ jobId, worker, site })) },
      'abandoned: these jobs may live on',
    );
  }

  countOf(phase: TaskPhase): number {
    return this.index.counts.get(phase) ?? 0;
  }
}
