import { clip } from '../../events/schema-parts.js';
import { contextOf, phaseOf, type Job } from '../../machines/job-aggregate.js';
import { sessionContextOf, sessionStateOf, type Session } from '../../machines/session-aggregate.js';
import { expiredClock } from '../../machines/session-rules.js';
import type { CancelReason, JobId, TaskId } from '../../machines/vocabulary.js';
import type { Canceller } from '../cancel.js';
import type { WorkerDeps } from '../context.js';
import type { JobBook } from '../job-book.js';
import { limitOfLost } from '../settle.js';
import type { SessionBook } from './session-book.js';
import type { SessionRanks } from './session-ranks.js';
import type { StepRunner } from './step-runner.js';

/** Steps of a session that ends have this long to end; then the allocation goes, and they go with it. */
const DRAIN_MS = 15_000;
/** After a restart no clock ends a session for so long. */
const GRACE_MS = 30_000;

/** A wish that a session ends. */
interface Wish {
  readonly reason: CancelReason;
  readonly by: string;
}

/** The parts that an end touches. */
interface EndParts {
  readonly jobs: JobBook;
  readonly canceller: Canceller;
  readonly book: SessionBook;
  readonly ranks: SessionRanks;
  readonly runner: StepRunner;
}

/** How sessions end: by a wish, by their clocks, with their job. */
export class SessionEnds {
  readonly #deps: WorkerDeps;
  readonly #jobs: JobBook;
  readonly #canceller: Canceller;
  readonly #book: SessionBook;
  readonly #ranks: SessionRanks;
  readonly #runner: StepRunner;
  #clocksFromMs = 0;
  readonly #wishes = new Map<TaskId, Wish>();
  /** Monotonic ms until which the steps of an ending session are waited for. */
  readonly #drainUntilMs = new Map<TaskId, number>();

  constructor(deps: WorkerDeps, { jobs, canceller, book, ranks, runner }: EndParts) {
    this.#deps = deps;
    this.#jobs = jobs;
    this.#canceller = canceller;
    this.#book = book;
    this.#ranks = ranks;
    this.#runner = runner;
  }

  /** While the worker was away nobody could use a session: its users get a moment to come back. */
  giveGrace(): void {
    this.#clocksFromMs = this.#deps.clock.monotonicMs() + GRACE_MS;
  }

  /** The first wish counts. */
  wish(taskId: TaskId, wish: Wish): void {
    if (!this.#wishes.has(taskId)) this.#wishes.set(taskId, wish);
  }

  /** Does the next thing for a session that is to end; nothing for one that is not. */
  async followWish(taskId: TaskId, session: Session, job: Job): Promise<void> {
    const wish = this.#wishes.get(taskId) ?? this.#clockWish(session) ?? endingOf(session);
    if (wish !== null) await this.#end(taskId, job, wish);
  }

  #clockWish(session: Session): Wish | null {
    if (this.#deps.clock.monotonicMs() < this.#clocksFromMs) return null;
    const reason = expiredClock(sessionContextOf(session), this.#deps.clock.nowMs());
    return reason === null ? null : { reason, by: 'the session limits' };
  }

  /** In this order: no new steps, cancel the steps, drain, then the one way in which every job is cancelled. */
  async #end(taskId: TaskId, job: Job, { reason, by }: Wish): Promise<void> {
    const { clock, log } = this.#deps;
    const began = await this.#book.record(taskId, () => [
      { type: 'session.ending', v: 1, atMs: clock.nowMs(), reason, by: clip(by, 200) },
    ]);
    if (began.length > 0) log.info({ taskId, reason, by }, 'a session is ending');
    const untilMs = this.#drainUntilMs.get(taskId) ?? clock.monotonicMs() + DRAIN_MS;
    if (!this.#drainUntilMs.has(taskId)) {
      this.#drainUntilMs.set(taskId, untilMs);
      await this.#runner.cancelAll(taskId, by);
    }
    const session = this.#book.get(taskId);
    const open = session === null ? 0 : sessionContextOf(session).openSteps.length;
    if (open > 0 && clock.monotonicMs() < untilMs) return;
    this.#wishes.delete(taskId);
    if (contextOf(job).cancel === null) await this.#jobs.record([this.#canceller.wishNow(job, reason, by)]);
  }

  /**
   * A job that was taken away is followed by another one, perhaps: the session waits. Every other end is the session's
   * own once the coordinator has taken it. True: nothing is left to be said about this job.
   */
  async jobIsOver(taskId: TaskId, job: Job): Promise<boolean> {
    const { jobId, reason, detail } = contextOf(job);
    const phase = phaseOf(job);
    const atMs = this.#deps.clock.nowMs();
    this.#ranks.dismiss(jobId);
    await this.#runner.cancelAll(taskId, 'the end of the job');
    await this.#runner.disown(taskId, 'the session lost its allocation while it ran', false);
    const limit = limitOfLost(job);
    const taken = phase === 'Lost' && reason !== 'ABANDONED' && limit === null;
    const lost = taken || reason === 'LEASE_LOST' || reason === 'DUPLICATE';
    const refused = job.aftermath.delivered && !job.aftermath.accepted;
    if (lost || refused) {
      const why = reason ?? 'NOT_FOUND';
      await this.#book.record(taskId, () => [
        { type: 'session.interrupted', v: 1, atMs, jobId, reason: why, detail: clip(detail) },
      ]);
    } else if (job.aftermath.delivered && !this.#isDraining(taskId)) {
      const end = limit === null ? { phase, reason } : ({ phase: 'Cancelled', reason: limit } as const);
      await this.#book.record(taskId, () => [{ type: 'session.ended', v: 1, atMs, ...end, detail: clip(detail) }]);
    } else {
      return false;
    }
    this.#wishes.delete(taskId);
    this.#drainUntilMs.delete(taskId);
    return true;
  }

  /** Whether steps have still to end, and may. */
  #isDraining(taskId: TaskId): boolean {
    const session = this.#book.get(taskId);
    if (session === null || sessionContextOf(session).openSteps.length === 0) return false;
    const nowMs = this.#deps.clock.monotonicMs();
    const untilMs = this.#drainUntilMs.get(taskId) ?? nowMs + DRAIN_MS;
    this.#drainUntilMs.set(taskId, untilMs);
    return nowMs < untilMs;
  }

  /** A session that comes back finds the job before it over: what it left in the stream is closed first. */
  async leaveFormerJob(taskId: TaskId, jobId: JobId): Promise<void> {
    const session = this.#book.get(taskId);
    const former = session === null ? null : sessionContextOf(session).jobId;
    if (former === null || former === jobId) return;
    const job = this.#jobs.get(former) ?? (await this.#jobs.past(former));
    const reason = (job === null ? null : contextOf(job).reason) ?? 'NOT_FOUND';
    this.#ranks.dismiss(former);
    await this.#runner.disown(taskId, 'the session lost its allocation while it ran', false);
    await this.#book.record(taskId, () => [
      { type: 'session.interrupted', v: 1, atMs: this.#deps.clock.nowMs(), jobId: former, reason, detail: '' },
    ]);
    this.#drainUntilMs.delete(taskId);
  }
}

/** What the stream says that the session ends for: a worker that restarted goes on with it. */
function endingOf(session: Session): Wish | null {
  const { ending } = sessionContextOf(session);
  return sessionStateOf(session) === 'Ending' && ending !== null ? { reason: ending.reason, by: ending.by } : null;
}
