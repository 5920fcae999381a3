import { access } from 'node:fs/promises';
import type { Credentials } from './credentials.js';
import { CredentialsFileError, readCredentialsFile, writeCredentialsFile } from './credentials-file.js';
import { errorCode } from './error-facts.js';

/**
 * The first start makes the first administrator: a credentials file of mode 0600, whose path is given back; null when
 * there are credentials already. The file comes first: a start that died before the credential was kept finds the file,
 * and lets it in.
 */
export async function ensureFirstAdmin(credentials: Credentials, path: string, url: string): Promise<string | null> {
  if (!credentials.isEmpty) return null;
  const role = 'admin' as const;
  const name = 'admin';
  if (await exists(path)) {
    const { id, secret } = await readCredentialsFile(path);
    await credentials.adopt({ id, secret, role, name });
    return path;
  }
  const minted = credentials.mint({ role, name });
  await writeCredentialsFile(path, { url, id: minted.id, secret: minted.secret });
  await credentials.adopt(minted);
  return path;
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return false;
    throw new CredentialsFileError(`${path} can not be looked at`, { cause: error });
  }
}
