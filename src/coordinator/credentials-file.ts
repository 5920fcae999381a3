import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { z } from 'zod';
import { errorCode } from './error-facts.js';

/** What a program needs to reach the coordinator. */
export const CredentialsFile = z.strictObject({
  url: z.url({ protocol: /^https?$/ }),
  id: z.string().min(1).max(200),
  secret: z.string().min(1).max(200),
});
export type CredentialsFile = z.infer<typeof CredentialsFile>;

const SIZE_MAX = 64 * 1024;

/** `message` names the file and what to do; it never quotes the file, which holds a secret. */
export class CredentialsFileError extends Error {
  override readonly name = 'CredentialsFileError';
}

/** Throws `CredentialsFileError`: missing, not a file, readable by others, not JSON, of another shape. */
export async function readCredentialsFile(path: string): Promise<CredentialsFile> {
  const text = await readPrivate(path);
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    throw new CredentialsFileError(`${path} is not JSON; it should be {"url": …, "id": …, "secret": …}`);
  }
  const parsed = CredentialsFile.safeParse(raw);
  if (parsed.success) return parsed.data;
  const where = parsed.error.issues.map(({ path: at, code }) => `${at.join('.') || 'the whole'}: ${code}`);
  throw new CredentialsFileError(
    `${path} is not a credentials file (${where.join('; ')}); it should be {"url": …, "id": …, "secret": …}, as ` +
      '`open-compute credentials create` writes it',
  );
}

async function readPrivate(path: string): Promise<string> {
  let file: FileHandle;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    const code = errorCode(error);
    throw new CredentialsFileError(
      code === 'ENOENT'
        ? `${path} does not exist; an administrator makes one with \`open-compute credentials create\``
        : `${path} can not be read (${code ?? 'unknown'}); look at its owner and mode`,
      { cause: error },
    );
  }
  try {
    // One handle for the check and the reading: the file can not be exchanged in between.
    const stat = await file.stat();
    if (!stat.isFile()) throw new CredentialsFileError(`${path} is not a file`);
    if ((stat.mode & 0o077) !== 0) {
      const mode = (stat.mode & 0o777).toString(8).padStart(4, '0');
      throw new CredentialsFileError(`${path} has mode ${mode}: others can read it; run \`chmod 600 ${path}\``);
    }
    if (stat.size > SIZE_MAX) throw new CredentialsFileError(`${path} is too large for a credentials file`);
    return await file.readFile('utf8');
  } finally {
    await file.close();
  }
}

/** Mode 0600 from the first moment. Throws `CredentialsFileError` when the file exists: nothing is overwritten. */
export async function writeCredentialsFile(path: string, credentials: CredentialsFile): Promise<void> {
  let file: FileHandle;
  try {
    file = await open(path, 'wx', 0o600);
  } catch (error) {
    const code = errorCode(error);
    throw new CredentialsFileError(
      code === 'EEXIST'
        ? `${path} exists already; name another file, or remove it first`
        : `${path} can not be written (${code ?? 'unknown'}); look at the directory`,
      { cause: error },
    );
  }
  try {
    await file.writeFile(`${JSON.stringify(credentials, null, 2)}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
}
