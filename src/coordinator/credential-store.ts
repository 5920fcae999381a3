import { open, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import { CredentialView } from './api.js';
import { errorCode } from './error-facts.js';

/** `hash`: sha256 of the secret, hex. */
export const StoredCredential = z.strictObject({ ...CredentialView.shape, hash: z.string().length(64) });
export type StoredCredential = z.infer<typeof StoredCredential>;

const Saved = z.strictObject({ v: z.literal(1), credentials: z.array(StoredCredential) });

/**
 * Where credentials live. Not in the log: logs are exported, shared and replayed, and who may log in is nobody's
 * business there.
 */
export interface CredentialStore {
  load(): Promise<readonly StoredCredential[]>;
  /** Durable when it resolves; the old list or the new one, nothing in between. */
  save(credentials: readonly StoredCredential[]): Promise<void>;
}

export class MemoryCredentials implements CredentialStore {
  #saved: readonly StoredCredential[] = [];

  load(): Promise<readonly StoredCredential[]> {
    return Promise.resolve(this.#saved);
  }

  save(credentials: readonly StoredCredential[]): Promise<void> {
    this.#saved = [...credentials];
    return Promise.resolve();
  }
}

/** One JSON file of mode 0600, replaced as a whole. */
export class FileCredentials implements CredentialStore {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  async load(): Promise<readonly StoredCredential[]> {
    let text: string;
    try {
      text = await readFile(this.#path, 'utf8');
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return [];
      throw error;
    }
    try {
      return Saved.parse(JSON.parse(text)).credentials;
    } catch (cause) {
      throw new Error(`${this.#path} is not a list of credentials; restore it from a copy`, { cause });
    }
  }

  async save(credentials: readonly StoredCredential[]): Promise<void> {
    const temporary = `${this.#path}.new`;
    await rm(temporary, { force: true });
    const file = await open(temporary, 'wx', 0o600);
    try {
      await file.writeFile(`${JSON.stringify({ v: 1, credentials }, null, 1)}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, this.#path);
    const directory = await open(dirname(this.#path), 'r');
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }
}
