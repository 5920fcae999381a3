import { constants } from 'node:fs';
import { open, readdir, unlink, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { JobId, Token } from '../machines/vocabulary.js';
import type { JobFiles } from './directory.js';
import { errnoOf, ioFailure, type IoFailure } from './io-error.js';
import { listDirectory } from './presence.js';
import { wakeDirectory } from './runs-directory.js';

const whole = z
  .string()
  .regex(/^\d{1,15}$/)
  .transform(Number);

/** What a job's script wrote when it ended. */
export const DoneMarker = z.object({
  v: z.literal('1'),
  token: Token,
  /** Who held the claim, as in `JobScriptOptions.identity`. */
  identity: z.string().min(1),
  /** `bootstrap`: the profile never ran. */
  stage: z.enum(['profile', 'bootstrap']),
  /** As a shell sees it: over 128 with `signal` set means death by that signal. */
  status: whole,
  signal: z.union([z.literal('').transform(() => null), whole]),
  /** Unix epoch s, by the clock of the machine that ran it. */
  started: whole,
  ended: whole,
  detail: z.string(),
});
export type DoneMarker = z.infer<typeof DoneMarker>;

export type ReadDone =
  | { readonly kind: 'ok'; readonly marker: DoneMarker }
  | { readonly kind: 'missing' }
  | { readonly kind: 'invalid'; readonly detail: string }
  | IoFailure;

const MARKER_LIMIT_BYTES = 64 * 1024;

/** Reads the end marker. It says that the job's script ended, not that the backend agrees. */
export async function readDone(files: Pick<JobFiles, 'done'>): Promise<ReadDone> {
  const read = await readSmallFile(files.done);
  if (read.kind !== 'ok') return read;
  const entries = read.text
    .split('\n')
    .filter((line) => line.includes('='))
    .map((line): [string, string] => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]);
  const parsed = DoneMarker.safeParse(Object.fromEntries(entries));
  if (!parsed.success) return { kind: 'invalid', detail: `${files.done}: ${z.prettifyError(parsed.error)}` };
  return { kind: 'ok', marker: parsed.data };
}

export type ReadClaim =
  | { readonly kind: 'ok'; readonly identity: string }
  | { readonly kind: 'missing' }
  | { readonly kind: 'invalid'; readonly detail: string }
  | IoFailure;

/** Which of the backend's jobs won the right to run this directory. */
export async function readClaim(files: Pick<JobFiles, 'claim'>): Promise<ReadClaim> {
  const read = await readSmallFile(files.claim);
  if (read.kind !== 'ok') return read;
  const end = read.text.indexOf('\n');
  if (end < 1) return { kind: 'invalid', detail: `${files.claim} names nobody` };
  return { kind: 'ok', identity: read.text.slice(0, end) };
}

type ReadSmall = { readonly kind: 'ok'; readonly text: string } | Exclude<ReadDone, { readonly kind: 'ok' }>;

async function readSmallFile(path: string): Promise<ReadSmall> {
  const opened = await openRegular(path);
  if (opened.kind !== 'ok') return opened;
  try {
    const { bytesRead, buffer } = await opened.handle.read(Buffer.alloc(MARKER_LIMIT_BYTES), 0, MARKER_LIMIT_BYTES, 0);
    return { kind: 'ok', text: buffer.toString('utf8', 0, bytesRead) };
  } catch (error) {
    return ioFailure(`reading ${path}`, error);
  } finally {
    await opened.handle.close();
  }
}

export type OpenRegular =
  | { readonly kind: 'ok'; readonly handle: FileHandle; readonly sizeBytes: number }
  | { readonly kind: 'missing' }
  /** A symbolic link, a FIFO, a directory, or not ours to read. */
  | { readonly kind: 'invalid'; readonly detail: string }
  | IoFailure;

/** Opens what a job wrote: follows no symbolic link at the name, and does not wait for the other end of a FIFO. */
export async function openRegular(path: string): Promise<OpenRegular> {
  let handle: FileHandle;
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT') return { kind: 'missing' };
    if (errno === 'ELOOP') return { kind: 'invalid', detail: `${path} is a symbolic link` };
    if (errno === 'EACCES' || errno === 'EPERM') {
      // Of a directory that may not be listed either, the fault is not the job's: a ticket that ran out, say.
      const around = await listDirectory(dirname(path));
      return around.kind === 'io' ? around : { kind: 'invalid', detail: `${path} is not readable (${errno})` };
    }
    if (errno === 'ENXIO') return { kind: 'invalid', detail: `${path} is not a regular file` };
    return ioFailure(`opening ${path}`, error);
  }
  try {
    const stats = await handle.stat();
    if (stats.isFile()) return { kind: 'ok', handle, sizeBytes: stats.size };
  } catch (error) {
    await handle.close();
    return ioFailure(`looking at ${path}`, error);
  }
  await handle.close();
  return { kind: 'invalid', detail: `${path} is not a regular file` };
}

export type TakeWakes = { readonly kind: 'ok'; readonly jobIds: readonly JobId[] } | IoFailure;

/**
 * Which jobs have claimed their directory or ended since the last call. One readdir, whatever the number of jobs: it is
 * polled, because a network file system tells nobody what another host wrote. The files are removed before the caller
 * acts; a crash in between costs a later look, nothing else. `isOurs`: leave the files of another worker's jobs alone.
 */
export async function takeWakes(runsDir: string, isOurs: (jobId: JobId) => boolean = () => true): Promise<TakeWakes> {
  const directory = wakeDirectory(runsDir);
  try {
    const jobIds: JobId[] = [];
    for (const name of await readdir(directory)) {
      const jobId = JobId.safeParse(name);
      if (!jobId.success || !isOurs(jobId.data)) continue;
      await unlink(join(directory, name)).catch((error: unknown) => {
        if (errnoOf(error) !== 'ENOENT') throw error;
      });
      jobIds.push(jobId.data);
    }
    return { kind: 'ok', jobIds };
  } catch (error) {
    return ioFailure(`taking wake files from ${directory}`, error);
  }
}
