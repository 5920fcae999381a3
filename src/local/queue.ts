import { dirname, join } from 'node:path';
import type { Token } from '../machines/vocabulary.js';
import { jobFiles } from '../workdir/directory.js';
import { readClaim } from '../workdir/markers.js';
import { EXIT_CLAIM_TAKEN } from '../workdir/script.js';
import { isOver, lookAt } from './job-state.js';
import { startDetached } from './process.js';
import type { Registry, Submission } from './registry.js';

interface Known {
  readonly submission: Submission;
  over: boolean;
  started: boolean;
}

export interface StartQueueOptions {
  readonly registry: Registry;
  readonly maxRunning: number;
  /** What every job's process gets to see, beside its profile's variables. */
  readonly environment: (submission: Submission) => Readonly<Record<string, string>>;
}

/**
 * Starts waiting jobs, in the order of their submission, as long as fewer than `maxRunning` run. The files say what
 * waits and what runs; what is kept here only saves looking at the same files again.
 */
export class StartQueue {
  readonly #options: StartQueueOptions;
  readonly #known = new Map<Token, Known>();
  readonly #starting = new Map<Token, Promise<void>>();
  readonly #troubles = new Map<Token, string>();
  #turn: Promise<void> = Promise.resolve();
  #starts = 0;

  constructor(options: StartQueueOptions) {
    this.#options = options;
  }

  /** Processes started so far. */
  get starts(): number {
    return this.#starts;
  }

  /** For people: what a job waits for that has not started. */
  waitingWhy(token: Token): string {
    if (this.#starting.has(token)) return 'starting';
    return this.#troubles.get(token) ?? `waits until fewer than ${String(this.#options.maxRunning)} jobs run`;
  }

  /** Starts what may start. Throws the errors of the registry's file system. One at a time. */
  async run(): Promise<void> {
    const mine = this.#turn.then(() => this.#run());
    this.#turn = mine.catch(() => undefined);
    await mine;
  }

  async #run(): Promise<void> {
    await this.#refresh();
    let running = 0;
    const waiting: Known[] = [];
    for (const known of this.#known.values()) {
      if (known.over) continue;
      if (known.started || this.#starting.has(known.submission.token)) running += await this.#stillRuns(known);
      else waiting.push(known);
    }
    waiting.sort((a, b) => bySubmission(a.submission, b.submission));
    for (const known of waiting) {
      if (running >= this.#options.maxRunning) return;
      const state = await lookAt(known.submission, this.#options.registry);
      known.over = isOver(state);
      known.started = state.kind === 'running';
      if (state.kind === 'running' || (state.kind === 'waiting' && (await this.#start(known)))) running += 1;
    }
  }

  /** Resolves when nothing is being started by this process any more. */
  async idle(): Promise<void> {
    await this.#turn;
  }

  /** Learns of submissions made since, also by other processes, and forgets those that were removed. */
  async #refresh(): Promise<void> {
    const tokens = new Set(await this.#options.registry.tokens());
    for (const token of this.#known.keys()) if (!tokens.has(token)) this.#known.delete(token);
    for (const token of tokens) {
      if (this.#known.has(token)) continue;
      const found = await this.#options.registry.find(token);
      if (found.kind !== 'found') continue; // who asks for that job is told
      const { submission } = found;
      const state = await lookAt(submission, this.#options.registry);
      this.#known.set(token, { submission, over: isOver(state), started: state.kind === 'running' });
    }
  }

  async #stillRuns(known: Known): Promise<0 | 1> {
    const state = await lookAt(known.submission, this.#options.registry);
    known.over = isOver(state);
    known.started ||= state.kind === 'running';
    return known.over ? 0 : 1;
  }

  /** The claim decides who does the work: starting a script twice is wasted, not wrong (INV-8). */
  async #start(known: Known): Promise<boolean> {
    const { submission } = known;
    const { token, directory } = submission;
    const started = await startDetached({
      argv: ['sh', join(directory, 'run.sh')],
      cwd: directory,
      environment: this.#options.environment(submission),
      stdoutPath: join(directory, 'stdout'),
      stderrPath: join(directory, 'stderr'),
    });
    if (started.kind === 'failed') {
      this.#troubles.set(token, `could not be started yet: ${started.detail}`);
      return false;
    }
    this.#starts += 1;
    this.#troubles.delete(token);
    const watched = started.exit.then((status) => this.#noteEarlyEnd(submission, status));
    this.#starting.set(
      token,
      // A note that could not be written is no loss: the next round finds the job waiting and starts it again.
      watched.catch(() => undefined).finally(() => this.#starting.delete(token)),
    );
    return true;
  }

  /** A script that ended without the claim never will have it: the job cannot run. */
  async #noteEarlyEnd({ token, jobId, directory }: Submission, status: number | null): Promise<void> {
    const claim = await readClaim(jobFiles(dirname(directory), jobId));
    if (claim.kind !== 'missing' || status === EXIT_CLAIM_TAKEN) return;
    const how = status === null ? 'was killed' : `ended with status ${String(status)}`;
    await this.#options.registry.note(token, 'failed', `the job's script ${how} before it could claim its directory`);
  }
}

const bySubmission = (a: Submission, b: Submission): number =>
  a.submittedAtMs - b.submittedAtMs || (a.token < b.token ? -1 : 1);
