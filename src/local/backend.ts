import { lstat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import type {
  AttemptEnd,
  Backend,
  CancelReply,
  CancelTarget,
  Observations,
  SelfTest,
  StepReply,
  StepRequest,
  SubmitReply,
  SubmitRequest,
  WatchItem,
} from '../backend.js';
import { Token } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import { jobFiles, replaceFile } from '../workdir/directory.js';
import { errnoOf, messageOf } from '../workdir/io-error.js';
import { handleOf } from './answer.js';
import { cancelJobs } from './cancel.js';
import { environmentOf, outageOf, type LocalContext } from './context.js';
import { Observer } from './observe.js';
import { pruneRegistry } from './prune.js';
import { StartQueue } from './queue.js';
import { Registry } from './registry.js';
import { runScript } from './run-script.js';
import { sessionLauncher } from './session-launcher.js';
import { runStep } from './step.js';
import { selfTest } from './self-test.js';

export interface LocalBackendOptions {
  /** Absolute; has passed `checkRunsDirectory`. */
  readonly runsDir: string;
  readonly clock: Clock;
  /** How many jobs run at once; the others wait. */
  readonly maxRunning: number;
  /** Of this environment jobs inherit PATH, HOME, USER, LOGNAME, LANG, TZ and TMPDIR, and nothing else. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Between SIGTERM and SIGKILL; 5 s by default. */
  readonly killGraceMs?: number;
  /** Default: this machine's name. Jobs of another host are never touched. */
  readonly host?: string;
}

const INHERITED = ['PATH', 'HOME', 'USER', 'LOGNAME', 'LANG', 'TZ', 'TMPDIR'];
const PRUNE_EVERY_MS = 600_000;

/**
 * The backend port on this machine's processes: the embedded default. All that it knows is in files under the runs
 * directory, so a restarted worker, or a second one, sees the same jobs. Directive lines in a profile are comments to
 * it; of the resources it keeps the time limit and `maxRunning`. A memory limit is not enforced: `ulimit -v` counts
 * address space per process, of which language runtimes reserve far more than they use. Linux only: it reads /proc.
 */
export async function createLocalBackend(options: LocalBackendOptions): Promise<Backend> {
  const host = options.host ?? hostname();
  const registry = Registry.at(options.runsDir, host);
  await registry.open(options.runsDir);
  const inherited = Object.fromEntries(
    INHERITED.flatMap((name) => {
      const value = options.environment[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
  const queue = new StartQueue({
    registry,
    maxRunning: options.maxRunning,
    environment: ({ jobId }) => environmentOf(inherited, jobId),
  });
  const { runsDir, clock, killGraceMs = 5000 } = options;
  return new LocalBackend(`local:${host}:${runsDir}`, { runsDir, clock, killGraceMs, registry, queue, inherited });
}

class LocalBackend implements Backend {
  readonly name = 'local';
  readonly site: string;
  readonly sources = ['queue'] as const;
  readonly timing = { settleMs: 0, looks: 1, lossGraceMs: 1000, lossLooks: 2 };

  readonly #context: LocalContext;
  readonly #observer: Observer;
  readonly #submitting = new Set<Token>();
  readonly #calls = { selfTest: 0, step: 0 };
  #prunedAtMs = Number.NEGATIVE_INFINITY;

  constructor(site: string, context: LocalContext) {
    this.site = site;
    this.#context = context;
    this.#observer = new Observer(context);
  }

  async selfTest(): Promise<SelfTest> {
    this.#calls.selfTest += 1;
    return await selfTest(this.#context);
  }

  async prepare(request: SubmitRequest): Promise<void> {
    const { registry, killGraceMs } = this.#context;
    const files = jobFiles(dirname(request.directory), request.jobId);
    if (request.session !== null) await replaceFile(files.profile, sessionLauncher(request.session), 0o700);
    const timeoutNote = registry.notePath(request.token, 'timeout');
    await replaceFile(files.script, runScript({ request, files, timeoutNote, killGraceMs }), 0o700);
  }

  async submit(request: SubmitRequest): Promise<SubmitReply> {
    this.#submitting.add(request.token);
    try {
      return await this.#submit(request);
    } finally {
      this.#submitting.delete(request.token);
    }
  }

  async #submit(request: SubmitRequest): Promise<SubmitReply> {
    const { registry, clock } = this.#context;
    const { jobId, token, directory, profile } = request;
    if (request.session === null && profile.nodes !== null && profile.nodes > 1) {
      const detail = `profile ${profile.name} asks for ${String(profile.nodes)} nodes; this machine is one`;
      return { kind: 'refused', reason: 'INVALID_SPEC', detail };
    }
    try {
      await lstat(join(directory, 'run.sh'));
    } catch (error) {
      if (errnoOf(error) === null) throw error;
      return { kind: 'refused', reason: 'BACKEND_REJECTED', detail: `not prepared: ${messageOf(error)}` };
    }
    try {
      const { environment } = profile;
      const submittedAtMs = clock.nowMs();
      const ranks = request.session?.ranks ?? 1;
      await registry.enter({ v: 1, jobId, token, directory, submittedAtMs, environment, ranks });
    } catch (error) {
      const answer = await this.#notEntered(request, error);
      if (answer !== null) return answer;
    }
    return await this.#entered(request);
  }

  /** What an error while entering means: "not now", for disks fill up and file systems go away; null if the entry is there. */
  async #notEntered({ jobId, token }: SubmitRequest, error: unknown): Promise<SubmitReply | null> {
    const detail = `entering ${jobId} into the registry: ${messageOf(error)}`;
    const errno = errnoOf(error);
    if (errno === null) throw error;
    try {
      if ((await this.#context.registry.find(token)).kind !== 'absent') return null;
    } catch (again) {
      return { ...outageOf(detail, again), hint: null };
    }
    return { kind: 'deferred', limit: errno, detail };
  }

  /** Entered is accepted, whether it starts now or with a later call. */
  async #entered({ jobId, token }: SubmitRequest): Promise<SubmitReply> {
    try {
      const found = await this.#context.registry.find(token);
      if (found.kind !== 'found') {
        const detail = found.kind === 'corrupt' ? found.detail : `the entry of ${token} has vanished`;
        return { kind: 'unreadable', detail, hint: null };
      }
      if (found.submission.jobId !== jobId) {
        const detail = `token ${token} belongs to ${found.submission.jobId}`;
        return { kind: 'refused', reason: 'BACKEND_REJECTED', detail };
      }
      await this.#context.queue.run();
      return { kind: 'accepted', handle: handleOf(found.submission), notes: this.#context.queue.waitingWhy(token) };
    } catch (error) {
      return { ...outageOf(`starting ${jobId}`, error), hint: null };
    }
  }

  /** A submission is one file, written by this process: once `submit` has answered, nothing can still send it. */
  endAttempt(token: Token): Promise<AttemptEnd> {
    return Promise.resolve(
      this.#submitting.has(token)
        ? { kind: 'alive', detail: `the submission of ${token} is being written` }
        : { kind: 'ended', how: `nothing writes the submission of ${token} any more` },
    );
  }

  async observe(items: readonly WatchItem[]): Promise<Observations> {
    const nowMs = this.#context.clock.monotonicMs();
    if (nowMs - this.#prunedAtMs >= PRUNE_EVERY_MS) {
      this.#prunedAtMs = nowMs;
      this.#observer.forget(await pruneRegistry(this.#context));
    }
    return await this.#observer.observe(items);
  }

  async cancel(targets: readonly CancelTarget[]): Promise<CancelReply> {
    return await cancelJobs(
      this.#context,
      targets.map(({ handle }) => handle),
    );
  }

  /** A handle's id is the job's token, and a process is compared with its boot and start time before it is ended. */
  mayCancel(): boolean {
    return true;
  }

  runStep(request: StepRequest): Promise<StepReply> {
    return runStep(request, this.#context, (processes) => {
      this.#calls.step += processes;
    });
  }

  /** Processes started, by purpose. Observing and cancelling start none. */
  callCounts(): Readonly<Record<string, number>> {
    return { start: this.#context.queue.starts, ...this.#calls };
  }

  /** Jobs go on; the next one to open this runs directory sees them. */
  async close(): Promise<void> {
    await this.#context.queue.idle();
  }
}
