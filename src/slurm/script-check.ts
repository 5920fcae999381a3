import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Profile } from '../backend.js';
import { errnoOf, messageOf } from '../workdir/io-error.js';
import { readDirectives } from './directives.js';

/**
 * Says what is wrong with a profile's script, or null: missing, not readable, not a regular file, replaceable by
 * everybody, not the pinned one, or with `#SBATCH` lines that break what the worker relies on. At start, so that an
 * administrator hears of it before a task does; the copy that runs is checked again with each job.
 */
export async function checkScript(profile: Pick<Profile, 'name' | 'scriptPath' | 'sha256'>): Promise<string | null> {
  const { name, scriptPath, sha256 } = profile;
  if (scriptPath === null) return null;
  const problem = await problemOf(scriptPath, sha256);
  return problem === null ? null : `profile ${name}: script ${scriptPath} ${problem}`;
}

async function problemOf(scriptPath: string, sha256: string | null): Promise<string | null> {
  let handle;
  try {
    // O_NONBLOCK: opening a FIFO must not wait for its other end.
    handle = await open(scriptPath, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    return openProblem(error);
  }
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) return 'is not a regular file';
    if ((stats.mode & 0o002) !== 0) return 'is writable by everybody: run chmod o-w on it and review it again';
    const folder = await stat(dirname(scriptPath));
    if ((folder.mode & 0o002) !== 0 && (folder.mode & 0o1000) === 0) {
      return 'is in a folder where everybody can replace it: run chmod o-w on the folder';
    }
    const bytes = await handle.readFile();
    const actual = createHash('sha256').update(bytes).digest('hex');
    if (sha256 !== null && sha256 !== actual)
      return `is not the reviewed one: its sha256 is ${actual}, pinned is ${sha256}`;
    const text = bytes.toString('latin1');
    if (!text.startsWith('#!')) return 'does not start with #! and an interpreter';
    if (/\r$/m.test(text.split('\n', 1)[0] ?? '')) return 'has DOS line breaks';
    const { problems } = readDirectives(text);
    return problems.length === 0 ? null : problems.join('; ');
  } finally {
    await handle.close();
  }
}

function openProblem(error: unknown): string {
  const code = errnoOf(error) ?? messageOf(error);
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'is missing';
  if (code === 'EACCES' || code === 'EPERM') return 'is not readable';
  return `cannot be opened (${code})`;
}
