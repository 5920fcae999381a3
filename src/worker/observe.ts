import type { JobAnswer, Observations, WatchItem } from '../backend.js';
import { VersionConflictError } from '../events/store.js';
import type { BackendEvent } from '../machines/backend-events.js';
import { contextOf, phaseOf, type Job } from '../machines/job-aggregate.js';
import { isWatched } from '../machines/job-asks.js';
import type { JobEvent } from '../machines/job-events.js';
import { mintedAtMs, type JobId } from '../machines/vocabulary.js';
import { byClaim, hasRivals } from './claim-holder.js';
import type { WorkerDeps } from './context.js';
import { decideObservation, type PollTime } from './decide-observation.js';
import { decideHealth, UNKNOWN_HEALTH, type Health } from './health.js';
import type { JobBook, JobChange } from './job-book.js';

/** A job can not have been submitted before its token was minted; clocks may differ by this much, ms. */
const CLOCK_SLACK_MS = 3_600_000;
const ODDITIES_KEPT = 1_000;

/** What a poll told the loop about itself. */
export interface PollReport {
  readonly answered: boolean;
  /** Some job's stream grew. */
  readonly news: boolean;
  /** Jobs that are being cleaned up: they are about to change. */
  readonly ending: readonly JobId[];
}

/** Asks the backend what is true, once for all jobs, and records what is news. */
export class Observer {
  readonly #deps: WorkerDeps;
  readonly #book: JobBook;
  readonly #isBusy: (jobId: JobId) => boolean;
  readonly #oddities = new Set<string>();
  #health: Health = UNKNOWN_HEALTH;
  #streamVersion = 0;

  constructor(deps: WorkerDeps, book: JobBook, isBusy: (jobId: JobId) => boolean) {
    this.#deps = deps;
    this.#book = book;
    this.#isBusy = isBusy;
  }

  get health(): Health {
    return this.#health;
  }

  /** Reads how far the backend's health stream is; records that the worker started. */
  async open(report: Readonly<Record<string, string>>): Promise<void> {
    const { store, backend, clock, name } = this.#deps;
    const past = await store.readStream(`backend/${backend.name}`);
    this.#streamVersion = past.length;
    await this.#recordHealth([{ type: 'worker.started', v: 1, atMs: clock.nowMs(), worker: name, report }]);
  }

  watched(): readonly Job[] {
    const jobs: Job[] = [];
    for (const job of this.#book.all()) if (isWatched(job)) jobs.push(job);
    return jobs;
  }

  async poll(): Promise<PollReport> {
    const { backend, clock, log } = this.#deps;
    const jobs = this.watched();
    const askedAtMs = clock.nowMs();
    const seen = await backend.observe(jobs.map(watchItem));
    const nowMs = clock.nowMs();

    const { health, events } = decideHealth(this.#health, seen, nowMs, jobs.length);
    for (const event of events) logHealth(log, event, jobs.length);
    const changes = await this.#decide(jobs, seen, { askedAtMs, nowMs, healthySinceMs: healthySince(health, nowMs) });
    await this.#recordHealth([...events, ...this.#newOddities(seen.oddities, nowMs)]);
    this.#health = health;
    await this.#book.record(changes);
    return {
      answered: seen.queueOutage === null,
      news: changes.length > 0,
      ending: endingIn(seen),
    };
  }

  async #decide(jobs: readonly Job[], seen: Observations, time: PollTime): Promise<readonly JobChange[]> {
    const changes: JobChange[] = [];
    for (const asked of jobs) {
      const { jobId } = contextOf(asked);
      const answer = seen.jobs.get(jobId);
      // While the poll was under way somebody may have taken the job up: what was asked before is old news then.
      if (answer === undefined || this.#book.get(jobId) !== asked || this.#isBusy(jobId)) continue;
      const refined = await this.#refine(jobId, answer);
      const isLookUp = phaseOf(asked) === 'Unknown' && refined.kind === 'absent';
      const claim = isLookUp ? await this.#deps.directories.claim(jobId) : null;
      if (this.#book.get(jobId) !== asked || this.#isBusy(jobId)) continue;
      // A claim that can not be read may be there: this look says nothing.
      if (claim?.kind === 'unknown') continue;
      const events =
        claim?.kind === 'held' ? [foundByClaim(asked, claim.id, time)] : decideObservation(asked, refined, time);
      if (events.length > 0) changes.push({ jobId, events });
    }
    return changes;
  }

  /**
   * What the job's directory adds: who of several holds the claim, and how far a failed one got. The backend only sees
   * an exit code of a job that never came to its profile.
   */
  async #refine(jobId: JobId, given: JobAnswer): Promise<JobAnswer> {
    const answer = hasRivals(given) ? byClaim(given, await this.#deps.directories.claim(jobId)) : given;
    if (answer.kind !== 'seen' || answer.state.phase !== 'Failed') return answer;
    const marker = await this.#deps.directories.endMarker(jobId);
    if (marker === null) return answer;
    const diagnostics = { ...answer.diagnostics, ...markerWords(marker.exitCode, marker.signal) };
    if (marker.stage === 'profile' || answer.state.reason !== 'EXIT_NONZERO') return { ...answer, diagnostics };
    return {
      ...answer,
      state: { phase: 'Failed', reason: 'BOOTSTRAP_FAILED' },
      why: `the job's script could not start its profile; ${answer.why}`,
      diagnostics,
    };
  }

  #newOddities(texts: readonly string[], atMs: number): readonly BackendEvent[] {
    const fresh = [...new Set(texts)].filter((text) => !this.#oddities.has(text));
    const room = fresh.slice(0, Math.max(0, ODDITIES_KEPT - this.#oddities.size));
    for (const text of room) {
      this.#oddities.add(text);
      this.#deps.log.warn({ text }, 'the backend said something unknown');
    }
    return room.map((text) => ({ type: 'oddity.seen', v: 1, atMs, text: text.slice(0, 2000) }));
  }

  async #recordHealth(events: readonly BackendEvent[]): Promise<void> {
    if (events.length === 0) return;
    const { store, backend } = this.#deps;
    const stream = `backend/${backend.name}` as const;
    try {
      await store.append({ stream, expectedVersion: this.#streamVersion, events });
      this.#streamVersion += events.length;
    } catch (error) {
      // An append that seemed to fail had landed: the next one goes on from where the stream really is.
      if (error instanceof VersionConflictError) this.#streamVersion = error.actualVersion;
      throw error;
    }
  }
}

/** A claim says that a submission landed and ran, whatever queue and accounting have forgotten since (INV-8). */
function foundByClaim(job: Job, id: string, time: PollTime): JobEvent {
  const { attempt } = contextOf(job);
  const handle = { id, cluster: null, submittedAtMs: attempt?.startedAtMs ?? time.nowMs };
  return { type: 'submission.found', v: 1, atMs: time.nowMs, handle, source: 'directory' };
}

function watchItem(job: Job): WatchItem {
  const { jobId, token, handle } = contextOf(job);
  return { jobId, token, handle, sinceMs: Math.max(0, mintedAtMs(token) - CLOCK_SLACK_MS) };
}

/** A source that does not answer now is not healthy since any time: nothing counts that is not later than now. */
function healthySince(health: Health, nowMs: number): PollTime['healthySinceMs'] {
  return {
    queue: health.queue.healthySinceMs ?? nowMs,
    accounting: health.accounting.healthySinceMs ?? nowMs,
  };
}

function endingIn(seen: Observations): readonly JobId[] {
  const ending: JobId[] = [];
  for (const [jobId, answer] of seen.jobs) {
    if (answer.kind === 'seen' && answer.state.phase === 'Running' && answer.state.ending) ending.push(jobId);
  }
  return ending;
}

function markerWords(exitCode: number | null, signal: number | null): Record<string, string> {
  return {
    ...(exitCode === null ? {} : { scriptExitCode: String(exitCode) }),
    ...(signal === null ? {} : { scriptSignal: String(signal) }),
  };
}

function logHealth(log: WorkerDeps['log'], event: BackendEvent, jobs: number): void {
  if (event.type === 'outage.began') {
    log.warn({ part: event.part, detail: event.detail }, `can not be asked; ${String(jobs)} jobs kept as they were`);
  } else if (event.type === 'outage.ended') {
    log.info({ part: event.part }, 'answers again');
  }
}
