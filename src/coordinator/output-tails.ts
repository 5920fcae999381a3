import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { TaskId } from '../machines/vocabulary.js';
import { errorCode } from './error-facts.js';

const Tails = z.strictObject({ stdout: z.string(), stderr: z.string(), updatedAtMs: z.number() });
export type Tails = z.infer<typeof Tails>;

/** The newest part of each task's output. Beside the log: it is for people, and nothing depends on it. */
export interface TailStore {
  put(taskId: TaskId, tails: Tails): Promise<void>;
  /** null: none was handed over. */
  get(taskId: TaskId): Promise<Tails | null>;
}

export class MemoryTails implements TailStore {
  readonly #tails = new Map<TaskId, Tails>();

  put(taskId: TaskId, tails: Tails): Promise<void> {
    this.#tails.set(taskId, tails);
    return Promise.resolve();
  }

  get(taskId: TaskId): Promise<Tails | null> {
    return Promise.resolve(this.#tails.get(taskId) ?? null);
  }
}

/**
 * One file of mode 0600 for each task, replaced as a whole. Names are task ids, which hold letters, digits and `_`
 * only, so none leaves the directory; a rename replaces a symbolic link, it does not follow it.
 */
export class FileTails implements TailStore {
  readonly #directory: string;
  #made: Promise<unknown> | null = null;
  #count = 0;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async put(taskId: TaskId, tails: Tails): Promise<void> {
    this.#made ??= mkdir(this.#directory, { recursive: true, mode: 0o700 });
    try {
      await this.#made;
    } catch (error) {
      this.#made = null; // a full disk may have room the next time
      throw error;
    }
    this.#count += 1;
    const path = this.#path(taskId);
    const temporary = `${path}.${String(process.pid)}.${String(this.#count)}`;
    try {
      const file = await open(temporary, 'wx', 0o600);
      try {
        await file.writeFile(JSON.stringify(tails));
      } finally {
        await file.close();
      }
      await rename(temporary, path);
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    }
  }

  async get(taskId: TaskId): Promise<Tails | null> {
    try {
      return Tails.parse(JSON.parse(await readFile(this.#path(taskId), 'utf8')));
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return null;
      throw error;
    }
  }

  /** Deletes what was last handed over before `beforeMs` (Unix epoch ms); gives how many files went. */
  async prune(beforeMs: number): Promise<number> {
    let removed = 0;
    for (const name of await this.#names()) {
      const path = join(this.#directory, name);
      if ((await stat(path)).mtimeMs >= beforeMs) continue;
      await rm(path, { force: true });
      removed += 1;
    }
    return removed;
  }

  async #names(): Promise<readonly string[]> {
    try {
      return await readdir(this.#directory);
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return [];
      throw error;
    }
  }

  #path(taskId: TaskId): string {
    return join(this.#directory, `${taskId}.json`);
  }
}
