import { createHash } from 'node:crypto';
import { basename, dirname, join } from 'node:path';
import { JobId } from '../../src/machines/vocabulary.js';
import type {
  ClaimReply,
  CollectReply,
  EndMarker,
  JobDirectories,
  PrepareReply,
} from '../../src/worker/directories.js';

interface Directory {
  hasScript: boolean;
  claim: string | null;
  done: EndMarker | null;
  /** A network file system may show a file late. */
  result: { readonly text: string; readonly visibleAtMs: number } | null;
}

/** What becomes of a job's script at its start. */
export type ScriptStart = 'goesOn' | 'claimTaken' | 'noDirectory';

const PROFILE_TEXT = '#!/bin/sh\nexit 0\n';

/** The file system that gateways and compute nodes share, in memory. Paths are those of the production code. */
export class SharedFiles {
  readonly #nowMs: () => number;
  readonly #hasTrouble: () => boolean;
  readonly #directories = new Map<string, Directory>();
  readonly #wakes = new Set<string>();

  /** `hasTrouble`: whether this call of a worker fails with an I/O error. */
  constructor(nowMs: () => number, hasTrouble: () => boolean) {
    this.#nowMs = nowMs;
    this.#hasTrouble = hasTrouble;
  }

  /** Names of the job directories below a runs directory. */
  list(runsDir: string): readonly string[] {
    return [...this.#directories.keys()].filter((path) => dirname(path) === runsDir).map((path) => basename(path));
  }

  /** The script's first steps: the claim is exclusive, and a requeued job finds its own again. */
  startScript(path: string, id: string): ScriptStart {
    const directory = this.#directories.get(path);
    if (directory?.hasScript !== true) return 'noDirectory';
    directory.claim ??= id;
    if (directory.claim !== id) return 'claimTaken';
    directory.done = null;
    directory.result = null;
    this.#wakes.add(path);
    return 'goesOn';
  }

  writeResult(path: string, text: string, visibleAfterMs: number): void {
    const directory = this.#directories.get(path);
    if (directory !== undefined) directory.result = { text, visibleAtMs: this.#nowMs() + visibleAfterMs };
  }

  endScript(path: string, marker: EndMarker): void {
    const directory = this.#directories.get(path);
    if (directory === undefined) return;
    directory.done = marker;
    this.#wakes.add(path);
  }

  /** `sbatch` reads the script that it submits. */
  hasScript(scriptPath: string): boolean {
    return this.#directories.get(dirname(scriptPath))?.hasScript === true;
  }

  readText(path: string): Promise<string> {
    if (basename(path) === 'profile' && this.#directories.has(dirname(path))) return Promise.resolve(PROFILE_TEXT);
    return Promise.reject(Object.assign(new Error(`ENOENT: ${path}`), { code: 'ENOENT' }));
  }

  writeScript(path: string): Promise<void> {
    const directory = this.#directories.get(dirname(path));
    if (directory === undefined) {
      return Promise.reject(Object.assign(new Error(`ENOENT: ${path}`), { code: 'ENOENT' }));
    }
    directory.hasScript = true;
    return Promise.resolve();
  }

  /** The job directories of one worker. */
  directoriesOf(runsDir: string): JobDirectories {
    const at = (jobId: JobId): Directory | undefined => this.#directories.get(join(runsDir, jobId));
    return {
      path: (jobId) => join(runsDir, jobId),
      prepare: async (jobId): Promise<PrepareReply> => {
        if (this.#hasTrouble()) return { kind: 'io', detail: 'EIO' };
        const path = join(runsDir, jobId);
        if (!this.#directories.has(path)) {
          this.#directories.set(path, { hasScript: false, claim: null, done: null, result: null });
        }
        return { kind: 'ok' };
      },
      collect: async (jobId, limitBytes) =>
        this.#hasTrouble() ? { kind: 'io', detail: 'EIO' } : this.#collect(at(jobId), limitBytes),
      endMarker: async (jobId) => at(jobId)?.done ?? null,
      claim: async (jobId): Promise<ClaimReply> => {
        if (this.#hasTrouble()) return { kind: 'unknown', detail: 'EIO' };
        const id = at(jobId)?.claim ?? null;
        return id === null ? { kind: 'none' } : { kind: 'held', id };
      },
      tails: async () => ({ stdout: '', stderr: '' }),
      remove: async (jobId) => {
        if (this.#hasTrouble()) return { kind: 'io', detail: 'EIO' };
        this.#directories.delete(join(runsDir, jobId));
        return { kind: 'ok' };
      },
      takeWakes: async () => {
        const mine = [...this.#wakes].filter((path) => dirname(path) === runsDir);
        for (const path of mine) this.#wakes.delete(path);
        return mine.map((path) => JobId.parse(basename(path)));
      },
    };
  }

  #collect(directory: Directory | undefined, limitBytes: number): CollectReply {
    const result = directory?.result ?? null;
    if (result === null || result.visibleAtMs > this.#nowMs()) return { kind: 'missing', detail: 'no result.json' };
    const bytes = Buffer.byteLength(result.text);
    if (bytes > limitBytes) return { kind: 'invalid', detail: 'too large' };
    try {
      const value: unknown = JSON.parse(result.text);
      return { kind: 'ok', value, bytes, sha256: createHash('sha256').update(result.text).digest('hex') };
    } catch {
      return { kind: 'invalid', detail: 'not JSON' };
    }
  }
}
