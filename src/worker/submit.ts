import type { Profile, SessionLaunch, SubmitReply, SubmitRequest } from '../backend.js';
import { clip } from '../events/schema-parts.js';
import { contextOf, type Job } from '../machines/job-aggregate.js';
import type { JobEvent } from '../machines/job-events.js';
import { SESSION_KIND } from '../machines/task-context.js';
import type { JobId } from '../machines/vocabulary.js';
import { again, DONE, type ActivityResult } from './activities.js';
import type { WorkerDeps } from './context.js';
import { decideSubmission, DEFERRAL_MS } from './decide-submission.js';
import type { PrepareReply } from './directories.js';
import type { JobBook } from './job-book.js';
import type { SessionPrepared } from './sessions/sessions.js';
import { Slots } from './slots.js';

/** While submissions are under way, so many more get their directories ready: what can be done before is done before. */
const PREPARED_AHEAD = 2;

/** A submit limit concerns the whole profile: until `untilMs` (Unix epoch ms) no job of it is submitted. */
interface Hold {
  readonly count: number;
  readonly untilMs: number;
}

type Prepared = { readonly kind: 'ok'; readonly session: SessionLaunch | null } | Exclude<PrepareReply, { kind: 'ok' }>;

/** Sends submissions, one per job and attempt, each after its intention is durable (INV-8). */
export class Submitter {
  readonly #deps: WorkerDeps;
  readonly #book: JobBook;
  readonly #holds = new Map<string, Hold>();
  readonly #sending: Slots;
  readonly #sessionOf: (job: Job) => Promise<SessionPrepared>;

  /** `sessionOf`: prepares a session's job, and says how it is started. */
  constructor(deps: WorkerDeps, book: JobBook, sessionOf: (job: Job) => Promise<SessionPrepared>) {
    this.#deps = deps;
    this.#book = book;
    this.#sessionOf = sessionOf;
    this.#sending = new Slots(deps.config.submitConcurrency);
  }

  /** How many `submit` calls at a time are of use. */
  get width(): number {
    return this.#deps.config.submitConcurrency + PREPARED_AHEAD;
  }

  isHeld(job: Job, nowMs: number): boolean {
    return (this.#holds.get(contextOf(job).profile)?.untilMs ?? 0) > nowMs;
  }

  /**
   * Prepares the directory, records the intention, submits, records what the answer means. `mayStart` is asked once
   * more after the preparation: that may take longer than the lease. At most `submitConcurrency` are sent at a time.
   */
  async submit(jobId: JobId, mayStart: () => boolean): Promise<ActivityResult> {
    const { backend, directories, profiles, clock, config, log } = this.#deps;
    const job = this.#book.get(jobId);
    if (job === null) return DONE;
    const { token, profile: profileName, attempt } = contextOf(job);
    const number = (attempt?.number ?? 0) + 1;
    if (number > config.attemptsMax) {
      const detail = `${String(config.attemptsMax)} submissions, one after the other, were not answered and came to nothing`;
      return this.#reject(jobId, 'BACKEND_REJECTED', detail);
    }
    const profile = profiles.get(profileName);
    if (profile === undefined)
      return this.#reject(jobId, 'INVALID_SPEC', `profile "${profileName}" is not offered any more`);

    const prepared = await this.#prepare(job, profile);
    if (prepared.kind === 'invalidSpec') return this.#reject(jobId, 'INVALID_SPEC', prepared.detail);
    if (prepared.kind === 'io') return again(prepared.detail);
    const { session } = prepared;
    // As many nodes as the session has ranks, also when the profile has changed since it began.
    const sized = session === null ? profile : { ...profile, nodes: session.ranks };
    const request: SubmitRequest = { jobId, token, profile: sized, directory: directories.path(jobId), session };
    await backend.prepare(request);
    const reply = await this.#sending.with(async () =>
      mayStart() && !this.isHeld(job, clock.nowMs()) ? await this.#send(request, number) : null,
    );
    if (reply === null) return DONE;
    const event = decideSubmission(reply, clock.nowMs(), this.#deferralMs(profileName));
    if (event.type === 'submission.deferred') this.#hold(profileName, event.notBeforeMs);
    else if (event.type === 'submission.accepted') this.#holds.delete(profileName);
    await this.#record(jobId, event);
    log.info({ jobId, attempt: number, outcome: event.type, reply: reply.kind }, 'submission answered');
    return DONE;
  }

  async #prepare(job: Job, profile: Profile): Promise<Prepared> {
    const { jobId, kind } = contextOf(job);
    if (kind === SESSION_KIND) {
      const session = await this.#sessionOf(job);
      return session.kind === 'ready' ? { kind: 'ok', session: session.launch } : session;
    }
    const { parameters } = await this.#book.created(jobId);
    const prepared = await this.#deps.directories.prepare(jobId, { parameters, profile });
    return prepared.kind === 'ok' ? { kind: 'ok', session: null } : prepared;
  }

  /** The request leaves after its intention is durable. */
  async #send(request: SubmitRequest, attempt: number): Promise<SubmitReply> {
    await this.#record(request.jobId, {
      type: 'submission.started',
      v: 1,
      atMs: this.#deps.clock.nowMs(),
      attempt,
    });
    return await this.#deps.backend.submit(request);
  }

  /** Grows from one time to the next; jobs that were refused together wait together. */
  #deferralMs(profile: string): number {
    const hold = this.#holds.get(profile);
    const heldForMs = (hold?.untilMs ?? 0) - this.#deps.clock.nowMs();
    return heldForMs > 0 ? heldForMs : Math.min(DEFERRAL_MS.max, DEFERRAL_MS.first * 2 ** (hold?.count ?? 0));
  }

  #hold(profile: string, untilMs: number): void {
    const hold = this.#holds.get(profile);
    if (hold?.untilMs !== untilMs) this.#holds.set(profile, { count: (hold?.count ?? 0) + 1, untilMs });
  }

  /** After a restart: the attempt has no outcome, and nobody is left who could record one. */
  async closeAttempt(jobId: JobId): Promise<ActivityResult> {
    await this.#record(jobId, {
      type: 'submission.lost',
      v: 1,
      atMs: this.#deps.clock.nowMs(),
      cause: 'interrupted',
      detail: 'the worker stopped before the answer was recorded',
      hint: null,
    });
    return DONE;
  }

  async endAttempt(jobId: JobId): Promise<ActivityResult> {
    const job = this.#book.get(jobId);
    if (job === null) return DONE;
    const end = await this.#deps.backend.endAttempt(contextOf(job).token);
    if (end.kind === 'alive') return again(end.detail);
    await this.#record(jobId, { type: 'attempt.ended', v: 1, atMs: this.#deps.clock.nowMs(), how: clip(end.how) });
    return DONE;
  }

  async #reject(jobId: JobId, reason: 'INVALID_SPEC' | 'BACKEND_REJECTED', detail: string): Promise<ActivityResult> {
    const atMs = this.#deps.clock.nowMs();
    await this.#record(jobId, {
      type: 'submission.rejected',
      v: 1,
      atMs,
      reason,
      detail: clip(detail),
    });
    return DONE;
  }

  #record(jobId: JobId, event: JobEvent): Promise<void> {
    return this.#book.record([{ jobId, events: [event] }]);
  }
}
