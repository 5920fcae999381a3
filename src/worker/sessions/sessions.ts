import type { SessionCall, SessionView } from '../../coordinator/session-api.js';
import { clip } from '../../events/schema-parts.js';
import { contextOf, isTerminal, phaseOf, type Job } from '../../machines/job-aggregate.js';
import { sessionContextOf, type Session } from '../../machines/session-aggregate.js';
import { SESSION_KIND } from '../../machines/task-context.js';
import type { CancelReason, Epoch, JobId, TaskId } from '../../machines/vocabulary.js';
import type { Canceller } from '../cancel.js';
import type { WorkerDeps } from '../context.js';
import type { PrepareReply } from '../directories.js';
import type { JobBook } from '../job-book.js';
import type { SessionLaunch } from '../../backend.js';
import type { SessionDeps } from './context.js';
import { SessionBook } from './session-book.js';
import { SessionEnds } from './session-ends.js';
import { SessionLink } from './session-link.js';
import { SessionRanks } from './session-ranks.js';
import { viewOf } from './session-view.js';
import { StepRunner } from './step-runner.js';

/** A worker may be away for so long, whatever the idle limit: agents that end sooner would end sessions at every upgrade. */
const ALONE_MIN_S = 600;

/** How a session's job is started, or why not. */
export type SessionPrepared =
  { readonly kind: 'ready'; readonly launch: SessionLaunch } | Exclude<PrepareReply, { kind: 'ok' }>;

/**
 * The sessions of a worker: jobs of kind `session`, their agents and their steps. It follows the jobs, which are the
 * loop's; the one thing that it does to a job is to pass on the wish that it ends, when its steps have ended.
 */
export class Sessions {
  readonly #deps: WorkerDeps;
  readonly #sessionDeps: SessionDeps;
  readonly #jobs: JobBook;
  readonly #ends: SessionEnds;
  readonly #book: SessionBook;
  readonly #ranks: SessionRanks;
  readonly #runner: StepRunner;
  readonly #link: SessionLink;
  /** The job of each session that this worker has now. */
  readonly #current = new Map<TaskId, JobId>();
  readonly #changes = new Map<TaskId, AbortController>();
  readonly #onStarted: () => void;
  /** Jobs whose agents were all in before the backend had said that they run. */
  readonly #started = new Set<JobId>();

  private constructor(
    deps: WorkerDeps,
    sessionDeps: SessionDeps,
    jobs: JobBook,
    canceller: Canceller,
    onStarted: () => void,
  ) {
    this.#onStarted = onStarted;
    this.#deps = deps;
    this.#sessionDeps = sessionDeps;
    this.#jobs = jobs;
    this.#book = new SessionBook(deps.store, (taskId) => this.#changed(taskId));
    this.#ranks = new SessionRanks(deps, sessionDeps.directories, this.#book);
    this.#runner = new StepRunner(deps, this.#book, {
      job: (taskId) => this.#jobOf(taskId),
      link: (taskId, rank) => {
        const jobId = this.#current.get(taskId);
        return jobId === undefined ? null : this.#ranks.link(jobId, rank);
      },
      onNews: () => this.#link.poke(),
      changed: (taskId, withinMs) => this.#nextChange(taskId, withinMs),
    });
    this.#ends = new SessionEnds(deps, {
      jobs,
      canceller,
      book: this.#book,
      ranks: this.#ranks,
      runner: this.#runner,
    });
    const source = {
      sessions: () => [...this.#book.all()].map(([taskId]) => taskId),
      viewOf: (taskId: TaskId) => this.#viewOf(taskId),
      epochOf: (taskId: TaskId) => this.#epochOf(taskId),
      take: (call: SessionCall) => this.#take(call),
      told: (taskId: TaskId) => {
        if (!this.#current.has(taskId)) this.#book.drop(taskId);
      },
    };
    this.#link = new SessionLink(deps, sessionDeps.coordinator, source, this.#runner);
  }

  /**
   * Opens the gateway and takes up the sessions that a former life of this worker left. Throws where it can not listen.
   * `onStarted`: agents of a job are all in that the backend has not yet reported as running: it is worth asking.
   */
  static async open(
    deps: WorkerDeps,
    sessionDeps: SessionDeps,
    jobs: JobBook,
    canceller: Canceller,
    onStarted: () => void,
  ): Promise<Sessions> {
    const sessions = new Sessions(deps, sessionDeps, jobs, canceller, onStarted);
    sessions.#ranks.gateway = await sessionDeps.listen(sessions.#ranks);
    for (const job of jobs.all()) {
      const { kind, inherited } = contextOf(job);
      if (kind === SESSION_KIND && !inherited && !job.aftermath.delivered) await sessions.#resume(job);
    }
    return sessions;
  }

  /** Where agents dial. */
  get address(): { readonly host: string; readonly port: number } {
    return this.#ranks.gateway.address;
  }

  /** Carries steps and views until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    await this.#link.run(signal);
  }

  /** Steps that run in an allocation go on, like jobs; agents come back to the next life of this worker. */
  async close(): Promise<void> {
    this.#runner.leave();
    await this.#ranks.close();
  }

  /** Before a session's job is submitted: its stream knows the job, its directory is there, its agents are awaited. */
  async prepare(job: Job): Promise<SessionPrepared> {
    const { taskId, jobId, epoch, profile: profileName } = contextOf(job);
    const profile = this.#deps.profiles.get(profileName);
    if (!profile?.session)
      return { kind: 'invalidSpec', detail: `profile "${profileName}" serves no sessions any more` };
    const ranks = profile.nodes ?? 1;
    const { idleLimitS, maxLifetimeS, agentPath, nodePath } = profile.session;
    await this.#book.open({
      type: 'session.requested',
      v: 1,
      atMs: this.#deps.clock.nowMs(),
      taskId,
      profile: profileName,
      ranks,
      idleLimitMs: idleLimitS * 1000,
      maxLifetimeMs: maxLifetimeS * 1000,
    });
    await this.#ends.leaveFormerJob(taskId, jobId);
    this.#current.set(taskId, jobId);
    await this.#book.record(taskId, (session) =>
      sessionContextOf(session).jobId === jobId
        ? []
        : [{ type: 'session.jobAssigned', v: 1, atMs: this.#deps.clock.nowMs(), jobId, epoch }],
    );
    const made = await this.#makeDirectory(job, agentPath);
    if (made.kind !== 'ok') return made;
    // The session keeps the size with which it began.
    const session = this.#book.get(taskId);
    const size = session === null ? ranks : sessionContextOf(session).ranks;
    this.#ranks.expect(taskId, jobId, epoch, size);
    await this.#ranks.supply();
    await this.#book.record(taskId, (now) =>
      sessionContextOf(now).workspace ? [] : [{ type: 'workspace.prepared', v: 1, atMs: this.#deps.clock.nowMs() }],
    );
    const { agent, config, credentials } = this.#sessionDeps.directories.sessionPaths(jobId);
    return { kind: 'ready', launch: { ranks: size, command: [nodePath, agentPath ?? agent, config], credentials } };
  }

  /**
   * Whether the wish that a job ends has to wait for its session: no new steps, the running ones ended and drained, then
   * the allocation. The caller records no wish then; this does, when it is time.
   */
  defers(job: Job, reason: CancelReason, by: string): boolean {
    const { taskId, jobId, cancel } = contextOf(job);
    if (this.#current.get(taskId) !== jobId || cancel !== null || isTerminal(job)) return false;
    this.#ends.wish(taskId, { reason, by });
    return true;
  }

  /** One look at every session: what its job became, its clocks, its end. Cheap, for there are few. */
  async tick(): Promise<void> {
    this.#runner.sweep();
    await this.#ranks.supply();
    const failures: unknown[] = [];
    for (const [taskId, jobId] of [...this.#current]) {
      try {
        await this.#follow(taskId, jobId);
      } catch (error) {
        // One session never stops the others; the next look tries again.
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  async #follow(taskId: TaskId, jobId: JobId): Promise<void> {
    const session = this.#book.get(taskId) ?? (await this.#book.load(taskId));
    const job = this.#jobs.get(jobId) ?? (await this.#jobs.past(jobId));
    if (session === null || job === null || sessionContextOf(session).jobId !== jobId) return;
    if (isTerminal(job)) {
      this.#started.delete(jobId);
      const isClosed = await this.#ends.jobIsOver(taskId, job);
      // It leaves memory when its last view has been told.
      if (isClosed && job.aftermath.delivered) this.#current.delete(taskId);
      this.#link.changed(taskId);
      return;
    }
    await this.#noteAllocation(taskId, session, job);
    await this.#ends.followWish(taskId, session, job);
  }

  async #noteAllocation(taskId: TaskId, session: Session, job: Job): Promise<void> {
    const { grantedAtMs, ranksIn, ranks, jobId } = sessionContextOf(session);
    if (grantedAtMs === null && ranksIn.length === ranks && jobId !== null && !this.#started.has(jobId)) {
      this.#started.add(jobId);
      this.#onStarted();
    }
    const atMs = this.#deps.clock.nowMs();
    const { seen, requeues } = contextOf(job);
    if (phaseOf(job) === 'Running' && grantedAtMs === null) {
      await this.#book.record(taskId, () => [{ type: 'allocation.granted', v: 1, atMs }]);
    } else if (phaseOf(job) === 'Pending' && grantedAtMs !== null) {
      await this.#runner.cancelAll(taskId, 'the backend');
      const detail = clip(
        `the backend took its nodes back and queued it again (${String(requeues)} times): ${seen?.why ?? ''}`,
      );
      await this.#book.record(taskId, () => [{ type: 'allocation.withdrawn', v: 1, atMs, detail }]);
      if (jobId !== null) this.#ranks.announceAgain(jobId);
    }
  }

  /** After a restart: agents are awaited again; of steps that ran nobody knows any more. */
  async #resume(job: Job): Promise<void> {
    const { taskId, jobId, epoch } = contextOf(job);
    const session = await this.#book.load(taskId);
    if (session === null || sessionContextOf(session).jobId !== jobId) return;
    this.#current.set(taskId, jobId);
    this.#ends.giveGrace();
    await this.#runner.disown(taskId, 'the worker restarted, and can not speak for this step any more', true);
    const atMs = this.#deps.clock.nowMs();
    await this.#book.record(taskId, (now) =>
      sessionContextOf(now).ranksIn.map(({ rank }) => ({
        type: 'rank.left',
        v: 1,
        atMs,
        epoch,
        rank,
        detail: 'the worker restarted',
      })),
    );
    if (isTerminal(job)) return;
    // The gateway may be at another address by now.
    const agentPath = this.#deps.profiles.get(contextOf(job).profile)?.session?.agentPath ?? null;
    const made = await this.#makeDirectory(job, agentPath);
    if (made.kind !== 'ok')
      this.#deps.log.error({ jobId, detail: made.detail }, 'the directory of a session is not usable');
    this.#ranks.expect(taskId, jobId, epoch, sessionContextOf(session).ranks);
  }

  /** Its stream is there. */
  async #makeDirectory(job: Job, agentPath: string | null): Promise<PrepareReply> {
    const { jobId, taskId } = contextOf(job);
    const session = this.#book.get(taskId);
    if (session === null) throw new Error(`there is no session ${taskId}`);
    const aloneLimitS = Math.max(ALONE_MIN_S, sessionContextOf(session).idleLimitMs / 1000);
    const { host, port } = this.#ranks.gateway.address;
    const { parameters } = await this.#jobs.created(jobId);
    const agentSource = agentPath === null ? this.#sessionDeps.agentSource : null;
    const settings = { host, port, trust: this.#ranks.gateway.trust, aloneLimitS };
    return this.#sessionDeps.directories.prepareSession(jobId, { agentSource, parameters, settings });
  }

  #take(call: SessionCall): void {
    const { taskId } = call;
    const work = ((): Promise<void> => {
      switch (call.type) {
        case 'step':
          return this.#runner.request(taskId, call);
        case 'stdin':
          return this.#runner.input(taskId, call.stepId, call.piece);
        case 'cancel':
          return this.#runner.cancel(taskId, call.stepId, call.by);
      }
    })();
    work.catch((error: unknown) => {
      this.#deps.log.error({ err: error, taskId, call: call.type }, 'a call of a session could not be followed');
    });
  }

  #viewOf(taskId: TaskId): { readonly epoch: Epoch; readonly view: SessionView } | null {
    const session = this.#book.get(taskId);
    const epoch = session === null ? null : sessionContextOf(session).epoch;
    if (session === null || epoch === null) return null;
    const job = this.#jobOf(taskId);
    return { epoch, view: viewOf(session, job !== null && isTerminal(job)) };
  }

  /** Of the session's job; of a task whose job has not come so far, that of its lease. */
  #epochOf(taskId: TaskId): Epoch | null {
    const session = this.#book.get(taskId);
    const epoch = session === null ? null : sessionContextOf(session).epoch;
    const newest = this.#jobs.ofTask(taskId).at(-1);
    return epoch ?? (newest === undefined ? null : contextOf(newest).epoch);
  }

  #jobOf(taskId: TaskId): Job | null {
    const jobId = this.#current.get(taskId);
    return jobId === undefined ? null : this.#jobs.get(jobId);
  }

  #changed(taskId: TaskId): void {
    this.#changes.get(taskId)?.abort();
    this.#changes.delete(taskId);
    this.#link.changed(taskId);
  }

  async #nextChange(taskId: TaskId, withinMs: number): Promise<void> {
    const change = this.#changes.get(taskId) ?? new AbortController();
    this.#changes.set(taskId, change);
    await this.#deps.clock.sleep(withinMs, change.signal);
  }
}
