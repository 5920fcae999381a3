import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, lstat, mkdir, open, readdir, rename, rm, unlink, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import type { Profile } from '../backend.js';
import type { JobId } from '../machines/vocabulary.js';
import { errnoOf, ioFailure, messageOf, type IoFailure } from './io-error.js';

/** Absolute paths of what a job's directory holds. */
export interface JobFiles {
  readonly jobId: JobId;
  readonly directory: string;
  /** The parameters, data only. */
  readonly input: string;
  /** The copy of the reviewed script that really runs. */
  readonly profile: string;
  /** What was submitted. */
  readonly script: string;
  readonly stdout: string;
  readonly stderr: string;
  /** Which of the backend's jobs won the right to run (INV-8). */
  readonly claim: string;
  /** The end marker. */
  readonly done: string;
  readonly result: string;
}

/** `runsDir` is absolute and has passed `checkRunsDirectory`. A job id has no separator in it, so no path leaves it. */
export function jobFiles(runsDir: string, jobId: JobId): JobFiles {
  const directory = join(runsDir, jobId);
  return {
    jobId,
    directory,
    input: join(directory, 'input.json'),
    profile: join(directory, 'profile'),
    script: join(directory, 'run.sh'),
    stdout: join(directory, 'stdout'),
    stderr: join(directory, 'stderr'),
    claim: join(directory, 'claim'),
    done: join(directory, 'done'),
    result: join(directory, 'result.json'),
  };
}

export interface DirectoryContents {
  /** The payload's parameters: any JSON value; undefined counts as `{}`. */
  readonly parameters: unknown;
  readonly profile: Pick<Profile, 'name' | 'scriptPath' | 'sha256'>;
}

export type PrepareDirectory =
  | { readonly kind: 'ok' }
  /** The administrator's script is not fit to run: trying again does not help. */
  | { readonly kind: 'invalidSpec'; readonly detail: string }
  | IoFailure;

const SCRIPT_LIMIT_BYTES = 16 * 1024 * 1024;

/**
 * Makes a job's directory: mode 0700, `input.json` 0600, `profile` 0500. May be repeated: what a crash left half made is
 * completed, files are replaced as a whole. Touches nothing but these, so repeating it beside a running job is harmless.
 */
export async function prepareDirectory(files: JobFiles, contents: DirectoryContents): Promise<PrepareDirectory> {
  const script = await readReviewedScript(contents.profile);
  if (!Buffer.isBuffer(script)) return script;
  try {
    const isNew = await makePrivateDirectory(files.directory);
    const write = isNew ? createFile : replaceFile;
    const parameters = contents.parameters === undefined ? {} : contents.parameters;
    // Side by side, and none is still being written when this returns.
    const written = await Promise.allSettled([
      write(files.input, `${JSON.stringify(parameters)}\n`, 0o600),
      write(files.profile, script, 0o500),
    ]);
    for (const one of written) if (one.status === 'rejected') throw one.reason;
    return { kind: 'ok' };
  } catch (error) {
    return ioFailure(`preparing the job directory ${files.directory}`, error);
  }
}

/**
 * Creates a directory of mode 0700, or accepts one that is there, which it answers with false. Throws a file system error
 * if something else is there.
 */
export async function makePrivateDirectory(path: string): Promise<boolean> {
  let isNew = true;
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST' || !(await lstat(path)).isDirectory()) throw error;
    isNew = false;
  }
  await chmod(path, 0o700);
  return isNew;
}

/**
 * Writes a file that nobody reads before this has returned: a new one in its place, which takes half as many calls of
 * the file system as `replaceFile`; one that is there, perhaps half made by a crash, is replaced as a whole.
 */
export async function putFile(path: string, content: string | Buffer, mode: number): Promise<void> {
  try {
    await createFile(path, content, mode);
  } catch (error) {
    if (errnoOf(error) !== 'EEXIST') throw error;
    await replaceFile(path, content, mode);
  }
}

/**
 * Writes a file as a whole: a reader sees the old one or the new one. Follows no symbolic link, neither at the name nor
 * at the temporary one.
 */
export async function replaceFile(path: string, content: string | Buffer, mode: number): Promise<void> {
  const temporary = `${path}.new`;
  await unlink(temporary).catch((error: unknown) => {
    if (errnoOf(error) !== 'ENOENT') throw error;
  });
  await createFile(temporary, content, mode);
  await rename(temporary, path);
}

/** Makes a file that is not there yet, not even as a link. The mode does not depend on the umask. */
async function createFile(path: string, content: string | Buffer, mode: number): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const handle = await open(path, flags, 0o600);
  try {
    await handle.writeFile(content);
    await handle.chmod(mode);
  } finally {
    await handle.close();
  }
}

/** Reads the administrator's script once: what is checked here is what is copied and runs. */
async function readReviewedScript({
  name,
  scriptPath,
  sha256: pinned,
}: DirectoryContents['profile']): Promise<Buffer | PrepareDirectory> {
  if (scriptPath === null)
    return { kind: 'invalidSpec', detail: `profile ${name} has no script: it serves sessions only` };
  const what = `profile ${name}: script ${scriptPath}`;
  const invalid = (detail: string): PrepareDirectory => ({ kind: 'invalidSpec', detail: `${what} ${detail}` });
  let handle: FileHandle;
  try {
    // O_NONBLOCK: opening a FIFO must not wait for its other end.
    handle = await open(scriptPath, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ENOTDIR') return invalid('is missing');
    if (errno === 'EACCES' || errno === 'EPERM') return invalid('is not readable');
    if (errno === 'ELOOP' || errno === 'ENAMETOOLONG' || errno === 'ENXIO')
      return invalid(`cannot be opened (${errno})`);
    if (errno === null) return invalid(`cannot be opened: ${messageOf(error)}`);
    return ioFailure(`reading ${what}`, error);
  }
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) return invalid('is not a regular file');
    if ((stats.mode & 0o002) !== 0) return invalid('is writable by everybody: run chmod o-w on it and review it again');
    if (stats.size > SCRIPT_LIMIT_BYTES) return invalid(`is larger than ${String(SCRIPT_LIMIT_BYTES)} bytes`);
    const bytes = await readAll(handle, stats.size);
    if (bytes.length === 0) return invalid('is empty');
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    if (pinned !== null && pinned.toLowerCase() !== sha256) {
      return invalid(`is not the reviewed one: its sha256 is ${sha256}, pinned is ${pinned}`);
    }
    return bytes;
  } catch (error) {
    return ioFailure(`reading ${what}`, error);
  } finally {
    await handle.close();
  }
}

/** One read where `readFile` takes three; more only if the file has changed since it was looked at. */
async function readAll(handle: FileHandle, sizeBytes: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(sizeBytes + 1), 0, sizeBytes + 1, 0);
  if (bytesRead === sizeBytes) return buffer.subarray(0, bytesRead);
  // Nothing of a half is kept: the position of the handle is where it was.
  return handle.readFile();
}

export type RemoveDirectory = { readonly kind: 'ok' } | IoFailure;

/** Removes a job's directory with all that is in it. Follows no symbolic link; one that is gone already is fine. */
export async function removeDirectory(files: JobFiles): Promise<RemoveDirectory> {
  try {
    await removeTree(files.directory);
    return { kind: 'ok' };
  } catch (error) {
    return ioFailure(`removing the job directory ${files.directory}`, error);
  }
}

async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    const errno = errnoOf(error);
    if (errno !== 'EACCES' && errno !== 'EPERM') throw error;
    // A job may leave read-only directories behind (module caches do): make ours writable, then once more.
    await makeTreeWritable(path);
    await rm(path, { recursive: true, force: true });
  }
}

async function makeTreeWritable(path: string): Promise<void> {
  if (!(await lstat(path)).isDirectory()) return;
  await chmod(path, 0o700);
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (entry.isDirectory()) await makeTreeWritable(join(path, entry.name));
  }
}
