import { constants } from 'node:fs';
import { lstat, mkdir, open, unlink } from 'node:fs/promises';
import { isAbsolute, join, normalize } from 'node:path';
import { makePrivateDirectory } from './directory.js';
import { errnoOf, messageOf } from './io-error.js';

export type RunsDirectoryCheck =
  | { readonly kind: 'ok' }
  /** One clear sentence: what is wrong with which path, and what to do. */
  | { readonly kind: 'unusable'; readonly problem: string };

/** Where jobs drop the files that wake the worker. */
export const wakeDirectory = (runsDir: string): string => join(runsDir, '.wake');

/**
 * At start-up: makes the runs directory (mode 0700) if it is missing, and says what is wrong with it otherwise. It has
 * to be absolute, a real directory, not writable by everybody, and really writable by us: a probe file is made, because
 * access(2) does not know about read-only mounts, squashed owners and full disks.
 */
export async function checkRunsDirectory(runsDir: string): Promise<RunsDirectoryCheck> {
  const unusable = (problem: string): RunsDirectoryCheck => ({
    kind: 'unusable',
    problem: `runs directory ${JSON.stringify(runsDir)} ${problem}`,
  });
  if (!isAbsolute(runsDir)) return unusable('is not an absolute path');
  if (normalize(runsDir) !== runsDir || runsDir === '/')
    return unusable('is not a plain path: no "..", "//" or final "/"');
  // Backends expand "%" and "\" in the names of output files, and a control character has no business in a path.
  if (/[\p{Cc}%\\]/u.test(runsDir)) return unusable('has a control character, "%" or "\\" in its name');
  try {
    const problem = (await createIfMissing(runsDir)) ?? (await problemOf(runsDir));
    if (problem !== null) return unusable(problem);
    await makePrivateDirectory(wakeDirectory(runsDir));
    await probe(join(runsDir, `.probe.${String(process.pid)}`));
    return { kind: 'ok' };
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === null) throw error;
    if (errno === 'EACCES' || errno === 'EPERM' || errno === 'EROFS') {
      return unusable(`is not writable (${errno}): give this user write access, or choose another with --runs-dir`);
    }
    return unusable(`cannot be used: ${messageOf(error)}`);
  }
}

async function createIfMissing(runsDir: string): Promise<string | null> {
  try {
    await mkdir(runsDir, { mode: 0o700 });
    return null;
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return null;
    if (errnoOf(error) === 'ENOENT') return 'cannot be made: its parent directory does not exist';
    throw error;
  }
}

async function problemOf(runsDir: string): Promise<string | null> {
  const stats = await lstat(runsDir);
  if (stats.isSymbolicLink()) return 'is a symbolic link: name the directory that it points to';
  if (!stats.isDirectory()) return 'is not a directory';
  if ((stats.mode & 0o002) !== 0) return 'is writable by everybody: run chmod o-w on it, or choose one of your own';
  return null;
}

async function probe(path: string): Promise<void> {
  await unlink(path).catch((error: unknown) => {
    if (errnoOf(error) !== 'ENOENT') throw error;
  });
  const handle = await open(
    path,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o600,
  );
  try {
    await handle.writeFile('probe\n');
  } finally {
    await handle.close();
  }
  await unlink(path);
}
