import type { CancelTarget } from '../backend.js';
import { contextOf, type Job } from '../machines/job-aggregate.js';
import { isCancelDue } from '../machines/job-asks.js';
import type { CancelReason } from '../machines/vocabulary.js';
import type { WorkerDeps } from './context.js';
import type { JobBook, JobChange } from './job-book.js';

/** A cancel is sent again with growing pauses until the end is observed: a job stuck in ending costs few calls. */
const RESEND_MS = { first: 5_000, max: 1_800_000 } as const;
const SENDS_AT_FULL_RATE = 20;

export const resendAfterMs = (sent: number): number =>
  Math.min(RESEND_MS.max, RESEND_MS.first * 2 ** Math.min(sent, SENDS_AT_FULL_RATE));

/** The cancel barrier: wishes are recorded, sent many to a call, repeated, and end only in what is observed. */
export class Canceller {
  readonly #deps: WorkerDeps;
  readonly #book: JobBook;
  readonly #duplicatesSent = new Map<string, { readonly sent: number; readonly nextAtMs: number }>();
  #sending = false;
  #defers: (job: Job, reason: CancelReason, by: string) => boolean = () => false;

  constructor(deps: WorkerDeps, book: JobBook) {
    this.#deps = deps;
    this.#book = book;
  }

  /** `defers`: whether the wish has to wait for something that is to end before the job; who defers it passes it on. */
  deferTo(defers: (job: Job, reason: CancelReason, by: string) => boolean): void {
    this.#defers = defers;
  }

  /** Events that record a wish, where it is news and has not to wait. */
  wish(job: Job, reason: CancelReason, by: string): JobChange {
    return this.#defers(job, reason, by) ? { jobId: contextOf(job).jobId, events: [] } : this.wishNow(job, reason, by);
  }

  wishNow(job: Job, reason: CancelReason, by: string): JobChange {
    const { jobId, cancel, endedAtMs } = contextOf(job);
    if (cancel !== null || endedAtMs !== null) return { jobId, events: [] };
    return {
      jobId,
      events: [{ type: 'cancel.requested', v: 1, atMs: this.#deps.clock.nowMs(), reason, by: by.slice(0, 200) }],
    };
  }

  /** Sends what is due, if no cancel call is under way. Returns whether anything was sent. */
  async sendDue(isBusy: (job: Job) => boolean): Promise<boolean> {
    if (this.#sending) return false;
    const nowMs = this.#deps.clock.nowMs();
    const due: Job[] = [];
    const targets: CancelTarget[] = [];
    for (const job of this.#book.all()) {
      if (job.aftermath.duplicates.length > 0) targets.push(...this.#dueDuplicates(job, nowMs));
      if (!isCancelDue(job, nowMs) || isBusy(job)) continue;
      const { token, handle } = contextOf(job);
      if (handle === null || !this.#deps.backend.mayCancel({ token, handle })) continue;
      due.push(job);
      targets.push({ token, handle });
    }
    if (targets.length === 0) return false;
    this.#sending = true;
    try {
      await this.#book.record(due.map((job) => sentChange(job, nowMs)));
      const reply = await this.#deps.backend.cancel(targets);
      if (reply.outage !== null) {
        this.#deps.log.warn({ detail: reply.outage.detail, jobs: targets.length }, 'cancel not answered, repeating');
      }
      return true;
    } finally {
      this.#sending = false;
    }
  }

  #dueDuplicates(job: Job, nowMs: number): readonly CancelTarget[] {
    const { jobId, token } = contextOf(job);
    return job.aftermath.duplicates.flatMap((handle) => {
      const key = `${handle.cluster ?? ''}/${handle.id}`;
      const past = this.#duplicatesSent.get(key);
      if (past !== undefined && nowMs < past.nextAtMs) return [];
      if (!this.#deps.backend.mayCancel({ token, handle })) return [];
      const sent = (past?.sent ?? 0) + 1;
      this.#duplicatesSent.set(key, { sent, nextAtMs: nowMs + resendAfterMs(sent) });
      this.#deps.log.error(
        { jobId, duplicate: handle },
        'two jobs carry one token: this one is not kept, and is cancelled',
      );
      return [{ token, handle }];
    });
  }
}

function sentChange(job: Job, nowMs: number): JobChange {
  const { jobId, cancel } = contextOf(job);
  const attempt = (cancel?.sent ?? 0) + 1;
  return {
    jobId,
    events: [{ type: 'cancel.sent', v: 1, atMs: nowMs, attempt, nextAtMs: nowMs + resendAfterMs(attempt - 1) }],
  };
}
