import { lstat } from 'node:fs/promises';
import type { JobId } from '../machines/vocabulary.js';
import { errnoOf } from '../workdir/io-error.js';
import type { LocalContext } from './context.js';
import { findTrees } from './proc.js';
import type { Submission } from './registry.js';

/** A token is remembered for at least so long after its submission, though its directory is gone. */
const REMEMBERED_MS = 3_600_000;

/**
 * Removes what the registry keeps of jobs whose directory was removed and of which no process is left. Answers their
 * ids. A file system that does not answer is left for the next time.
 */
export async function pruneRegistry({ registry, clock }: LocalContext): Promise<readonly JobId[]> {
  const beforeMs = clock.nowMs() - REMEMBERED_MS;
  try {
    await registry.removeTemporary(beforeMs);
    const old: Submission[] = [];
    for (const token of await registry.tokens()) {
      const found = await registry.find(token);
      if (found.kind !== 'found' || found.submission.submittedAtMs > beforeMs) continue;
      if (await isGone(found.submission.directory)) old.push(found.submission);
    }
    const alive = await findTrees(old.map(({ jobId }) => ({ jobId, leader: null })));
    const forgotten = old.filter(({ jobId }) => (alive.get(jobId)?.length ?? 0) === 0);
    for (const { token } of forgotten) await registry.forget(token);
    return forgotten.map(({ jobId }) => jobId);
  } catch (error) {
    if (errnoOf(error) === null) throw error;
    return [];
  }
}

async function isGone(path: string): Promise<boolean> {
  try {
    await lstat(path);
    return false;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return true;
    throw error;
  }
}
