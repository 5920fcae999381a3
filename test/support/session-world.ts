import type { SessionProfile, StepReply, StepRequest as BackendStep } from '../../src/backend.js';
import type { SessionCall, StepEnd, StepRequest } from '../../src/coordinator/session-api.js';
import { isSessionEvent } from '../../src/events/schemas.js';
import type { Append } from '../../src/events/store.js';
import { contextOf, phaseOf, type Job } from '../../src/machines/job-aggregate.js';
import { foldSession, sessionStateOf, type Session } from '../../src/machines/session-aggregate.js';
import type { SessionEvent } from '../../src/machines/session-events.js';
import type { JobId, StepId } from '../../src/machines/vocabulary.js';
import type { WorkerConfig, WorkerDeps } from '../../src/worker/context.js';
import type { Worker } from '../../src/worker/worker.js';
import { FakeGateway, FakeSessionDirectories, type FakeAgent } from './fake-agents.js';
import { grant } from './fake-coordinator.js';
import { FakeSessionPort } from './fake-session-port.js';
import { gatedStore } from './gated-store.js';
import { epoch, stepId, taskId } from './ids.js';
import { flush } from './manual-clock.js';
import { profile } from './profiles.js';
import { WorkerWorld } from './worker-world.js';

const RUNNING = { phase: 'Running', ending: false } as const;
/** Turns of the event loop in which everything has run that waits for no time. */
const TURNS = 15;
const STEP_MS = 200;
const LIMIT_MS = 300_000;

export interface Limits {
  readonly idleLimitS?: number;
  readonly maxLifetimeS?: number;
}

/** A command that a test has asked the backend to run in an allocation: it runs until the test, or its cancel, ends it. */
export interface AllocationStep {
  readonly request: BackendStep;
  readonly end: (reply: StepReply) => void;
}

/** The production worker, its own loop and all, with sessions of two ranks between fakes. */
export class SessionWorld extends WorkerWorld {
  readonly port = new FakeSessionPort(() => this.clock.monotonicMs());
  readonly sessionDirectories = new FakeSessionDirectories();
  readonly gateways: FakeGateway[] = [];
  readonly steps: AllocationStep[] = [];
  /** What runs in an allocation ends when it is cancelled. */
  stepsObeyCancel = true;
  /** What single appends, those of sessions, wait for. */
  beforeAppend: (append: Append) => Promise<void> = () => Promise.resolve();
  /** It is started without an address for agents. */
  withoutSessions = false;
  #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor({ idleLimitS = 3_600, maxLifetimeS = 36_000 }: Limits = {}, config: Partial<WorkerConfig> = {}) {
    super({ pollMs: 1_000, ...config });
    const session: SessionProfile = { idleLimitS, maxLifetimeS, agentPath: null, nodePath: '/usr/bin/node' };
    const environment = { SITE: 'lab' };
    this.profiles.set('gang', profile({ name: 'gang', scriptPath: null, nodes: 2, session, environment }));
    this.backend.stepAnswer = (request) => this.#runStep(request);
  }

  /** That of the worker that lives now. */
  get gateway(): FakeGateway {
    const gateway = this.gateways.at(-1);
    if (gateway === undefined) throw new Error('no worker listens');
    return gateway;
  }

  override deps(): WorkerDeps {
    const listen: NonNullable<WorkerDeps['sessions']>['listen'] = (events) => {
      const gateway = new FakeGateway(events);
      this.gateways.push(gateway);
      return Promise.resolve(gateway);
    };
    if (this.withoutSessions) return super.deps();
    const { port: coordinator, sessionDirectories: directories } = this;
    const store = gatedStore(this.store, (append) => this.beforeAppend(append));
    return { ...super.deps(), store, sessions: { coordinator, directories, listen, agentSource: '/dist/agent.js' } };
  }

  override async start(): Promise<Worker> {
    const worker = await super.start();
    this.#stop = new AbortController();
    this.#running = worker.run(this.#stop.signal).catch((error: unknown) => {
      this.logged.push(`the worker ended: ${String(error)}`);
    });
    return worker;
  }

  /** It is told to end, and does. */
  async stop(): Promise<void> {
    this.#stop.abort();
    await this.settle();
    await this.#running;
  }

  /** It is gone without a word: nothing of what it still tries is recorded. */
  override async crash(): Promise<void> {
    this.onAppend = () => undefined;
    await super.crash();
    this.#stop.abort();
    await this.settle();
  }

  /** Everything that waits for no time. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < TURNS; turn += 1) await flush();
  }

  override async round(stepMs = STEP_MS): Promise<void> {
    await this.settle();
    await this.clock.advance(stepMs);
    await this.settle();
  }

  /** Waits for something that is not a job's. */
  async sees(look: () => boolean | Promise<boolean>, limitMs = LIMIT_MS): Promise<void> {
    const endMs = this.clock.monotonicMs() + limitMs;
    await this.settle();
    while (!(await look())) {
      if (this.clock.monotonicMs() > endMs)
        throw new Error(`not seen within ${String(limitMs)} ms: ${look.toString()}`);
      await this.round();
    }
  }

  /** A task of the kind, leased at an epoch. */
  offer(n = 1, atEpoch = 1): void {
    const payload = { profile: 'gang', parameters: { dataset: 'a' } };
    this.coordinator.grants.push(grant({ taskId: taskId(n), epoch: epoch(atEpoch), kind: 'session', payload }));
  }

  /** The newest job of the task. */
  async newest(n = 1): Promise<Job> {
    const job = (await this.jobs()).findLast((one) => contextOf(one).taskId === taskId(n));
    if (job === undefined) throw new Error('there is no job');
    return job;
  }

  async jobId(n = 1): Promise<JobId> {
    return contextOf(await this.newest(n)).jobId;
  }

  async untilPhase(...phases: readonly string[]): Promise<void> {
    await this.sees(async () => {
      const jobs = await this.jobs();
      return jobs.length > 0 && phases.includes(phaseOf(await this.newest()));
    });
  }

  /** A worker with a session whose job runs after some time in the queue, and nobody in. */
  async running(queuedMs = 0): Promise<this> {
    await this.start();
    this.offer();
    await this.untilPhase('Pending');
    await this.run(queuedMs);
    this.backend.setAll(RUNNING);
    await this.untilPhase('Running');
    await this.sees(async () => (await this.sessionTypes()).includes('allocation.granted'));
    return this;
  }

  /** … whose two ranks are in and answer. */
  async ready(queuedMs = 0): Promise<this> {
    await this.running(queuedMs);
    await this.joinAll();
    return this;
  }

  async joinAll(): Promise<void> {
    const jobId = await this.jobId();
    for (const rank of [0, 1]) this.gateway.join(jobId, rank);
    await this.untilState('Ready');
  }

  async agent(rank = 0): Promise<FakeAgent> {
    const agent = this.gateway.agents.get(`${await this.jobId()}/${String(rank)}`);
    if (agent === undefined) throw new Error(`rank ${String(rank)} is not in`);
    return agent;
  }

  async events(n = 1): Promise<readonly SessionEvent[]> {
    return (await this.store.readStream(`session/${taskId(n)}`)).flatMap(({ event }) =>
      isSessionEvent(event) ? [event] : [],
    );
  }

  /** Types of the events of a session, in order. */
  async sessionTypes(n = 1): Promise<readonly string[]> {
    return (await this.events(n)).map(({ type }) => type);
  }

  /** As its stream tells it. */
  async session(n = 1): Promise<Session> {
    return foldSession(await this.events(n));
  }

  async untilState(state: string): Promise<void> {
    await this.sees(async () => (await this.events()).length > 0 && sessionStateOf(await this.session()) === state);
  }

  ask(request: StepRequest, over: Partial<Pick<Extract<SessionCall, { type: 'step' }>, 'by'>> = {}): void {
    this.port.ask({ type: 'step', taskId: taskId(), by: 'alice', request, ...over });
  }

  async untilEnded(id: StepId = stepId()): Promise<StepEnd> {
    await this.sees(() => this.port.step(id).end !== null);
    const { end } = this.port.step(id);
    if (end === null) throw new Error('it has not ended');
    return end;
  }

  #runStep(request: BackendStep): Promise<StepReply> {
    return new Promise((resolve) => {
      this.steps.push({ request, end: resolve });
      const cancel = (): void => {
        if (this.stepsObeyCancel) resolve({ kind: 'stopped', by: 'cancel' });
      };
      request.signal.addEventListener('abort', cancel, { once: true });
    });
  }
}

const common = { argv: ['hostname'], timeLimitS: null, outputLimitBytes: 1_000_000 } as const;

/** A command at the agent of a rank. */
export const exec = (
  over: Partial<Extract<StepRequest, { mode: 'exec' }>> = {},
): Extract<StepRequest, { mode: 'exec' }> => ({
  mode: 'exec',
  stepId: stepId(),
  rank: 0,
  stdin: false,
  ...common,
  argv: [...common.argv],
  ...over,
});

/** A command on the nodes of the allocation. */
export const run = (
  over: Partial<Extract<StepRequest, { mode: 'run' }>> = {},
): Extract<StepRequest, { mode: 'run' }> => ({
  mode: 'run',
  stepId: stepId(),
  nodes: null,
  tasks: null,
  cpusPerTask: null,
  ...common,
  argv: [...common.argv],
  ...over,
});
