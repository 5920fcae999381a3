import { readdir, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Option } from 'commander';
import { JsonlFile } from '../events/jsonl.js';
import { LOG_FILE, openStateDirectory } from '../events/state-directory.js';
import type { RecordedEvent } from '../events/store.js';
import { jobStream, sessionStream, type StreamName } from '../events/streams.js';
import { JobId, TaskId } from '../machines/vocabulary.js';
import { CliError, errnoOf, messageOf, usageError } from './errors.js';
import { EXIT } from './exit-codes.js';
import type { Io } from './io.js';
import { stateHome } from './locations.js';
import { quoted } from './payload.js';

/** A log that is only read: an export, or a state directory, also while its owner writes to it. */
export interface LogReader {
  /** Absolute path, for messages. */
  readonly path: string;
  /** In the order of position, from after `afterPosition`. */
  readAll(afterPosition?: number): AsyncIterable<RecordedEvent>;
  /** Empty when there is no such stream. */
  readStream(stream: StreamName): Promise<readonly RecordedEvent[]>;
  close(): Promise<void>;
}

export const stateDirOption = (): Option =>
  new Option(
    '--state-dir <dir>',
    "a worker's state directory, or an export; default: the one below $XDG_STATE_HOME or ~/.local/state, /open-compute, that knows it",
  );

/** Throws a `CliError` (not found) or a `StoreError`. */
export async function openLog(io: Io, source: string): Promise<LogReader> {
  const path = resolve(io.cwd, source);
  const kind = await stat(path).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') throw new CliError(EXIT.notFound, `${quoted(source)} does not exist`);
    throw new CliError(EXIT.failed, `${quoted(source)} can not be looked at: ${messageOf(error)}`);
  });
  return kind.isDirectory() ? openDirectory(io, path) : fileReader(path);
}

async function openDirectory(io: Io, path: string): Promise<LogReader> {
  const state = await openStateDirectory(path, { mode: 'read', writer: 'reader', nowMs: () => io.clock.nowMs() });
  return {
    path,
    readAll: (afterPosition) => state.store.readAll(afterPosition),
    readStream: (stream) => state.store.readStream(stream),
    close: () => state.close(),
  };
}

function fileReader(path: string): LogReader {
  const file = new JsonlFile(path);
  return {
    path,
    readAll: (afterPosition = 0) => asynchronous(file, ({ position }) => position > afterPosition),
    readStream: (wanted) => Promise.resolve([...file].filter(({ stream }) => stream === wanted)),
    close: () => Promise.resolve(),
  };
}

/** Takes a turn of its own for each event, so that an interrupt gets through. */
async function* asynchronous<T>(items: Iterable<T>, wanted: (item: T) => boolean): AsyncIterable<T> {
  for (const item of items) if (wanted(item)) yield await Promise.resolve(item);
}

/** Throws a usage error. */
export function parseJobId(text: string): JobId {
  const parsed = JobId.safeParse(text);
  if (parsed.success) return parsed.data;
  throw usageError(
    `${quoted(text)} is no job id`,
    'a job id is job_ and 26 characters; open-compute status TASK shows them',
  );
}

export interface FoundJob {
  readonly jobId: JobId;
  readonly events: readonly RecordedEvent[];
  /** To be closed by the caller. */
  readonly log: LogReader;
}

/** The log that knows a job: the chosen one, or the first below the state home. */
export async function findJob(io: Io, jobText: string, stateDir: string | undefined): Promise<FoundJob> {
  const jobId = parseJobId(jobText);
  return { jobId, ...(await findStream(io, jobStream(jobId), stateDir)) };
}

/** The stream that an id of a job or a session names. Throws a usage error. */
export function parseStreamId(text: string): StreamName {
  const session = TaskId.safeParse(text);
  return session.success ? sessionStream(session.data) : jobStream(parseJobId(text));
}

/** The log that knows a stream: the chosen one, or the first below the state home. */
export async function findStream(
  io: Io,
  stream: StreamName,
  stateDir: string | undefined,
): Promise<Omit<FoundJob, 'jobId'>> {
  const places = stateDir === undefined ? await stateDirectories(io) : [stateDir];
  for (const place of places) {
    const log = await openLog(io, place);
    const events = await log.readStream(stream);
    if (events.length > 0) return { events, log };
    await log.close();
  }
  const where = stateDir === undefined ? `in the state directories below ${stateHome(io)}` : `in ${quoted(stateDir)}`;
  throw new CliError(
    EXIT.notFound,
    `there is no ${stream.replace(/^job\//, '')} ${where}`,
    "name its worker's state directory with --state-dir",
  );
}

async function stateDirectories(io: Io): Promise<readonly string[]> {
  const home = stateHome(io);
  const names = await readdir(home).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  });
  const found = await Promise.all(
    names.map(async (name) => ((await isFile(join(home, name, LOG_FILE))) ? join(home, name) : null)),
  );
  return found.filter((path) => path !== null);
}

const isFile = (path: string): Promise<boolean> =>
  stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );
