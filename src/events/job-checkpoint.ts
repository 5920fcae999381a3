import { createHash } from 'node:crypto';
import { contextOf, createJob, restoreJob, storeJob, type Job, type StoredJob } from '../machines/job-aggregate.js';
import { isSettled } from '../machines/job-asks.js';
import type { JobCreated } from '../machines/job-events.js';
import { jobMachine } from '../machines/job.js';
import { Epoch, JobId, TaskId, Token } from '../machines/vocabulary.js';
import { evolveRecorded } from './replay.js';
import { isJobEvent } from './schemas.js';
import type { Checkpoint, EventStore, RecordedEvent } from './store.js';

/** Jobs that are not settled, as they are after the event at `position`. */
export interface LoadedJobs {
  readonly jobs: Map<JobId, Job>;
  readonly position: number;
}

interface JobsCheckpoint {
  readonly shape: string;
  readonly jobs: readonly StoredJob[];
}

/**
 * The unsettled jobs of a log: from the checkpoint of that name and the events after it. A checkpoint only saves time:
 * one of another release's shape, or one that is ahead of the log, is left aside, and everything is folded. Throws
 * `IllegalEventError`, `StoreError`.
 */
export async function loadJobs(store: EventStore, checkpointName: string): Promise<LoadedJobs> {
  const checkpoint = usable(await store.loadCheckpoint(checkpointName), await store.lastPosition());
  const jobs = new Map<string, Job>();
  for (const stored of checkpoint.jobs) jobs.set(`job/${stored.context.jobId}`, restoreJob(stored));
  let position = checkpoint.position;
  for await (const recorded of store.readAll(position)) {
    position = recorded.position;
    if (!isJobEvent(recorded.event)) continue;
    const before = jobs.get(recorded.stream) ?? (await jobBefore(store, recorded));
    const job = evolveRecorded(before, recorded);
    if (isSettled(job)) jobs.delete(recorded.stream);
    else jobs.set(recorded.stream, job);
  }
  return { jobs: new Map([...jobs.values()].map((job) => [contextOf(job).jobId, job])), position };
}

/** Saves what `loadJobs` starts from; settled jobs are left out. `position`: that of the last event folded into `jobs`. */
export async function saveJobs(
  store: EventStore,
  checkpointName: string,
  jobs: Iterable<Job>,
  position: number,
): Promise<void> {
  const data: JobsCheckpoint = { shape: shape(), jobs: [...jobs].filter((job) => !isSettled(job)).map(storeJob) };
  await store.saveCheckpoint(checkpointName, { position, data });
}

/** A settled job has left memory; an event that still comes in (INV-6) finds its state in its stream. */
async function jobBefore(store: EventStore, { stream, version }: RecordedEvent): Promise<Job | null> {
  let job: Job | null = null;
  if (version === 1) return job;
  for (const recorded of await store.readStream(stream))
    if (recorded.version < version) job = evolveRecorded(job, recorded);
  return job;
}

function usable(checkpoint: Checkpoint | null, lastPosition: number): JobsCheckpoint & { readonly position: number } {
  if (checkpoint === null || checkpoint.position > lastPosition || !isOurs(checkpoint.data))
    return { shape: shape(), jobs: [], position: 0 };
  return { ...checkpoint.data, position: checkpoint.position };
}

const isOurs = (data: unknown): data is JobsCheckpoint =>
  typeof data === 'object' &&
  data !== null &&
  'shape' in data &&
  data.shape === shape() &&
  'jobs' in data &&
  Array.isArray(data.jobs);

/** To be raised when the fold comes to other contexts although the machine's transitions and their fields stay the same. */
const FOLD = 1;

let known: string | undefined;

/**
 * Says which machine made a checkpoint: its transitions and the fields of its context. 100,000 jobs are not validated
 * one by one, which would take longer than reading them.
 */
function shape(): string {
  if (known === undefined) {
    const stored = storeJob(createJob(SAMPLE));
    const text = JSON.stringify([FOLD, jobMachine.config, Object.keys(stored.context), Object.keys(stored.aftermath)]);
    known = createHash('sha256').update(text).digest('hex');
  }
  return known;
}

const UNIQUE = '0'.repeat(26);
const SAMPLE: JobCreated = {
  type: 'job.created',
  v: 1,
  atMs: 0,
  jobId: JobId.parse(`job_${UNIQUE}`),
  taskId: TaskId.parse(`task_${UNIQUE}`),
  epoch: Epoch.parse(1),
  token: Token.parse(UNIQUE),
  kind: 'sample',
  profile: 'sample',
  inherited: false,
  parameters: null,
  watchUntilMs: null,
  policy: { settleMs: 0, looks: 1, sources: ['queue'], lossGraceMs: 0, lossLooks: 1, heldFailsAfterMs: null },
};
