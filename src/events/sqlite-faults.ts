import { StoreError, type StoreFault } from './errors.js';

/** What a person can do about a fault, by fault. */
const ADVICE: Readonly<Record<StoreFault, string>> = {
  locked: 'another process is using it: wait, or stop that process',
  networkFileSystem: 'put the state directory on a local disk',
  readOnly: 'check its owner and mode, and that the file system is not mounted read-only',
  full: 'make room on the disk (or raise the quota), then try again; nothing was half-written',
  corrupt: 'stop writing, keep a copy, check the disk, and restore it from an export or a backup',
  io: 'check the disk and the kernel log, then start again: the log itself will tell what was written',
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
 * Makes a StoreError of whatever SQLite or the file system threw: `<doing> <file>: <its words> (<code>); <what to do>`.
 * `file` is an absolute path; `doing` is for people ("append to"). A StoreError passes as it is.
 */
export function asStoreError(cause: unknown, file: string, doing: string): StoreError {
  if (cause instanceof StoreError) return cause;
  const code = codeOf(cause);
  const words = cause instanceof Error ? cause.message : String(cause);
  const fault = faultOf(code, words);
  return storeError(fault, file, doing, code === '' ? words : `${words} (${code})`, { cause });
}

/** `<doing> <file>: <why>; <what to do>`. */
export const storeError = (fault: StoreFault, file: string, doing: string, why: string, options?: ErrorOptions) =>
  new StoreError(fault, `can not ${doing} ${file}: ${why}; ${ADVICE[fault]}`, options);

/** True for what a program did wrong, as against what a storage can do. */
export const isStorageFault = (cause: unknown): boolean => codeOf(cause) !== '' || isClosed(cause);

function codeOf(cause: unknown): string {
  return cause instanceof Error && 'code' in cause && typeof cause.code === 'string' ? cause.code : '';
}

const isClosed = (cause: unknown): boolean =>
  cause instanceof TypeError && cause.message.includes('connection is not open');

function faultOf(code: string, words: string): StoreFault {
  if (words.includes('connection is not open')) return 'closed';
  return FAULTS.find(([prefix]) => code.startsWith(prefix))?.[1] ?? 'io';
}
