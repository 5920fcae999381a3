import { chmodSync, existsSync, mkdirSync, readdirSync, statSync, type Stats } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import type { StoreError } from './errors.js';
import { networkFileSystem } from './network-file-systems.js';
import { asStoreError, storeError } from './sqlite-faults.js';
import { openForReading, openForWriting } from './sqlite-schema.js';
import { SqliteEventStore } from './sqlite-store.js';
import { takeWriterLock } from './writer-lock.js';

/** The log's file in a state directory. */
export const LOG_FILE = 'events.db';

export interface StateDirectoryOptions {
  /** `read`: beside a running writer, or without one; changes nothing, and appends are refused. */
  readonly mode: 'write' | 'read';
  /** Make the directory if it is missing. Only for `write`. */
  readonly create?: boolean;
  /** Who appends, for the record and for the message to a second writer. */
  readonly writer: string;
  /** Unix epoch ms. */
  readonly nowMs: () => number;
  /** Told once, when the log takes no more events until it is opened again. */
  readonly onBroken?: (error: StoreError) => void;
  /** Asks the system which file system a path is on; tests pass their own. */
  readonly statfs?: (path: string) => Promise<{ readonly type: number }>;
}

export interface StateDirectory {
  /** Absolute. */
  readonly path: string;
  readonly store: SqliteEventStore;
  /** Commits what is waiting, closes the log, lets the next writer in. May be repeated. */
  close(): Promise<void>;
}

/**
 * Opens the directory that keeps a process's log. Throws `StoreError`: `missing`, `networkFileSystem`, `readOnly`,
 * `unsafe` (others may write to it), `locked` (another writer), `corrupt`, `newerVersion`, `full`, `io`.
 */
export async function openStateDirectory(directory: string, options: StateDirectoryOptions): Promise<StateDirectory> {
  const path = resolve(directory);
  const file = join(path, LOG_FILE);
  await refuseNetworkFileSystem(path, options.statfs ?? statfs);
  const { writer, nowMs, onBroken } = options;
  const storeOptions = { file, writer, nowMs, ...(onBroken === undefined ? {} : { onBroken }) };
  if (options.mode === 'read') {
    const store = new SqliteEventStore(openForReading(file), storeOptions);
    return { path, store, close: () => store.close() };
  }
  prepareDirectory(path, options.create ?? false);
  const lock = takeWriterLock(path, options.writer, options.nowMs());
  try {
    const store = new SqliteEventStore(openForWriting(file), storeOptions);
    return { path, store, close: () => store.close().finally(() => lock.release()) };
  } catch (cause) {
    lock.release();
    throw cause;
  }
}

/** Asks for the directory itself, or the nearest one above it that exists. */
async function refuseNetworkFileSystem(
  path: string,
  ask: (path: string) => Promise<{ readonly type: number }>,
): Promise<void> {
  let nearest = path;
  while (!existsSync(nearest) && dirname(nearest) !== nearest) nearest = dirname(nearest);
  const { type } = await ask(nearest).catch((cause: unknown) => {
    throw asStoreError(cause, nearest, 'look at');
  });
  const name = networkFileSystem(type);
  if (name === null) return;
  const why = `it is on a network file system (${name}), where a crash or a second host can damage the log`;
  throw storeError('networkFileSystem', path, 'keep a log in', why);
}

/**
 * A directory of ours is nobody else's business: 0700. One that holds other things as well is left as it is (its owner
 * may have named `/tmp`), as long as only the owner may write to it: our files are 0600 themselves.
 */
function prepareDirectory(path: string, create: boolean): void {
  try {
    if (!existsSync(path)) {
      if (!create) throw storeError('missing', path, 'open', 'there is no such directory');
      mkdirSync(path, { recursive: true, mode: 0o700 });
    }
    const stat = statSync(path);
    if (!stat.isDirectory()) throw storeError('io', path, 'keep a log in', 'it is not a directory');
    if (mode(stat) === 0o700) return;
    const entries = readdirSync(path);
    if (entries.length === 0 || entries.includes(LOG_FILE)) chmodSync(path, 0o700);
    else if ((mode(stat) & 0o022) !== 0)
      throw storeError('unsafe', path, 'keep a log in', `others may write to it (mode ${mode(stat).toString(8)})`);
  } catch (cause) {
    throw asStoreError(cause, path, 'prepare');
  }
}

const mode = (stat: Stats): number => stat.mode & 0o777;
