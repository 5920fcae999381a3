import type { OutcomeRequest, PortAnswer } from '../coordinator/worker-api.js';
import { clip } from '../events/schema-parts.js';
import { contextOf, phaseOf, type Job } from '../machines/job-aggregate.js';
import type { JobEvent } from '../machines/job-events.js';
import type { CancelReason, JobId } from '../machines/vocabulary.js';
import { again, DONE, type ActivityResult } from './activities.js';
import type { WorkerDeps } from './context.js';
import type { JobBook } from './job-book.js';
import type { Leases } from './leases.js';

/** What one warning may have on the wire (worker-api.ts), in UTF-16 units. */
const WIRE_WARNING_MAX = 2000;

/** Collects results, hands outcomes to the coordinator, removes directories. Every step may be repeated. */
export class Settler {
  readonly #deps: WorkerDeps;
  readonly #book: JobBook;
  readonly #leases: Leases;

  constructor(deps: WorkerDeps, book: JobBook, leases: Leases) {
    this.#deps = deps;
    this.#book = book;
    this.#leases = leases;
  }

  /** A completed job counts only with a result that can be read; a shared file system may show it late. */
  async collect(jobId: JobId): Promise<ActivityResult> {
    const { directories, clock, config } = this.#deps;
    const job = this.#book.get(jobId);
    if (job === null) return DONE;
    const found = await directories.collect(jobId, config.resultLimitBytes);
    const atMs = clock.nowMs();
    switch (found.kind) {
      case 'ok':
        await this.#record(jobId, { type: 'result.collected', v: 1, atMs, bytes: found.bytes, sha256: found.sha256 });
        return DONE;
      case 'io':
      case 'missing':
      case 'invalid': {
        const { completion, watchUntilMs, inherited } = contextOf(job);
        const graceEndsAtMs = (completion?.atMs ?? atMs) + config.resultGraceMs;
        // A file system that does not answer says nothing about the result: that is waited for as long as the job is. Of
        // another worker's job nobody wants the result, only its end, and its directory may be out of our reach.
        const untilMs = found.kind === 'io' && !inherited ? (watchUntilMs ?? Number.POSITIVE_INFINITY) : graceEndsAtMs;
        if (atMs < untilMs) return again(found.detail);
        const reason = found.kind === 'invalid' ? 'RESULT_INVALID' : 'RESULT_MISSING';
        await this.#record(jobId, { type: 'result.unusable', v: 1, atMs, reason, detail: clip(found.detail) });
        return DONE;
      }
    }
  }

  async deliver(jobId: JobId): Promise<ActivityResult> {
    const job = this.#book.get(jobId);
    if (job === null) return DONE;
    const { taskId, epoch, inherited, cancel } = contextOf(job);
    if (inherited || cancel?.reason === 'LEASE_LOST') return this.#close(job, 'its lease was lost');
    const outcome = await this.#outcomeOf(job);
    if (outcome === null) return again('the result can not be read');
    await this.#uploadLogs(job);
    const answer = await this.#deps.coordinator.outcome(outcome);
    if (answer.kind === 'stale') return this.#close(job, answer.detail);
    if (answer.kind === 'refused' && outcome.type === 'completed' && isAboutContent(answer.status)) {
      return this.#deliverRefusedResult(job, answer.detail);
    }
    if (answer.kind !== 'answered') return again(describe(answer));
    this.#leases.drop(taskId, epoch);
    await this.#delivered(jobId, true, '');
    return DONE;
  }

  async removeDirectory(jobId: JobId): Promise<ActivityResult> {
    const removed = await this.#deps.directories.remove(jobId);
    if (removed.kind === 'io') return again(removed.detail);
    await this.#record(jobId, { type: 'directory.removed', v: 1, atMs: this.#deps.clock.nowMs(), kept: null });
    return DONE;
  }

  async uploadTails(job: Job): Promise<void> {
    await this.#uploadLogs(job);
  }

  /** Nobody waits for this job any more; the coordinator learns that it is over, so the task may go on (INV-3). */
  async #close(job: Job, why: string): Promise<ActivityResult> {
    const { jobId, taskId, epoch, reason } = contextOf(job);
    const closed = await this.#deps.coordinator.report([
      { type: 'closed', taskId, jobId, phase: phaseOf(job), reason },
    ]);
    if (closed.kind === 'unreachable' || closed.kind === 'refused') return again(describe(closed));
    this.#leases.drop(taskId, epoch);
    this.#deps.log.warn({ jobId, taskId, why }, 'the outcome was not taken');
    await this.#delivered(jobId, false, why);
    return DONE;
  }

  async #deliverRefusedResult(job: Job, detail: string): Promise<ActivityResult> {
    const { jobId, taskId, epoch } = contextOf(job);
    const answer = await this.#deps.coordinator.outcome({
      type: 'failed',
      taskId,
      epoch,
      jobId,
      reason: 'RESULT_INVALID',
      detail: `the coordinator refused the result: ${detail}`.slice(0, 4000),
    });
    if (answer.kind === 'stale') return this.#close(job, answer.detail);
    if (answer.kind !== 'answered') return again(describe(answer));
    this.#leases.drop(taskId, epoch);
    await this.#delivered(jobId, true, 'as a failure: the result was refused');
    return DONE;
  }

  /** null: not now. */
  async #outcomeOf(job: Job): Promise<OutcomeRequest | null> {
    const { jobId, taskId, epoch, reason, detail, completion, result } = contextOf(job);
    const base = { taskId, epoch, jobId };
    switch (phaseOf(job)) {
      case 'Completed': {
        const found = await this.#deps.directories.collect(jobId, this.#deps.config.resultLimitBytes);
        if (found.kind === 'io') return null;
        if (found.kind === 'ok' && found.sha256 === result?.sha256) {
          const warnings = (completion?.warnings ?? []).map((warning) => clip(warning, WIRE_WARNING_MAX));
          return { type: 'completed', ...base, result: found.value, warnings };
        }
        const why = found.kind === 'ok' ? 'the result changed after it was collected' : found.detail;
        return { type: 'failed', ...base, reason: 'RESULT_MISSING', detail: clip(why) };
      }
      case 'Cancelled':
        return { type: 'cancelled', ...base, reason: reason ?? 'ADMIN_CANCELLED' };
      case 'Lost': {
        if (reason === 'ABANDONED') return { type: 'failed', ...base, reason, detail };
        const limit = limitOfLost(job);
        if (limit !== null) return { type: 'cancelled', ...base, reason: limit };
        return { type: 'lost', ...base, reason: reason ?? 'NOT_FOUND', detail };
      }
      default:
        return { type: 'failed', ...base, reason: reason ?? 'BACKEND_REJECTED', detail: this.#publicDetail(job) };
    }
  }

  /**
   * What a backend said when it refused names its own settings, and an unfit script its path: that is for whoever runs
   * the gateway, and stays in the job's stream (INV-2).
   */
  #publicDetail(job: Job): string {
    const { jobId, profile: name, reason, detail } = contextOf(job);
    if (reason === 'BACKEND_REJECTED') {
      return `the backend refused the submission; an administrator sees its words with: open-compute explain ${jobId}`;
    }
    const script = this.#deps.profiles.get(name)?.scriptPath ?? null;
    return script === null ? detail : detail.replaceAll(script, 'its script');
  }

  /** For people; the outcome does not wait for it. */
  async #uploadLogs(job: Job): Promise<void> {
    const { jobId, taskId, epoch, attempt } = contextOf(job);
    if (attempt === null) return;
    const tails = await this.#deps.directories.tails(jobId, this.#deps.config.logTailBytes);
    const answer = await this.#deps.coordinator.putLogs({ taskId, epoch, ...tails });
    if (answer.kind !== 'answered') this.#deps.log.warn({ jobId, answer: describe(answer) }, 'output not handed over');
  }

  #delivered(jobId: JobId, accepted: boolean, detail: string): Promise<void> {
    return this.#record(jobId, {
      type: 'outcome.delivered',
      v: 1,
      atMs: this.#deps.clock.nowMs(),
      accepted,
      detail: clip(detail),
    });
  }

  #record(jobId: JobId, event: JobEvent): Promise<void> {
    return this.#book.record([{ jobId, events: [event] }]);
  }
}

/** Which limit a session had reached whose job was then lost: its time was over anyway, nobody wants another one. */
export function limitOfLost(job: Job): CancelReason | null {
  const { reason, cancel } = contextOf(job);
  if (phaseOf(job) !== 'Lost' || reason === 'ABANDONED' || cancel === null) return null;
  const isLimit = cancel.reason === 'SESSION_IDLE_TIMEOUT' || cancel.reason === 'SESSION_MAX_LIFETIME_EXCEEDED';
  return isLimit ? cancel.reason : null;
}

const isAboutContent = (status: number): boolean => status === 400 || status === 413 || status === 422;

function describe(answer: Exclude<PortAnswer<unknown>, { kind: 'answered' }>): string {
  const what = answer.kind === 'refused' ? `refused (${String(answer.status)})` : answer.kind;
  return `the coordinator: ${what}: ${answer.detail}`;
}
