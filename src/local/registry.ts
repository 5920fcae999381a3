import { lstat, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { JobId, Token } from '../machines/vocabulary.js';
import { makePrivateDirectory } from '../workdir/directory.js';
import { errnoOf } from '../workdir/io-error.js';
import { createOnce, TEMPORARY } from './create-once.js';

/** What a submission leaves behind: enough to start the job later, also by another worker process. */
export const Submission = z.strictObject({
  v: z.literal(1),
  jobId: JobId,
  token: Token,
  directory: z.string(),
  submittedAtMs: z.int().nonnegative(),
  environment: z.record(z.string(), z.string()),
  /** How many nodes this machine stands for. */
  ranks: z.int().positive().default(1),
});
export type Submission = z.infer<typeof Submission>;

const Record = z
  .string()
  .transform((text, context): unknown => {
    try {
      return JSON.parse(text);
    } catch {
      context.addIssue('not JSON');
      return z.NEVER;
    }
  })
  .pipe(Submission);

export type FindSubmission =
  | { readonly kind: 'found'; readonly submission: Submission }
  | { readonly kind: 'absent' }
  /** Somebody wrote into the registry by hand, or the disk is broken. */
  | { readonly kind: 'corrupt'; readonly detail: string };

/** Facts about a job that its own script does not write. One file each, made once. */
export const NOTES = ['cancel', 'timeout', 'failed'] as const;
export type NoteName = (typeof NOTES)[number];

/**
 * The submissions of one host, as files `<token>.json` under `<runs directory>/.local/<host>/`. A token is entered
 * exclusively, so the second submission with it finds the first (INV-8). Every method throws the file system's errors.
 */
export class Registry {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  /** The directory of this host; other hosts that share the runs directory cannot see these processes. */
  static at(runsDir: string, host: string): Registry {
    return new Registry(join(runsDir, '.local', host));
  }

  async open(runsDir: string): Promise<void> {
    await makePrivateDirectory(join(runsDir, '.local'));
    await makePrivateDirectory(this.directory);
  }

  /** Enters a submission and gives it back, or what was entered with this token before. */
  async enter(submission: Submission): Promise<FindSubmission> {
    const made = await createOnce(this.#path(submission.token, 'json'), JSON.stringify(submission));
    return made ? { kind: 'found', submission } : await this.find(submission.token);
  }

  async find(token: Token): Promise<FindSubmission> {
    const path = this.#path(token, 'json');
    const text = await readIfThere(path);
    if (text === null) return { kind: 'absent' };
    const parsed = Record.safeParse(text);
    if (parsed.success) return { kind: 'found', submission: parsed.data };
    return { kind: 'corrupt', detail: `${path}: ${z.prettifyError(parsed.error)}` };
  }

  /** Every token that was entered; one readdir. */
  async tokens(): Promise<readonly Token[]> {
    const names = await readdir(this.directory);
    return names
      .filter((name) => name.endsWith('.json'))
      .flatMap((name) => {
        const token = Token.safeParse(name.slice(0, -'.json'.length));
        return token.success ? [token.data] : [];
      });
  }

  /** Makes a note unless it is there already: the first one stays. */
  async note(token: Token, name: NoteName, text: string): Promise<void> {
    await createOnce(this.#path(token, name), text);
  }

  async readNote(token: Token, name: NoteName): Promise<string | null> {
    return await readIfThere(this.#path(token, name));
  }

  notePath(token: Token, name: NoteName): string {
    return this.#path(token, name);
  }

  /** Forgets a token whose job has ended and whose directory is gone. */
  async forget(token: Token): Promise<void> {
    for (const name of [...NOTES, 'json'] as const) await rm(this.#path(token, name), { force: true });
  }

  /** Removes what a crash in the middle of `enter` or `note` left, if it is from before `beforeMs` (Unix epoch). */
  async removeTemporary(beforeMs: number): Promise<void> {
    for (const name of await readdir(this.directory)) {
      const path = join(this.directory, name);
      if (name.endsWith(TEMPORARY) && (await lstat(path)).mtimeMs < beforeMs) await rm(path, { force: true });
    }
  }

  #path(token: Token, kind: NoteName | 'json'): string {
    return join(this.directory, `${token}.${kind}`);
  }
}

async function readIfThere(path: string): Promise<string | null> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null;
    throw error;
  }
}
