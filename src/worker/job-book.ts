import { loadJobs, saveJobs, type LoadedJobs } from '../events/job-checkpoint.js';
import { isJobEvent } from '../events/schemas.js';
import {
  InvalidEventError,
  VersionConflictError,
  type Append,
  type EventStore,
  type RecordedEvent,
  type StreamName,
} from '../events/store.js';
import { contextOf, evolveJob, IllegalEventError, type Job } from '../machines/job-aggregate.js';
import { isSettled } from '../machines/job-asks.js';
import type { JobCreated, JobEvent } from '../machines/job-events.js';
import type { JobId, TaskId } from '../machines/vocabulary.js';

/** A job's changes that are to be recorded together with others. */
export interface JobChange {
  readonly jobId: JobId;
  readonly events: readonly JobEvent[];
}

const CHECKPOINT = 'jobs';

/**
 * The worker's unsettled jobs: what their streams fold to, in memory. The only way to change one is to record events;
 * they are folded after they are durable (INV-12). One activity at a time may record for a job.
 */
export class JobBook {
  readonly #store: EventStore;
  readonly #jobs: Map<JobId, Job>;
  /** Mostly one, which needs no list of its own. */
  readonly #byTask = new Map<TaskId, JobId | readonly JobId[]>();
  readonly #writing = new Map<JobId, Promise<void>>();
  #position: number;
  #checkpointPosition: number;

  private constructor(store: EventStore, { jobs, position }: LoadedJobs) {
    this.#store = store;
    this.#jobs = jobs;
    for (const job of jobs.values()) this.#noteTask(contextOf(job));
    this.#position = position;
    this.#checkpointPosition = position;
  }

  /** Checkpoint and tail: a restart does not fold everything again. Throws `StoreError`, `IllegalEventError`. */
  static async open(store: EventStore): Promise<JobBook> {
    return new JobBook(store, await loadJobs(store, CHECKPOINT));
  }

  get size(): number {
    return this.#jobs.size;
  }

  all(): IterableIterator<Job> {
    return this.#jobs.values();
  }

  get(jobId: JobId): Job | null {
    return this.#jobs.get(jobId) ?? null;
  }

  /** The unsettled jobs of one task, oldest first. */
  ofTask(taskId: TaskId): readonly Job[] {
    return this.#idsOf(taskId).flatMap((id) => this.#jobs.get(id) ?? []);
  }

  #idsOf(taskId: TaskId): readonly JobId[] {
    const ids = this.#byTask.get(taskId) ?? [];
    return typeof ids === 'string' ? [ids] : ids;
  }

  /** Records a new job with whatever else belongs to its beginning. */
  async create(created: JobCreated, more: readonly JobEvent[] = []): Promise<void> {
    await this.#append([{ jobId: created.jobId, events: [created, ...more] }]);
  }

  /**
   * Records in one transaction; resolves when it is durable and folded. When one job's change can not be recorded, the
   * others' are, each on its own, and then the error is thrown.
   */
  async record(changes: readonly JobChange[]): Promise<void> {
    const news = changes.filter(({ events }) => events.length > 0);
    try {
      await this.#append(news);
    } catch (error) {
      if (news.length < 2 || !isAboutOneJob(error)) throw error;
      await this.#recordEach(news);
    }
  }

  async #recordEach(changes: readonly JobChange[]): Promise<void> {
    const results = await Promise.allSettled(changes.map((change) => this.#append([change])));
    const failures = results.filter((result) => result.status === 'rejected').map(({ reason }) => String(reason));
    if (failures.length > 0) throw new Error(failures.join('; '));
  }

  /** A job that has left memory, settled, as its stream tells it; null: there never was one. */
  past(jobId: JobId): Promise<Job | null> {
    return streamOfJob(this.#store, `job/${jobId}`);
  }

  /** The first event of a job's stream: what it was asked to do. */
  async created(jobId: JobId): Promise<JobCreated> {
    const [first] = await this.#store.readStream(`job/${jobId}`);
    if (first?.event.type !== 'job.created') throw new Error(`job/${jobId} does not begin with job.created`);
    return first.event;
  }

  /**
   * Saves what is in memory, if more than `everyEvents` were recorded since the last time, and not while an append is
   * under way: then memory and log differ for a moment.
   */
  async checkpoint(everyEvents: number): Promise<void> {
    if (this.#writing.size > 0 || this.#position - this.#checkpointPosition < everyEvents) return;
    const position = this.#position;
    await saveJobs(this.#store, CHECKPOINT, this.#jobs.values(), position);
    this.#checkpointPosition = position;
  }

  /**
   * Two writers of one job take turns. What was decided on an older state is checked against the current one before
   * anything is written: an illegal event is an error here and never reaches the log.
   */
  async #append(changes: readonly JobChange[]): Promise<void> {
    if (changes.length === 0) return;
    for (let turn = this.#turnsOf(changes); turn.length > 0; turn = this.#turnsOf(changes))
      await Promise.allSettled(turn);
    const writing = this.#write(changes);
    for (const { jobId } of changes) this.#writing.set(jobId, writing);
    try {
      await writing;
    } finally {
      for (const { jobId } of changes) this.#writing.delete(jobId);
    }
  }

  #turnsOf(changes: readonly JobChange[]): readonly Promise<void>[] {
    return changes.flatMap(({ jobId }) => this.#writing.get(jobId) ?? []);
  }

  async #write(changes: readonly JobChange[]): Promise<void> {
    const next = changes.map(({ jobId, events }) => ({
      jobId,
      events,
      expectedVersion: this.#jobs.get(jobId)?.version ?? 0,
      job: events.reduce<Job | null>(evolveJob, this.#jobs.get(jobId) ?? null),
    }));
    const recorded = await this.#appendAll(
      next.map(({ jobId, expectedVersion, events }) => ({ stream: `job/${jobId}`, expectedVersion, events })),
    );
    for (const { position } of recorded) this.#position = Math.max(this.#position, position);
    for (const { job } of next) if (job !== null) this.#keep(job);
  }

  /** After a conflict memory is behind the log (an append that seemed to fail had landed): the stream is read again. */
  async #appendAll(appends: readonly Append[]): Promise<readonly RecordedEvent[]> {
    try {
      return await this.#store.appendAll(appends);
    } catch (error) {
      if (error instanceof VersionConflictError) await this.#reload(error.stream);
      throw error;
    }
  }

  async #reload(stream: StreamName): Promise<void> {
    const job = await streamOfJob(this.#store, stream);
    if (job !== null) this.#keep(job);
  }

  #keep(job: Job): void {
    const { jobId, taskId } = contextOf(job);
    if (isSettled(job)) this.#drop(jobId, taskId);
    else this.#put(job);
  }

  #put(job: Job): void {
    const context = contextOf(job);
    if (!this.#jobs.has(context.jobId)) this.#noteTask(context);
    this.#jobs.set(context.jobId, job);
  }

  #noteTask({ jobId, taskId }: { readonly jobId: JobId; readonly taskId: TaskId }): void {
    const known = this.#byTask.get(taskId);
    this.#byTask.set(taskId, known === undefined ? jobId : [...this.#idsOf(taskId), jobId]);
  }

  #drop(jobId: JobId, taskId: TaskId): void {
    this.#jobs.delete(jobId);
    const others = this.#idsOf(taskId).filter((id) => id !== jobId);
    const [only] = others;
    if (only === undefined) this.#byTask.delete(taskId);
    else this.#byTask.set(taskId, others.length === 1 ? only : others);
  }
}

/** Says something about the events, not about the storage: nothing was written. */
const isAboutOneJob = (error: unknown): boolean =>
  error instanceof IllegalEventError || error instanceof InvalidEventError || error instanceof VersionConflictError;

/** What a job's stream folds to; null: there is none. */
async function streamOfJob(store: EventStore, stream: StreamName): Promise<Job | null> {
  let job: Job | null = null;
  for (const { event } of await store.readStream(stream)) if (isJobEvent(event)) job = evolveJob(job, event);
  return job;
}
