import { z } from 'zod';
import { StoreError, type StoreFault } from './errors.js';

/** What a person can do about a fault, by fault. */
const ADVICE: Readonly<Record<StoreFault, string>> = {
  locked: 'another process is using it: wait, or stop that process',
  networkFileSystem: 'put the state directory on a local disk',
  readOnly: 'check its owner and mode, and that the file system is not mounted read-only',
  full: 'make room on the disk (or raise the quota), then try again; nothing was half-written',
  corrupt: 'stop writing, keep a copy, check the disk, and restore it from an export or a backup',
  io: 'check the disk, the room on it and the kernel log, then start again: the log itself will tell what was written',
  newerVersion: 'use the release that wrote it, or a newer one',
  missing: 'check the path',
  unsafe: 'take the write permission from others',
  closed: 'it was closed before',
};

/** From SQLite's result codes (sqlite.org/rescode.html) and the system's errno; the first prefix that fits. */
const FAULTS: readonly (readonly [prefix: string, fault: StoreFault])[] = [
  ['SQLITE_BUSY', 'locked'],
  ['SQLITE_LOCKED', 'locked'],
  ['SQLITE_READONLY', 'readOnly'],
  ['SQLITE_CANTOPEN', 'readOnly'],
  ['SQLITE_PERM', 'readOnly'],
  ['SQLITE_AUTH', 'readOnly'],
  ['SQLITE_FULL', 'full'],
  ['SQLITE_CORRUPT', 'corrupt'],
  ['SQLITE_NOTADB', 'corrupt'],
  ['EACCES', 'readOnly'],
  ['EPERM', 'readOnly'],
  ['EROFS', 'readOnly'],
  ['ENOSPC', 'full'],
  ['EDQUOT', 'full'],
  ['ENOENT', 'missing'],
];

/**
 * Makes a StoreError of whatever SQLite or the file system threw. `file` is an absolute path; `doing` is for people
 * ("write to"). A StoreError passes as it is.
 */
export function asStoreError(cause: unknown, file: string, doing: string): StoreError {
  if (cause instanceof StoreError) return cause;
  const { code, words } = describe(cause);
  const fault = FAULTS.find(([prefix]) => code.startsWith(prefix))?.[1] ?? 'io';
  return storeError(fault, file, doing, code === '' ? words : `${words} (${code})`, { cause });
}

/** `can not <doing> <file>: <why>; <what to do>`. */
export const storeError = (fault: StoreFault, file: string, doing: string, why: string, options?: ErrorOptions) =>
  new StoreError(fault, `can not ${doing} ${file}: ${why}; ${ADVICE[fault]}`, options);

/** True for what a storage can do, as against a mistake in a program: SQLite and the system give a code. */
export const isStorageFault = (cause: unknown): boolean => cause instanceof StoreError || describe(cause).code !== '';

/** Not by `instanceof`: SQLite's errors are made by hand, and the system's may come from another realm. */
function describe(cause: unknown): { readonly code: string; readonly words: string } {
  const parsed = Thrown.safeParse(cause);
  return parsed.success
    ? { code: parsed.data.code ?? '', words: parsed.data.message }
    : { code: '', words: String(cause) };
}

const Thrown = z.object({ message: z.string(), code: z.string().optional() });
