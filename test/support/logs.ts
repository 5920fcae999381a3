import type { Append, EventStore, RecordedEvent } from '../../src/events/store.js';
import { jobStream } from '../../src/events/streams.js';
import type { JobEvent } from '../../src/machines/job-events.js';
import { jobId, taskId, token } from './ids.js';
import { at, created } from './job-events.js';

/** The streams of jobs with a number. */
export const stream = (n = 1) => jobStream(jobId(n));

export const createdJob = (n = 1): JobEvent => created({ jobId: jobId(n), taskId: taskId(n), token: token(n) });

export const create = (n = 1): Append => ({ stream: stream(n), expectedVersion: 0, events: [createdJob(n)] });

/** The next events of the job with that number, as its writer knows it. */
export const next = (n: number, expectedVersion: number, ...events: readonly JobEvent[]): Append => ({
  stream: stream(n),
  expectedVersion,
  events,
});

/** A whole life: created, run, completed, delivered, cleaned up. 9 events. */
export const LIFE: readonly JobEvent[] = [
  at(1).started(),
  at(10).accepted(),
  at(15).pending('queued', 'Priority'),
  at(20).running(),
  at(30).completion(),
  at(40).collected(),
  at(50).delivered(),
  at(60).directoryRemoved(),
];

export const wholeLife = (n = 1): Append => ({
  stream: stream(n),
  expectedVersion: 0,
  events: [createdJob(n), ...LIFE],
});

export async function all(store: EventStore, afterPosition = 0): Promise<readonly RecordedEvent[]> {
  const records: RecordedEvent[] = [];
  for await (const record of store.readAll(afterPosition)) records.push(record);
  return records;
}
