import type { HeldLease, LeaseGrant, ProgressItem, RenewAnswer } from '../coordinator/worker-api.js';
import { contextOf, isTerminal, phaseOf, type Job } from '../machines/job-aggregate.js';
import type { Epoch, JobId, TaskId } from '../machines/vocabulary.js';
import type { Canceller } from './cancel.js';
import { WorkerStartError, type WorkerDeps } from './context.js';
import { inheritedJob, jobForGrant, servedBy } from './intake.js';
import type { JobBook, JobChange } from './job-book.js';
import type { Leases } from './leases.js';
import type { Settler } from './settle.js';
import { helloOf } from './start.js';

/** Renewals are this often within one lease's time, and at least once in this many ms: they carry people's wishes. */
const RENEWALS_PER_TTL = 4;
const RENEW_EVERY_MS = 2_000;
const RENEW_RETRY_MS = 2_000;
const GREET_EVERY_MS = 60_000;
/** As many as one report may hold; the rest goes with the next one. */
const REPORT_ITEMS = 10_000;

const tellingOf = ({
  phase,
  detail,
}: Pick<Extract<ProgressItem, { type: 'progressed' }>, 'phase' | 'detail'>): string => `${phase} ${detail}`;

/** What the loop has to do with the coordinator: leases, wishes, news. Times are monotonic ms. */
export class Coordination {
  readonly #deps: WorkerDeps;
  readonly #book: JobBook;
  readonly #leases: Leases;
  readonly #canceller: Canceller;
  readonly #settler: Settler;
  /** Jobs that the coordinator knows as live (INV-3). */
  readonly #opened = new Set<JobId>();
  /** What the coordinator was told last about each job: its phase and the words for people. */
  readonly #told = new Map<JobId, string>();
  /** Jobs as they were when there was no news of them: each change of a job makes a new object. */
  readonly #quiet = new WeakSet<Job>();
  #renewAtMs = 0;
  #reportAtMs = 0;
  #outageSinceMs: number | null = null;
  #greetAtMs = 0;

  constructor(deps: WorkerDeps, book: JobBook, leases: Leases, canceller: Canceller, settler: Settler) {
    this.#deps = deps;
    this.#book = book;
    this.#leases = leases;
    this.#canceller = canceller;
    this.#settler = settler;
  }

  get renewAtMs(): number {
    return this.#renewAtMs;
  }

  /**
   * Says what this worker offers, once in a while: a coordinator that restarted does not know. False: no answer, try
   * again. Throws `WorkerStartError` when the credential is refused.
   */
  async greet(): Promise<boolean> {
    const { coordinator, clock } = this.#deps;
    const nowMs = clock.monotonicMs();
    if (nowMs < this.#greetAtMs) return true;
    const answer = await coordinator.hello(helloOf(this.#deps));
    if (answer.kind === 'answered') this.#greetAtMs = nowMs + GREET_EVERY_MS;
    if (answer.kind === 'refused' || answer.kind === 'stale') {
      throw new WorkerStartError(`the coordinator refused this worker: ${answer.detail}`);
    }
    return answer.kind === 'answered';
  }

  /** What the log says that the coordinator knows, after a restart. */
  remember(): void {
    for (const job of this.#book.all()) {
      const { jobId, inherited, attempt } = contextOf(job);
      if (!inherited && !job.aftermath.delivered && attempt !== null) this.#opened.add(jobId);
    }
  }

  /**
   * Every job that wants one has a lease to be renewed: after a restart before anything is started under it, and when its
   * loss was heard of but the wish that follows could not be recorded. Then the coordinator has to say it again.
   */
  #rememberLeases(): void {
    for (const job of this.#book.all()) {
      const { taskId, epoch, inherited, cancel } = contextOf(job);
      if (inherited || job.aftermath.delivered || cancel?.reason === 'LEASE_LOST') continue;
      this.#leases.remember(taskId, epoch);
    }
  }

  /** Renews all leases and takes in what people wish; once in a while, not every round. */
  async renew(): Promise<void> {
    const { coordinator, clock, log } = this.#deps;
    const sentAtMs = clock.monotonicMs();
    if (sentAtMs < this.#renewAtMs) return;
    this.#rememberLeases();
    const held = this.#leases.list();
    const answer = await coordinator.renew(held);
    if (answer.kind !== 'answered') {
      this.#renewAtMs = clock.monotonicMs() + RENEW_RETRY_MS;
      if (this.#outageSinceMs === null) {
        this.#outageSinceMs = sentAtMs;
        log.warn(
          { detail: answer.detail, leases: held.length },
          'the coordinator does not answer; jobs go on, waiting',
        );
      }
      return;
    }
    if (this.#outageSinceMs !== null) log.info({}, 'the coordinator answers again');
    this.#outageSinceMs = null;
    this.#renewAtMs = sentAtMs + Math.min(RENEW_EVERY_MS, answer.value.ttlMs / RENEWALS_PER_TTL);
    this.#leases.renewed(held, answer.value, sentAtMs);
    await this.#takeWishes(answer.value, held);
  }

  async #takeWishes(wishes: RenewAnswer, held: readonly HeldLease[]): Promise<void> {
    const changes: JobChange[] = [];
    const sent = new Map(wishes.lost.length === 0 ? [] : held.map(({ taskId, epoch }) => [taskId, epoch]));
    for (const taskId of wishes.lost) {
      for (const job of this.#live(taskId)) {
        // The task may have come back under a newer lease while this answer was on its way.
        if (contextOf(job).epoch > (sent.get(taskId) ?? 0)) continue;
        changes.push(this.#canceller.wish(job, 'LEASE_LOST', 'the coordinator'));
      }
    }
    for (const { taskId, by, asAdmin } of wishes.cancel) {
      const reason = asAdmin ? 'ADMIN_CANCELLED' : 'USER_CANCELLED';
      for (const job of this.#live(taskId)) changes.push(this.#canceller.wish(job, reason, by));
    }
    const abandoned = new Set<TaskId>();
    for (const { taskId, by } of wishes.abandon) {
      abandoned.add(taskId);
      for (const job of this.#live(taskId)) {
        const { jobId } = contextOf(job);
        this.#deps.log.error({ jobId, taskId, by }, 'abandoned: no longer watched, it may live on at the backend');
        changes.push({
          jobId,
          events: [{ type: 'job.abandoned', v: 1, atMs: this.#deps.clock.nowMs(), by: by.slice(0, 200) }],
        });
      }
    }
    // A job may be named twice (cancelled, then lost); the first word counts, and each is recorded alone.
    const first = new Map<JobId, JobChange>();
    for (const change of changes) {
      const isAbandon = change.events[0]?.type === 'job.abandoned';
      if (!first.has(change.jobId) || isAbandon) first.set(change.jobId, change);
    }
    await this.#book.record([...first.values()]);
    for (const taskId of wishes.wantLogs) {
      for (const job of this.#live(taskId)) await this.#settler.uploadTails(job);
    }
  }

  #live(taskId: TaskId): readonly Job[] {
    return this.#book.ofTask(taskId).filter((job) => !isTerminal(job));
  }

  /**
   * Asks for tasks and makes jobs of them; gives their number. Waits at the coordinator for at most the configured
   * time. Throws when a job can not be recorded: the leases of what was not taken run out and go to somebody else.
   */
  async acquire(count: number, signal: AbortSignal): Promise<number> {
    const { coordinator, clock, config, log } = this.#deps;
    if (!(await this.greet())) {
      await clock.sleep(RENEW_RETRY_MS, signal);
      return 0;
    }
    // A worker that is full has to be known all the same: without a greeting nobody takes its outcomes.
    if (count < 1) return 0;
    const sentAtMs = clock.monotonicMs();
    const answer = await coordinator.acquire({ count, waitMs: config.acquireWaitMs }, signal);
    if (answer.kind !== 'answered') {
      if (!signal.aborted) await clock.sleep(RENEW_RETRY_MS, signal);
      if (answer.kind === 'refused') log.error({ detail: answer.detail }, 'the coordinator refuses to give tasks');
      return 0;
    }
    await this.#takeAll(answer.value, sentAtMs);
    return answer.value.length;
  }

  /**
   * All leases are held, and so renewed, from the start: the coordinator takes back what nobody speaks of, and many jobs
   * take their time. Those of which nothing is known are recorded together: 1,000 of them one by one were 1,000 syncs of
   * the disk. No lease stays without a job.
   */
  async #takeAll(grants: readonly LeaseGrant[], sentAtMs: number): Promise<void> {
    for (const { taskId, epoch, ttlMs } of grants) this.#leases.hold(taskId, epoch, sentAtMs, ttlMs);
    const fresh = new Map<TaskId, LeaseGrant>();
    for (const grant of grants) {
      const { taskId, openJobs } = grant;
      if (openJobs.length === 0 && this.#book.ofTask(taskId).length === 0) fresh.set(taskId, grant);
    }
    try {
      await this.#open([...fresh.values()]);
      for (const grant of grants) await this.#take(grant);
    } finally {
      for (const { taskId, epoch } of grants) if (!this.#hasJob(taskId, epoch)) this.#leases.drop(taskId, epoch);
    }
  }

  async #open(grants: readonly LeaseGrant[]): Promise<void> {
    const { profiles, backend, random, clock, config, log } = this.#deps;
    const { watchLimitMs } = config;
    const kinds = servedBy(this.#deps);
    const context = { profiles, backend, random, nowMs: clock.nowMs(), watchLimitMs, kinds };
    const jobs = grants.map((grant) => jobForGrant(grant, context));
    await this.#book.record(jobs.map(({ created, more }) => ({ jobId: created.jobId, events: [created, ...more] })));
    for (const { created } of jobs) {
      log.info({ jobId: created.jobId, taskId: created.taskId, profile: created.profile }, 'leased');
    }
  }

  #hasJob(taskId: TaskId, epoch: Epoch): boolean {
    return this.#book.ofTask(taskId).some((job) => contextOf(job).epoch === epoch && !contextOf(job).inherited);
  }

  /** A grant that comes twice makes one job: the same epoch is the same job. */
  async #take(grant: LeaseGrant): Promise<void> {
    const { backend, clock, log } = this.#deps;
    if (this.#hasJob(grant.taskId, grant.epoch)) return;
    const known = this.#book.ofTask(grant.taskId);
    const nowMs = clock.nowMs();
    for (const job of known) {
      if (!isTerminal(job))
        await this.#book.record([this.#canceller.wish(job, 'LEASE_LOST', 'the lease that followed')]);
    }
    for (const open of grant.openJobs) {
      if (this.#book.get(open.jobId) !== null) continue;
      const past = await this.#book.past(open.jobId);
      if (past !== null) {
        // It is over and settled here; only the coordinator has not heard of it.
        const { taskId, jobId, reason } = contextOf(past);
        const item = { type: 'closed', taskId, jobId, phase: phaseOf(past), reason } as const;
        const told = await this.#deps.coordinator.report([item]);
        if (told.kind === 'answered') continue;
        throw new Error(`the end of ${jobId} could not be reported: ${told.detail}`);
      }
      const inherited = inheritedJob(grant, open, { backend, nowMs });
      await this.#book.create(inherited.created, inherited.more);
      log.warn(
        { jobId: open.jobId, taskId: grant.taskId, from: open.worker },
        "taking over: ending another worker's job",
      );
    }
    await this.#open([grant]);
  }

  /** Whether a job may be submitted now: the lease is held, the coordinator knows it, and no older job of its task lives. */
  maySubmit(job: Job): boolean {
    const { jobId, taskId, epoch } = contextOf(job);
    if (!this.#opened.has(jobId) || !this.#leases.maySubmit(taskId, epoch, this.#deps.clock.monotonicMs()))
      return false;
    return this.#book.ofTask(taskId).every((other) => other === job || isTerminal(other));
  }

  /** Tells the coordinator which jobs were opened and where each one is; what is refused as old is given up. */
  async report(): Promise<void> {
    const { coordinator, clock } = this.#deps;
    if (clock.monotonicMs() < this.#reportAtMs) return;
    const items: ProgressItem[] = [];
    for (const job of this.#book.all()) {
      if (items.length >= REPORT_ITEMS) break;
      if (this.#quiet.has(job)) continue;
      const item = this.#newsOf(job);
      if (item === null) this.#quiet.add(job);
      else items.push(item);
    }
    if (items.length === 0) return;
    const answer = await coordinator.report(items);
    if (answer.kind !== 'answered') {
      this.#reportAtMs = clock.monotonicMs() + RENEW_RETRY_MS;
      return;
    }
    const changes: JobChange[] = [];
    for (const [index, item] of items.entries()) {
      if (item.type !== 'opened' && item.type !== 'progressed') continue;
      const job = this.#book.get(item.jobId);
      if (answer.value.verdicts[index] === 'stale') {
        if (job !== null && !isTerminal(job)) changes.push(this.#canceller.wish(job, 'LEASE_LOST', 'the coordinator'));
        if (item.type === 'progressed') this.#told.set(item.jobId, tellingOf(item));
      } else if (item.type === 'opened') this.#opened.add(item.jobId);
      else this.#told.set(item.jobId, tellingOf(item));
    }
    await this.#book.record(changes);
  }

  #newsOf(job: Job): ProgressItem | null {
    const { jobId, taskId, epoch, token, inherited, cancel, seen, deferral } = contextOf(job);
    if (inherited || job.aftermath.delivered || cancel?.reason === 'LEASE_LOST') return null;
    if (!this.#opened.has(jobId) && !isTerminal(job)) return { type: 'opened', taskId, epoch, jobId, token };
    // Opened says already that it is about to be submitted; only what holds it up is news.
    if (isTerminal(job) || (phaseOf(job) === 'Submitting' && deferral === null)) return null;
    const held = deferral === null ? null : 'a limit on submitting is reached; waiting';
    const detail = (held ?? seen?.why ?? '').slice(0, 2000);
    const item = { type: 'progressed', taskId, epoch, jobId, phase: phaseOf(job), reason: null, detail } as const;
    return this.#told.get(jobId) === tellingOf(item) ? null : item;
  }

  /** What was kept about jobs that have left the book. */
  forget(): void {
    for (const jobId of [...this.#opened, ...this.#told.keys()]) {
      if (this.#book.get(jobId) !== null) continue;
      this.#opened.delete(jobId);
      this.#told.delete(jobId);
    }
  }
}
