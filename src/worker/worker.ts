import { contextOf, phaseOf, type Job } from '../machines/job-aggregate.js';
import { askOf, isWatched, type Ask } from '../machines/job-asks.js';
import type { JobId } from '../machines/vocabulary.js';
import { steadyClock } from '../runtime/clock.js';
import { Activities, type ActivityResult } from './activities.js';
import { Canceller } from './cancel.js';
import type { WorkerDeps } from './context.js';
import { Coordination } from './coordination.js';
import { JobBook, type JobChange } from './job-book.js';
import { Leases } from './leases.js';
import { Observer, type PollReport } from './observe.js';
import { ExpectedEnds } from './expected-ends.js';
import { Parts } from './parts.js';
import { createPace, hurry, polled, type PollPace } from './poll-pace.js';
import { Sessions, type SessionPrepared } from './sessions/sessions.js';
import { Settler } from './settle.js';
import { waitForBackend } from './start.js';
import { Submitter } from './submit.js';

/** Longest rest between two rounds, ms: end markers are looked for this often, with one directory read. */
const REST_MS = 200;
/** Pauses between attempts to take tasks while they fail, ms. */
const ACQUIRE_RETRY_MS = { first: 2_000, max: 60_000 } as const;
const FORGET_EVERY_ROUNDS = 1_000;
/** Limits are hours: with 10,000 jobs looking at each of them in every round is work for nothing. */
const LIMITS_EVERY_MS = 5_000;

/**
 * The loop. One round: renew leases, look for end markers, ask the backend once about all jobs and record what is news,
 * do for each job the one next thing that its state asks for. Every step can be repeated, so a round that dies half way
 * is simply run again; what may have to wait for an answer runs beside the rounds, one of a kind, one activity per job.
 */
export class Worker {
  readonly #deps: WorkerDeps;
  readonly #book: JobBook;
  readonly #leases = new Leases();
  readonly #activities: Activities;
  readonly #canceller: Canceller;
  readonly #settler: Settler;
  readonly #submitter: Submitter;
  readonly #observer: Observer;
  readonly #coordination: Coordination;
  readonly #expected = new ExpectedEnds();
  readonly #parts: Parts;
  readonly #stopping = new AbortController();
  #pace: PollPace;
  #rounds = 0;
  #poke = new AbortController();
  #lastRoundAtMs: number;
  #limitsAtMs = 0;
  #sessions: Sessions | null = null;

  private constructor(deps: WorkerDeps, book: JobBook) {
    this.#deps = deps;
    this.#book = book;
    this.#parts = new Parts(deps.log);
    this.#activities = new Activities(deps.clock, deps.log, (error) => {
      this.#parts.note(error);
      this.#wake();
    });
    this.#canceller = new Canceller(deps, book);
    this.#settler = new Settler(deps, book, this.#leases);
    this.#submitter = new Submitter(deps, book, (job) => this.#prepareSession(job));
    this.#observer = new Observer(deps, book, (jobId) => this.#activities.isBusy(jobId));
    this.#coordination = new Coordination(deps, book, this.#leases, this.#canceller, this.#settler);
    this.#pace = createPace(deps.clock.monotonicMs());
    this.#lastRoundAtMs = deps.clock.monotonicMs();
  }

  /**
   * Checks the backend, opens the log, greets the coordinator. Waits, and says so, while one of them does not answer;
   * throws `WorkerStartError` when waiting would not help.
   */
  static async start(given: WorkerDeps, signal: AbortSignal): Promise<Worker | null> {
    const deps = { ...given, clock: steadyClock(given.clock) };
    const [fit, book] = await Promise.all([waitForBackend(deps, signal), JobBook.open(deps.store)]);
    if (fit === null) return null;
    const worker = new Worker(deps, book);
    await worker.#observer.open(fit.report);
    await worker.#openSessions();
    worker.#coordination.remember();
    if (!(await worker.#coordination.greet())) deps.log.warn({}, 'the coordinator does not answer yet; waiting for it');
    deps.log.info({ jobs: book.size, ...fit.report }, 'started; adopted what was left running');
    return worker;
  }

  /**
   * Runs rounds until the signal aborts; jobs are left running. Resolves when nothing is being done any more. Rejects
   * with the `StoreError` after which the log takes no more events: nothing may be done that can not be recorded.
   */
  async run(signal: AbortSignal): Promise<void> {
    signal.addEventListener(
      'abort',
      () => {
        this.#stopping.abort();
        this.#wake();
      },
      { once: true },
    );
    const acquiring = this.#acquireLoop(this.#stopping.signal);
    const linked = this.#sessions?.run(this.#stopping.signal);
    while (!signal.aborted && this.#parts.fatal === null) {
      await this.#parts.run('round', () => this.round());
      await this.#rest(signal);
    }
    this.#stopping.abort();
    await Promise.all([acquiring, linked]);
    await this.#sessions?.close();
    await this.idle();
    if (this.#parts.fatal !== null) throw this.#parts.fatal;
    await this.#book.checkpoint(0);
  }

  /** Before the loop begins: agents of a former life dial in as soon as somebody listens. */
  async #openSessions(): Promise<void> {
    const { sessions, log } = this.#deps;
    if (sessions === null) return;
    const opened = await Sessions.open(this.#deps, sessions, this.#book, this.#canceller, () => {
      this.#pace = hurry(this.#pace, 'ended', this.#deps.clock.monotonicMs(), this.#paceConfig());
      this.#wake();
    });
    this.#canceller.deferTo((job, reason, by) => opened.defers(job, reason, by));
    this.#sessions = opened;
    log.info({ ...opened.address }, 'agents of sessions may dial in');
  }

  #prepareSession(job: Job): Promise<SessionPrepared> {
    if (this.#sessions !== null) return this.#sessions.prepare(job);
    return Promise.resolve({
      kind: 'invalidSpec',
      detail: 'this worker serves no sessions any more: agents can not dial in',
    });
  }

  /** For people and metrics. */
  status(): {
    readonly jobs: Readonly<Record<string, number>>;
    readonly calls: Readonly<Record<string, number>>;
    readonly sinceLastRoundMs: number;
  } {
    const jobs: Record<string, number> = {};
    for (const job of this.#book.all()) jobs[phaseOf(job)] = (jobs[phaseOf(job)] ?? 0) + 1;
    const sinceLastRoundMs = this.#deps.clock.monotonicMs() - this.#lastRoundAtMs;
    return { jobs, calls: this.#deps.backend.callCounts(), sinceLastRoundMs };
  }

  /** One round. May be called by a test or a simulation in place of `run`. */
  async round(): Promise<void> {
    const { clock, config } = this.#deps;
    this.#lastRoundAtMs = clock.monotonicMs();
    this.#rounds += 1;
    this.#parts.beside('renew', () => this.#coordination.renew());
    this.#parts.beside('wake', () => this.#takeWakes());
    if (clock.monotonicMs() >= this.#pace.nextAtMs) this.#parts.beside('observe', () => this.#observe());
    if (clock.monotonicMs() >= this.#limitsAtMs) await this.#parts.run('limits', () => this.#applyWatchLimits());
    this.#parts.beside('report', () => this.#coordination.report());
    this.#parts.beside('sessions', () => this.#sessions?.tick() ?? Promise.resolve());
    this.#parts.beside('cancel', () => this.#cancel());
    this.#act();
    await this.#parts.run('checkpoint', () => this.#book.checkpoint(config.checkpointEvery));
    if (this.#rounds % FORGET_EVERY_ROUNDS === 0) this.#coordination.forget();
  }

  /** Takes tasks up to the capacity, and gives their number; one call, which may wait at the coordinator. */
  async acquire(signal: AbortSignal): Promise<number> {
    const room = this.#deps.config.capacity - this.#unfinished();
    const taken = await this.#coordination.acquire(Math.max(0, Math.min(room, 1000)), signal);
    if (room > 0) this.#wake();
    return taken;
  }

  /** Resolves when no activity is under way. */
  async idle(): Promise<void> {
    await this.#parts.idle();
    await this.#activities.idle();
  }

  /** Whatever is answered at once, or fails at once, is not asked for again at once. */
  async #acquireLoop(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted;) {
      let taken = 0;
      const worked = await this.#parts.run('acquire', async () => {
        taken = await this.acquire(signal);
      });
      failures = worked ? 0 : failures + 1;
      const failedMs = Math.min(ACQUIRE_RETRY_MS.max, ACQUIRE_RETRY_MS.first * 2 ** (failures - 1));
      if (!worked) await this.#deps.clock.sleep(failedMs, signal);
      else if (taken === 0) await this.#deps.clock.sleep(REST_MS, signal);
    }
  }

  #unfinished(): number {
    let count = 0;
    for (const job of this.#book.all()) if (!job.aftermath.delivered) count += 1;
    return count;
  }

  async #takeWakes(): Promise<void> {
    const nowMs = this.#deps.clock.monotonicMs();
    for (const jobId of await this.#deps.directories.takeWakes()) {
      const job = this.#book.get(jobId);
      if (job === null || !isWatched(job)) continue;
      const ended = (await this.#deps.directories.endMarker(jobId)) !== null;
      if (ended) this.#expected.marked(jobId, nowMs);
      this.#pace = hurry(this.#pace, ended ? 'ended' : 'started', nowMs, this.#paceConfig());
      this.#wake();
    }
  }

  async #observe(): Promise<void> {
    const { clock } = this.#deps;
    const startedAtMs = clock.monotonicMs();
    if (this.#observer.watched().length === 0) {
      this.#pace = polled(this.#pace, { startedAtMs, answered: true, news: false }, startedAtMs, this.#paceConfig());
      return;
    }
    let report: PollReport = { answered: false, news: false, ending: [] };
    try {
      report = await this.#observer.poll();
    } finally {
      const nowMs = clock.monotonicMs();
      this.#pace = polled(this.#pace, { startedAtMs, ...report }, nowMs, this.#paceConfig());
      for (const jobId of report.ending) this.#expected.seenEnding(jobId, nowMs);
      const expected = this.#expected.isDue((jobId) => this.#isAwaited(jobId), nowMs);
      if (expected) this.#pace = hurry(this.#pace, 'ended', nowMs, this.#paceConfig());
      // What it found out is acted on at once.
      this.#wake();
    }
  }

  #isAwaited(jobId: JobId): boolean {
    const job = this.#book.get(jobId);
    return job !== null && isWatched(job);
  }

  async #applyWatchLimits(): Promise<void> {
    this.#limitsAtMs = this.#deps.clock.monotonicMs() + LIMITS_EVERY_MS;
    const nowMs = this.#deps.clock.nowMs();
    const changes: JobChange[] = [];
    for (const job of this.#book.all()) {
      const { watchUntilMs, jobId } = contextOf(job);
      if (watchUntilMs === null || nowMs < watchUntilMs || this.#activities.isBusy(jobId)) continue;
      const change = this.#canceller.wish(job, 'WATCH_LIMIT_EXCEEDED', 'the watch limit');
      if (change.events.length > 0) changes.push(change);
    }
    await this.#book.record(changes);
  }

  async #cancel(): Promise<void> {
    const sent = await this.#canceller.sendDue((job) => this.#activities.isBusy(contextOf(job).jobId));
    if (sent) this.#pace = hurry(this.#pace, 'ended', this.#deps.clock.monotonicMs(), this.#paceConfig());
    if (sent) this.#wake();
  }

  #act(): void {
    const { clock, config } = this.#deps;
    const nowMs = clock.nowMs();
    for (const job of this.#book.all()) {
      const { jobId } = contextOf(job);
      if (this.#activities.isBusy(jobId)) continue;
      this.#start(askOf(job, nowMs, config.keepDirectoryMs), job, jobId, nowMs);
    }
  }

  #start(ask: Ask, job: Job, jobId: JobId, nowMs: number): void {
    const { submitConcurrency, deliverConcurrency } = this.#deps.config;
    const start = (kind: string, limit: number, run: () => Promise<ActivityResult>): void => {
      this.#activities.start(kind, limit, jobId, run);
    };
    switch (ask) {
      case 'none':
        return;
      case 'submit':
        if (this.#submitter.isHeld(job, nowMs) || !this.#coordination.maySubmit(job)) return;
        start('submit', this.#submitter.width, async () => {
          const result = await this.#submitter.submit(jobId, () => {
            const now = this.#book.get(jobId);
            return now !== null && this.#coordination.maySubmit(now);
          });
          this.#pace = hurry(this.#pace, 'started', this.#deps.clock.monotonicMs(), this.#paceConfig());
          return result;
        });
        return;
      case 'closeAttempt':
        start('close the attempt', submitConcurrency, () => this.#submitter.closeAttempt(jobId));
        return;
      case 'endAttempt':
        start('end the attempt', submitConcurrency, () => this.#submitter.endAttempt(jobId));
        return;
      case 'collect':
        start('collect', deliverConcurrency, () => this.#settler.collect(jobId));
        return;
      case 'deliver':
        start('deliver', deliverConcurrency, () => this.#settler.deliver(jobId));
        return;
      case 'removeDirectory':
        start('remove the directory', deliverConcurrency, () => this.#settler.removeDirectory(jobId));
    }
  }

  #paceConfig(): { readonly baseMs: number } {
    return { baseMs: this.#deps.config.pollMs };
  }

  #wake(): void {
    this.#poke.abort();
  }

  async #rest(signal: AbortSignal): Promise<void> {
    if (!signal.aborted) await this.#deps.clock.sleep(REST_MS, this.#poke.signal);
    this.#poke = new AbortController();
  }
}
