import { closeSync, existsSync, openSync, readFileSync, statSync } from 'node:fs';
import BetterSqlite, { type Database } from 'better-sqlite3';
import { asStoreError, storeError } from './sqlite-faults.js';

/** "OCLG", in the file's header: `file events.db` shows it. */
const APPLICATION_ID = 0x4f434c47;

/**
 * What leads from each schema of the file to the next one; the file's `user_version` counts the steps done. The view is
 * for people (`sqlite3 events.db 'select * from log'`): as columns, even virtual ones, type and v make every insert dearer
 * (1.8 and 2.4 in place of 1.5 µs), and stored twice they could disagree.
 */
const STEPS: readonly string[] = [
  `create table events(
     position integer primary key,
     stream text not null,
     version integer not null,
     data text not null,
     recorded_at integer not null,
     writer text not null,
     unique(stream, version)
   ) strict;
   create view log as
     select position, stream, version, data ->> '$.type' as type, data ->> '$.v' as v,
            datetime(recorded_at / 1000, 'unixepoch') as recorded, writer, data
     from events;
   create table checkpoints(
     name text primary key,
     position integer not null,
     data text not null
   ) strict;`,
];

/** How long SQLite waits for a lock that is held only for a moment (a reader that recovers, the last one that closes). */
const BUSY_MS = 2000;

/** A log's WAL is cut to this size after it has been written back. */
const WAL_KEPT_BYTES = 64 * 1024 * 1024;
/** better-sqlite3 is compiled with 16 MiB. A log is appended to, and what is read again the system's own cache has. */
const PAGES_KEPT_KIB = 2 * 1024;

/**
 * Opens, and if need be makes, a log's file for its one writer: mode 0600, WAL, every commit synced. Throws `StoreError`.
 */
export function openForWriting(path: string): Database {
  return guarded(path, 'open', () => {
    createPrivate(path);
    const db = new BetterSqlite(path, { timeout: BUSY_MS });
    return closedOnFailure(db, () => {
      const done = checkKind(db, path);
      if (db.pragma('journal_mode = WAL', { simple: true }) !== 'wal')
        throw storeError('io', path, 'open', 'its file system has no shared memory for a write-ahead log');
      db.pragma('synchronous = FULL');
      db.pragma(`journal_size_limit = ${WAL_KEPT_BYTES}`);
      db.pragma(`cache_size = -${PAGES_KEPT_KIB}`);
      if (done < STEPS.length) migrate(db, done);
      probe(db);
    });
  });
}

/**
 * Makes an empty file of mode 0600 if there is none: SQLite would make it readable to others. One that exists is not
 * touched: closing it would drop the locks that this process holds on it (fcntl(2)).
 */
export function createPrivate(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, 'ax', 0o600));
}

/**
 * Opens a log's file beside its writer, or without one. Nothing is changed in it. Throws `StoreError`.
 */
export function openForReading(path: string): Database {
  return guarded(path, 'read', () => {
    if (!existsSync(path)) throw storeError('missing', path, 'read', 'there is no such log');
    const db = openReadOnly(path);
    return closedOnFailure(db, () => {
      if (checkKind(db, path) < STEPS.length)
        throw storeError('corrupt', path, 'read', 'it is not set up, or by an older release: open it for writing once');
      probe(db);
    });
  });
}

/**
 * A reader of a WAL file takes part in its locks, for which it needs to write beside it. On a read-only file system,
 * where nobody can be writing, a log that was closed cleanly is read into memory as it is.
 */
function openReadOnly(path: string): Database {
  const db = new BetterSqlite(path, { readonly: true, timeout: BUSY_MS });
  try {
    db.pragma('user_version');
    return db;
  } catch (cause) {
    db.close();
    const { fault } = asStoreError(cause, path, 'read');
    const wal = statSync(`${path}-wal`, { throwIfNoEntry: false });
    if (fault !== 'readOnly' || (wal !== undefined && wal.size > 0)) throw cause;
    return new BetterSqlite(withoutWal(readFileSync(path)), { readonly: true });
  }
}

/** The same file in the older journal mode: bytes 18 and 19 of its header (sqlite.org/fileformat2.html, 1.3.3). */
function withoutWal(image: Buffer): Buffer {
  return image.fill(1, 18, 20);
}

/** Returns how many schema steps the file has seen. Throws `StoreError` if it is none of ours, or of a newer release. */
function checkKind(db: Database, path: string): number {
  const number = (pragma: string): number => Number(db.pragma(pragma, { simple: true }));
  const [id, done] = [number('application_id'), number('user_version')];
  const isEmpty = number('schema_version') === 0;
  if (id !== APPLICATION_ID && !isEmpty)
    throw storeError('corrupt', path, 'open', 'it is an SQLite file, but no event log');
  if (done > STEPS.length)
    throw storeError('newerVersion', path, 'open', `its schema is ${done}, this release knows ${STEPS.length}`);
  return done;
}

/** Makes SQLite read the file's schema, so that a damaged one shows now. */
function probe(db: Database): void {
  db.prepare('select position from events limit 1').get();
}

function migrate(db: Database, done: number): void {
  db.transaction(() => {
    for (const step of STEPS.slice(done)) db.exec(step);
    db.pragma(`application_id = ${APPLICATION_ID}`);
    db.pragma(`user_version = ${STEPS.length}`);
  }).immediate();
}

function closedOnFailure(db: Database, use: () => void): Database {
  try {
    use();
    return db;
  } catch (cause) {
    db.close();
    throw cause;
  }
}

function guarded<T>(path: string, doing: string, work: () => T): T {
  try {
    return work();
  } catch (cause) {
    throw asStoreError(cause, path, doing);
  }
}
