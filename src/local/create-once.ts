import { constants } from 'node:fs';
import { link, open, rm } from 'node:fs/promises';
import { errnoOf } from '../workdir/io-error.js';

let created = 0;

/** The ending of the temporary files; what a crash leaves of them may be removed. */
export const TEMPORARY = '.new';

/**
 * Creates a file exclusively, durably, and with its content: it is written under another name and then linked. False: it
 * was there. Throws the file system's errors; the file may be there then all the same.
 */
export async function createOnce(path: string, text: string): Promise<boolean> {
  created += 1;
  const temporary = `${path}.${String(process.pid)}.${String(created)}${TEMPORARY}`;
  const handle = await open(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600);
  try {
    await handle.writeFile(text);
    await handle.datasync();
    await link(temporary, path);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false;
    throw error;
  } finally {
    await handle.close();
    await rm(temporary, { force: true });
  }
}
