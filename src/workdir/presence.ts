import { readdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { JobFiles } from './directory.js';
import { errnoOf, ioFailure, type IoFailure } from './io-error.js';
import { wakeDirectory } from './runs-directory.js';

export type Presence = { readonly kind: 'there' } | { readonly kind: 'gone' } | IoFailure;

/**
 * Whether a job's directory is there. Gone only while the runs directory shows what is always in it: a file system that
 * is not mounted has neither, and then nothing is known. Listing asks a network file system's server again.
 */
export async function presenceOf(files: JobFiles): Promise<Presence> {
  const seen = await listDirectory(files.directory);
  if (seen.kind !== 'gone') return seen;
  const around = await listDirectory(wakeDirectory(dirname(files.directory)));
  if (around.kind === 'there') return seen;
  return around.kind === 'io'
    ? around
    : { kind: 'io', detail: `the runs directory of ${files.directory} is not there` };
}

/** Whether a directory can be listed. */
export async function listDirectory(directory: string): Promise<Presence> {
  try {
    await readdir(directory);
    return { kind: 'there' };
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === null) throw error;
    return errno === 'ENOENT' ? { kind: 'gone' } : ioFailure(`looking at ${directory}`, error);
  }
}
