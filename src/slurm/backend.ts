import type {
  AttemptEnd,
  Backend,
  BackendTiming,
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
import type { Source, Token } from '../machines/vocabulary.js';
import { writeBatchScript, type BatchScript } from './batch-script.js';
import { createBroker, createProcessRun, type Broker } from './broker.js';
import { cancel } from './cancel.js';
import { DEFAULT_LIMITS, type Limits, type SlurmConfig } from './config.js';
import { commandEnvironment } from './environment.js';
import { realHost, type Host } from './host.js';
import { knowsOverlap } from './release.js';
import { Poller, type Site } from './poll.js';
import { DEFAULT_TIMING, selfTest } from './self-test.js';
import { runStep } from './step.js';
import { submit } from './submit.js';

/** Fills the backend port with the commands of Slurm. Starts nothing by itself. */
export function createSlurmBackend(config: SlurmConfig): Backend {
  return new SlurmBackend(config);
}

class SlurmBackend implements Backend {
  readonly name = 'slurm';
  readonly #config: SlurmConfig;
  readonly #limits: Limits;
  readonly #broker: Broker;
  readonly #host: Host;
  readonly #poller: Poller;
  #site: Site = { homeCluster: null, accountingKept: true, clockAheadMs: 0 };
  #timing: BackendTiming = DEFAULT_TIMING;
  /** Whether this release's srun knows --overlap. */
  #overlap = true;
  readonly #calls = new Set<Promise<unknown>>();
  /** What `prepare` made of a request, for the submission that follows. */
  readonly #prepared = new WeakMap<SubmitRequest, BatchScript>();

  constructor(config: SlurmConfig) {
    const { clock, user, jobNamePrefix, clusters } = config;
    this.#config = config;
    this.#limits = { ...DEFAULT_LIMITS, ...config.limits };
    this.#host = config.host ?? realHost(jobNamePrefix, clock);
    this.#broker = createBroker(config.run ?? createProcessRun(commandEnvironment(config), clock));
    this.#poller = new Poller({
      broker: this.#broker,
      clock,
      uid: user.uid,
      jobNamePrefix,
      clusters,
      limits: this.#limits,
    });
  }

  /** A cluster and a user: the queue is asked for that user's jobs only. */
  get site(): string {
    return `${this.#config.clusterName ?? this.#site.homeCluster ?? 'cluster'}/${this.#config.user.name}`;
  }

  get sources(): readonly Source[] {
    return this.#site.accountingKept ? ['queue', 'accounting'] : ['queue'];
  }

  get timing(): BackendTiming {
    return this.#timing;
  }

  async selfTest(): Promise<SelfTest> {
    const { clock, user, clusterName } = this.#config;
    const findings = await this.#track(
      selfTest({ broker: this.#broker, uid: user.uid, clock, limits: this.#limits, clusterName }),
    );
    if (findings.result.kind === 'fit') {
      this.#site = findings;
      this.#timing = findings.timing;
      this.#overlap = knowsOverlap(findings.result.report['version'] ?? '');
    }
    return findings.result;
  }

  async prepare(request: SubmitRequest): Promise<void> {
    this.#prepared.set(request, await writeBatchScript(request, this.#host, { overlap: this.#overlap }));
  }

  submit(request: SubmitRequest): Promise<SubmitReply> {
    const { clock, jobNamePrefix } = this.#config;
    const timeLimitMs = this.#limits.submitTimeLimitMs;
    const script = this.#prepared.get(request) ?? null;
    const options = { broker: this.#broker, clock, host: this.#host, script, jobNamePrefix, timeLimitMs };
    return this.#track(submit(request, options));
  }

  endAttempt(token: Token): Promise<AttemptEnd> {
    return this.#host.endAttempt(token);
  }

  observe(items: readonly WatchItem[]): Promise<Observations> {
    return this.#track(this.#poller.observe(items, this.#site));
  }

  cancel(targets: readonly CancelTarget[]): Promise<CancelReply> {
    const standing = (target: CancelTarget) => this.#poller.standing(target, this.#site);
    return this.#track(
      cancel(targets, { broker: this.#broker, timeLimitMs: this.#limits.cancelTimeLimitMs, standing }),
    );
  }

  mayCancel(target: CancelTarget): boolean {
    return this.#poller.standing(target, this.#site) !== 'unheard';
  }

  runStep(request: StepRequest): Promise<StepReply> {
    // Not tracked: a step may last for days, and is left running when the worker stops.
    return runStep(request, this.#broker, { overlap: this.#overlap });
  }

  callCounts(): Readonly<Record<string, number>> {
    return this.#broker.counts();
  }

  /** Waits for the calls that are under way: each is bounded by its time limit. Jobs go on. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#calls);
  }

  #track<Reply>(call: Promise<Reply>): Promise<Reply> {
    this.#calls.add(call);
    const done = (): void => void this.#calls.delete(call);
    call.then(done, done);
    return call;
  }
}
