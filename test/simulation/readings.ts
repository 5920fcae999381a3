import type { RecordedEvent } from '../../src/events/store.js';

type Recorded = RecordedEvent['event'];
type Named<T extends Recorded['type']> = Extract<Recorded, { type: T }>;

/** Wishes that end as a failure; every other one ends as Cancelled. */
const FAILING_WISHES = ['WATCH_LIMIT_EXCEEDED', 'UNSCHEDULABLE'];
const AFTER_THE_END = ['outcome.delivered', 'directory.removed', 'late.observed', 'duplicate.found', 'duplicate.ended'];

/** A job as its raw events tell it to somebody who has never seen the job machine. */
export class JobReading {
  readonly created: Named<'job.created'>;
  phase = 'Submitting';
  phaseSinceMs: number;
  reason = '';
  wish: string | null = null;
  handle: { readonly id: string; readonly cluster: string | null } | null = null;
  attemptOpen = false;
  /** The open attempt's request has left. */
  attemptSent = false;
  completionReported = false;
  delivered = false;
  directoryRemoved = false;
  events = 1;
  readonly duplicates = new Map<string, { readonly id: string; readonly cluster: string | null }>();

  /** `atMs`: true time of the world. */
  constructor(created: Named<'job.created'>, atMs: number) {
    this.created = created;
    this.phaseSinceMs = atMs;
  }

  isOver(): boolean {
    return ['Completed', 'Failed', 'Cancelled', 'Lost'].includes(this.phase);
  }

  get isSettled(): boolean {
    return this.delivered && this.directoryRemoved && this.duplicates.size === 0;
  }

  /** Takes in the next event; what must never be is said, else null. */
  read(event: Recorded, atMs: number): string | null {
    this.events += 1;
    if (this.isOver() && !AFTER_THE_END.includes(event.type)) return `${event.type} after ${this.phase} (INV-6)`;
    const before = this.phase;
    const problem = this.#take(event);
    if (this.phase !== before) this.phaseSinceMs = atMs;
    return problem;
  }

  #take(event: Recorded): string | null {
    switch (event.type) {
      case 'submission.started':
        if (this.phase !== 'Submitting' || this.attemptOpen) return 'an attempt while another one is open (INV-8)';
        this.attemptOpen = true;
        this.attemptSent = false;
        return null;
      case 'submission.accepted':
        return this.#landed(event.handle);
      case 'submission.rejected':
        return this.#end('Failed', event.reason);
      case 'submission.deferred':
        this.attemptOpen = false;
        return this.wish === null ? null : this.#endByWish();
      case 'submission.lost':
        this.phase = 'Unknown';
        return null;
      case 'submission.found':
        return this.#landed(event.handle);
      case 'submission.disproved':
        if (this.phase !== 'Unknown') return 'a disproof of what is not in doubt (INV-8)';
        this.attemptOpen = false;
        this.phase = 'Submitting';
        return this.wish === null ? null : this.#endByWish();
      case 'job.observed':
        this.handle = event.handle;
        if (event.phase === 'Cancelled' && this.wish !== null) return this.#endByWish();
        if (event.phase === 'Failed' || event.phase === 'Cancelled') return this.#end(event.phase, event.reason ?? '');
        if (event.phase === 'Pending') this.completionReported = false;
        this.phase = event.phase;
        return null;
      case 'completion.reported':
        this.handle = event.handle;
        this.completionReported = true;
        this.phase = 'Running';
        return null;
      case 'result.collected':
        return this.completionReported ? this.#end('Completed', '') : 'a result without a completion';
      case 'result.unusable':
        return this.#end('Failed', event.reason);
      case 'loss.confirmed':
        return this.#end('Lost', event.reason);
      case 'job.abandoned':
        return this.#end('Lost', 'ABANDONED');
      case 'cancel.requested':
        this.wish = event.reason;
        return this.phase === 'Submitting' && !this.attemptOpen ? this.#endByWish() : null;
      case 'duplicate.found':
        for (const one of event.cancel) this.duplicates.set(`${one.cluster ?? ''}/${one.id}`, one);
        if (!this.isOver()) {
          this.handle = event.keep;
          if (this.phase === 'Unknown') this.phase = 'Pending';
        }
        return null;
      case 'duplicate.ended':
        this.duplicates.delete(`${event.handle.cluster ?? ''}/${event.handle.id}`);
        return null;
      case 'outcome.delivered':
        this.delivered = true;
        return null;
      case 'directory.removed':
        this.directoryRemoved = true;
        return this.delivered ? null : 'its directory went before its outcome was delivered';
      default:
        return null;
    }
  }

  #landed(handle: Named<'submission.accepted'>['handle']): string | null {
    this.handle = handle;
    this.attemptOpen = false;
    this.phase = 'Pending';
    return null;
  }

  #end(phase: string, reason: string): null {
    this.phase = phase;
    this.reason = reason;
    this.attemptOpen = false;
    return null;
  }

  #endByWish(): null {
    const wish = this.wish ?? '';
    return this.#end(FAILING_WISHES.includes(wish) ? 'Failed' : 'Cancelled', wish);
  }
}

/** A task as its raw events tell it. */
export class TaskReading {
  readonly submitted: Named<'task.submitted'>;
  phase = 'Queued';
  reason = '';
  epoch = 0;
  isAbandoned = false;
  cancelWished = false;
  losses = 0;
  ends = 0;
  /** Epoch by job, of the jobs that are open. */
  readonly open = new Map<string, number>();
  /** Epoch by job, of every job. */
  readonly jobs = new Map<string, number>();
  /** The phase after each version of the stream. */
  readonly phases: string[] = ['', 'Queued'];

  constructor(submitted: Named<'task.submitted'>) {
    this.submitted = submitted;
  }

  isOver(): boolean {
    return this.phase !== 'Queued' && this.phase !== 'Leased';
  }

  read(event: Recorded): string | null {
    if (this.isOver()) return `${event.type} after ${this.phase}`;
    const problem = this.#take(event);
    this.phases.push(this.phase);
    if (this.isOver()) this.ends += 1;
    return problem;
  }

  #take(event: Recorded): string | null {
    switch (event.type) {
      case 'task.leased':
        if (event.epoch <= this.epoch) return `epoch ${String(event.epoch)} after ${String(this.epoch)} (INV-7)`;
        if (this.phase !== 'Queued') return 'a lease beside a lease';
        this.epoch = event.epoch;
        this.phase = 'Leased';
        return null;
      case 'task.jobOpened':
        if (event.job.epoch !== this.epoch || this.phase !== 'Leased')
          return 'a job of an old epoch was opened (INV-7)';
        this.open.set(event.job.jobId, event.job.epoch);
        this.jobs.set(event.job.jobId, event.job.epoch);
        return null;
      case 'task.progressed':
        return event.epoch === this.epoch ? null : 'progress of an old epoch (INV-7)';
      case 'task.jobClosed':
        this.open.delete(event.jobId);
        if (this.phase === 'Queued' && this.cancelWished && this.open.size === 0) this.#end('Cancelled', '');
        return null;
      case 'task.leaseExpired':
      case 'task.released':
        if (this.isAbandoned) this.#end('Failed', 'ABANDONED');
        else if (this.cancelWished && this.open.size === 0) this.#end('Cancelled', '');
        else this.phase = 'Queued';
        return null;
      case 'task.cancelRequested':
        this.cancelWished = true;
        if (this.phase === 'Queued' && this.open.size === 0) this.#end('Cancelled', '');
        return null;
      case 'task.abandonRequested':
        this.isAbandoned = true;
        if (this.phase === 'Queued') this.#end('Failed', 'ABANDONED');
        return null;
      case 'task.completed':
        return this.#outcome(event, 'Completed');
      case 'task.failed':
        return this.#outcome(event, 'Failed');
      case 'task.cancelled':
        return this.#outcome(event, 'Cancelled');
      case 'task.lost':
        this.losses += 1;
        if (this.isAbandoned || event.reason === 'ABANDONED') return this.#outcome(event, 'Failed');
        if (this.cancelWished) return this.#outcome(event, 'Cancelled');
        return this.#outcome(event, this.losses >= this.submitted.lossesMax ? 'DeadLetter' : 'Queued');
      default:
        return `${event.type} in a task's stream`;
    }
  }

  /** How a lease's job ended. It has to be the job of that very epoch, and nothing else may be open (INV-3, INV-7). */
  #outcome(
    event: Named<'task.completed' | 'task.failed' | 'task.cancelled' | 'task.lost'>,
    phase: string,
  ): string | null {
    const { jobId, epoch } = event;
    if (this.phase !== 'Leased' || epoch !== this.epoch) return `${event.type} of an old epoch was taken (INV-7)`;
    const opened = jobId === null ? undefined : this.jobs.get(jobId);
    if (opened !== undefined && opened !== epoch) return `${event.type} is about the job of another epoch (INV-7)`;
    if (jobId !== null) this.open.delete(jobId);
    if (this.open.size > 0) return `${event.type} while ${[...this.open.keys()].join()} is open (INV-3)`;
    if (phase === 'Queued') this.phase = phase;
    else this.#end(phase, 'reason' in event ? event.reason : '');
    return null;
  }

  #end(phase: string, reason: string): void {
    this.phase = phase;
    this.reason = reason;
  }
}
