import { readFile } from 'node:fs/promises';
import type { AttemptEnd } from '../backend.js';
import type { Token } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import { putFile } from '../workdir/directory.js';
import { endAttempt } from './attempt.js';

/** What the backend touches on its own machine beside the commands. Text is latin1: bytes pass through unchanged. */
export interface Host {
  /** Throws a file system error. */
  readonly readText: (path: string) => Promise<string>;
  /** Replaces the file as a whole, mode 0700. Throws a file system error. */
  readonly writeScript: (path: string, text: string) => Promise<void>;
  /** See attempt.ts. */
  readonly endAttempt: (token: Token) => Promise<AttemptEnd>;
}

export const realHost = (jobNamePrefix: string, clock: Clock): Host => ({
  readText: (path) => readFile(path, 'latin1'),
  writeScript: (path, text) => putFile(path, Buffer.from(text, 'latin1'), 0o700),
  endAttempt: (token) => endAttempt(token, jobNamePrefix, clock),
});
