import { restoreJob, storeJob, type Job } from '../machines/job-aggregate.js';
import { isSettled } from '../machines/job-asks.js';
import type { JobId } from '../machines/vocabulary.js';
import { packJobs, unpackJobs } from './packed-jobs.js';
import { evolveRecorded } from './replay.js';
import { isJobEvent } from './schemas.js';
import type { EventStore, RecordedEvent } from './store.js';
import { jobIdOf } from './streams.js';

/** Jobs that are not settled, as they are after the event at `position`. */
export interface LoadedJobs {
  readonly jobs: Map<JobId, Job>;
  readonly position: number;
}

/**
 * The unsettled jobs of a log: from the checkpoint of that name and the events after it. A checkpoint only saves time:
 * one of another release's shape, or one that is ahead of the log, is left aside, and everything is folded. Throws
 * `IllegalEventError`, `StoreError`.
 */
export async function loadJobs(store: EventStore, checkpointName: string): Promise<LoadedJobs> {
  const jobs = new Map<JobId, Job>();
  let position = 0;
  const checkpoint = await store.loadCheckpoint(checkpointName);
  const stored = unpackJobs(checkpoint?.data);
  if (checkpoint !== null && stored !== null && checkpoint.position <= (await store.lastPosition())) {
    for (const each of stored) jobs.set(each.context.jobId, restoreJob(each));
    position = checkpoint.position;
  }
  for await (const recorded of store.readAll(position)) {
    position = recorded.position;
    if (!isJobEvent(recorded.event)) continue;
    const jobId = jobIdOf(recorded.stream);
    const before = jobs.get(jobId) ?? (await jobBefore(store, recorded));
    const job = evolveRecorded(before, recorded);
    if (isSettled(job)) jobs.delete(jobId);
    else jobs.set(jobId, job);
  }
  return { jobs, position };
}

/** Saves what `loadJobs` starts from; settled jobs are left out. `position`: that of the last event folded into `jobs`. */
export async function saveJobs(
  store: EventStore,
  checkpointName: string,
  jobs: Iterable<Job>,
  position: number,
): Promise<void> {
  const live = [...jobs].filter((job) => !isSettled(job)).map(storeJob);
  await store.saveCheckpoint(checkpointName, { position, data: packJobs(live) });
}

/** A settled job has left memory; an event that still comes in (INV-6) finds its state in its stream. */
async function jobBefore(store: EventStore, { stream, version }: RecordedEvent): Promise<Job | null> {
  let job: Job | null = null;
  if (version === 1) return job;
  for (const recorded of await store.readStream(stream))
    if (recorded.version < version) job = evolveRecorded(job, recorded);
  return job;
}
