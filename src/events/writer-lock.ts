import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import BetterSqlite, { type Database } from 'better-sqlite3';
import { z } from 'zod';
import { asStoreError, storeError } from './sqlite-faults.js';
import { createPrivate } from './sqlite-schema.js';

const LOCK_FILE = 'writer.lock';
const HOLDER_FILE = 'writer.json';

const Holder = z.object({ pid: z.int(), host: z.string(), writer: z.string(), sinceMs: z.int() });
type Holder = z.infer<typeof Holder>;

/** A lock nobody refers to any more would be closed by the garbage collector, and let a second writer in. */
const HELD = new Set<Database>();

/** Held until `release` or the end of the process, however it ends: the kernel lets go of it. */
export interface WriterLock {
  release(): void;
}

/**
 * Makes this process the one writer of a state directory, or throws `StoreError` (`locked`) at once, naming the holder.
 *
 * The lock is an exclusive transaction in an SQLite file of its own: Node has no file locks, and a pid file outlives its
 * process. Nobody may open that file by other means in the same process: closing it would drop the lock (fcntl(2)).
 * What is known about the holder is therefore a file beside it.
 */
export function takeWriterLock(directory: string, writer: string, nowMs: number): WriterLock {
  const path = join(directory, LOCK_FILE);
  const holderPath = join(directory, HOLDER_FILE);
  const lock = hold(path, directory, holderPath);
  HELD.add(lock);
  try {
    const holder: Holder = { pid: process.pid, host: hostname(), writer, sinceMs: nowMs };
    writeFileSync(`${holderPath}.new`, `${JSON.stringify(holder)}\n`, { mode: 0o600 });
    renameSync(`${holderPath}.new`, holderPath);
  } catch (cause) {
    letGo(lock);
    throw asStoreError(cause, holderPath, 'write');
  }
  return {
    release: () => {
      if (!lock.open) return;
      rmSync(holderPath, { force: true });
      letGo(lock);
    },
  };
}

function letGo(lock: Database): void {
  HELD.delete(lock);
  lock.close();
}

function hold(path: string, directory: string, holderPath: string): Database {
  let lock: Database | null = null;
  try {
    createPrivate(path);
    lock = new BetterSqlite(path, { timeout: 0 });
    lock.pragma('journal_mode = MEMORY'); // or there is a journal beside it
    lock.exec('BEGIN EXCLUSIVE');
    return lock;
  } catch (cause) {
    lock?.close();
    const error = asStoreError(cause, path, 'lock');
    if (error.fault !== 'locked') throw error;
    throw storeError('locked', directory, 'write to', `it is in use by ${holderText(holderPath)}`, { cause });
  }
}

function holderText(path: string): string {
  const holder = readHolder(path);
  if (holder === null) return 'another process';
  const since = new Date(holder.sinceMs).toISOString();
  return `process ${holder.pid} on ${holder.host} (${holder.writer}, since ${since})`;
}

/** For a message only: an unreadable or missing file means that it is not known. */
function readHolder(path: string): Holder | null {
  try {
    return Holder.safeParse(JSON.parse(readFileSync(path, 'utf8'))).data ?? null;
  } catch {
    return null;
  }
}
