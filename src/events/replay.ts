import { evolveJob, IllegalEventError, type Job } from '../machines/job-aggregate.js';
import type { JobId } from '../machines/vocabulary.js';
import { isJobEvent } from './schemas.js';
import type { EventStore, RecordedEvent } from './store.js';
import { jobIdOf, jobStream } from './streams.js';

type Records = Iterable<RecordedEvent> | AsyncIterable<RecordedEvent>;

/** A job after one of its events. */
export interface ReplayStep {
  readonly recorded: RecordedEvent;
  readonly job: Job;
}

/**
 * Folds one recorded event of a job's stream (INV-12). Throws `IllegalEventError` that names stream, version and
 * position: on an event that its state cannot take, on a gap, and on an event that is none of a job's.
 */
export function evolveRecorded(job: Job | null, { stream, version, position, event }: RecordedEvent): Job {
  const illegal = (why: string, cause?: unknown): IllegalEventError =>
    new IllegalEventError(`${stream}, version ${version}, position ${position} of the log: ${why}`, { cause });
  if (!isJobEvent(event)) throw illegal(`${event.type} is no event of a job`);
  if (version !== (job?.version ?? 0) + 1) throw illegal(`it follows version ${job?.version ?? 0}: events are missing`);
  try {
    return evolveJob(job, event);
  } catch (cause) {
    if (cause instanceof IllegalEventError) throw illegal(cause.message, cause);
    throw cause;
  }
}

/** Folds a whole log into its jobs, settled ones too; other streams are left out. Throws `IllegalEventError`. */
export async function replayJobs(records: Records): Promise<Map<JobId, Job>> {
  const jobs = new Map<JobId, Job>();
  for await (const recorded of records) {
    if (!isJobEvent(recorded.event)) continue;
    const jobId = jobIdOf(recorded.stream);
    jobs.set(jobId, evolveRecorded(jobs.get(jobId) ?? null, recorded));
  }
  return jobs;
}

/** A job after each of its events, up to version `until`. Nothing if there is no such job. Throws `IllegalEventError`. */
export async function* replayJob(
  store: EventStore,
  jobId: JobId,
  { until = Infinity }: { readonly until?: number } = {},
): AsyncGenerator<ReplayStep> {
  yield* replaySteps(await store.readStream(jobStream(jobId)), until);
}

/** The same for the records of one job's stream, from wherever they come. */
export async function* replaySteps(records: Records, until = Infinity): AsyncGenerator<ReplayStep> {
  let job: Job | null = null;
  for await (const recorded of records) {
    if (recorded.version > until) return;
    job = evolveRecorded(job, recorded);
    yield { recorded, job };
  }
}
