import type { CoordinatorConfig } from '../../src/coordinator/config.js';
import { MemoryTails } from '../../src/coordinator/output-tails.js';
import type { Principal } from '../../src/coordinator/principal.js';
import type { Answer } from '../../src/coordinator/problems.js';
import { Coordinator } from '../../src/coordinator/service.js';
import type { SessionView } from '../../src/coordinator/session-api.js';
import type { Hello, LeaseGrant, PortAnswer, PublicProfile } from '../../src/coordinator/worker-api.js';
import { MemoryEventStore, type FaultHook } from '../../src/events/memory-store.js';
import type { TaskId } from '../../src/machines/vocabulary.js';
import type { Log } from '../../src/runtime/log.js';
import { epoch, jobId, taskId, token } from '../support/ids.js';
import { ManualClock } from '../support/manual-clock.js';
import { SeededRandom } from '../support/seeded-random.js';

export const ALICE: Principal = { id: 'alice-1', name: 'alice', role: 'submitter' };
export const BOB: Principal = { id: 'bob-1', name: 'bob', role: 'submitter' };
export const VIEWER: Principal = { id: 'viewer-1', name: 'viewer', role: 'viewer' };
export const ADMIN: Principal = { id: 'admin-1', name: 'admin', role: 'admin' };
export const worker = (name: string): Principal => ({ id: `${name}-1`, name, role: 'worker' });
export const W1 = worker('w1');
export const W2 = worker('w2');

export const profile = (
  name: string,
  parametersSchema: PublicProfile['parametersSchema'] = null,
  kinds: readonly string[] = ['training'],
): PublicProfile => ({
  name,
  description: '',
  cpus: 1,
  memoryMiB: 512,
  gpus: 0,
  nodes: 1,
  walltimeS: 60,
  parametersSchema,
  kinds: [...kinds],
});

export const hello = (over: Partial<Hello> = {}): Hello => ({
  site: 'lab',
  kinds: ['training'],
  profiles: [profile('smoke')],
  capacity: 1000,
  ...over,
});

/** A session that is ready, on two nodes. */
export const sessionView = (over: Partial<SessionView> = {}): SessionView => ({
  taskId: taskId(),
  profile: 'smoke',
  state: 'Ready',
  jobId: jobId(),
  epoch: epoch(),
  readiness: { allocation: true, workspace: true, ranks: true, agent: true },
  words: 'ready',
  ranks: 2,
  ranksIn: [
    { rank: 0, node: 'n0' },
    { rank: 1, node: 'n1' },
  ],
  grantedAtMs: 1,
  idleEndsAtMs: null,
  lifetimeEndsAtMs: null,
  recoveries: 0,
  lastLoss: null,
  reason: null,
  steps: [],
  ...over,
});

export interface Logged {
  readonly level: 'info' | 'warn' | 'error';
  readonly fields: object;
  readonly message: string;
}

/** A coordinator over a memory store, with time that a test moves. */
export class Harness {
  readonly clock = new ManualClock();
  readonly random = new SeededRandom(1);
  readonly logged: Logged[] = [];
  readonly tails = new MemoryTails();
  readonly config: Partial<CoordinatorConfig>;
  store: MemoryEventStore;
  coordinator!: Coordinator;
  fault: FaultHook = () => undefined;

  private constructor(config: Partial<CoordinatorConfig>) {
    this.config = config;
    this.store = new MemoryEventStore({
      writer: 'test',
      nowMs: () => this.clock.nowMs(),
      onAppend: (when, appends) => {
        this.fault(when, appends);
      },
    });
  }

  static async start(config: Partial<CoordinatorConfig> = {}): Promise<Harness> {
    const harness = new Harness(config);
    await harness.open();
    return harness;
  }

  get log(): Log {
    const write =
      (level: Logged['level']) =>
      (fields: object, message: string): void => {
        this.logged.push({ level, fields, message });
      };
    return { info: write('info'), warn: write('warn'), error: write('error') };
  }

  async open(): Promise<void> {
    const { store, clock, random, log, tails, config } = this;
    this.coordinator = await Coordinator.open({ store, clock, random, log, tails, config });
  }

  /** The process dies, without a word, and starts again on the same log. */
  async crash(): Promise<void> {
    this.store = this.store.reopen();
    await this.open();
  }

  async submit(
    by: Principal = ALICE,
    payload: unknown = { profile: 'smoke' },
    key: string | null = null,
  ): Promise<TaskId> {
    return value(await this.coordinator.client.submit(by, { kind: 'training', payload }, key)).taskId;
  }

  async greet(who: Principal = W1, over: Partial<Hello> = {}): Promise<void> {
    value(await this.coordinator.worker.hello(who, hello(over)));
  }

  async acquire(who: Principal = W1, count = 1): Promise<readonly LeaseGrant[]> {
    return value(await this.coordinator.worker.acquire(who, { count, waitMs: 0 }));
  }

  /** A session that W1 holds, with its job open. */
  async session(by: Principal = ALICE): Promise<TaskId> {
    const kinds = ['training', 'session'];
    await this.greet(W1, { kinds, profiles: [profile('smoke', null, kinds)] });
    const request = { kind: 'session', payload: { profile: 'smoke' } };
    const { taskId: id } = value(await this.coordinator.client.submit(by, request, null));
    await this.openJob(W1);
    return id;
  }

  /** Leases one task and opens its job. */
  async openJob(who: Principal = W1): Promise<LeaseGrant> {
    const grant = await this.lease(who);
    const { epoch: at } = grant;
    const item = { type: 'opened', taskId: grant.taskId, epoch: at, jobId: jobId(at), token: token(at) } as const;
    value(await this.coordinator.worker.report(who, [item]));
    return grant;
  }

  /** One grant, or an error. */
  async lease(who: Principal = W1): Promise<LeaseGrant> {
    const [grant] = await this.acquire(who);
    if (grant === undefined) throw new Error('nothing was granted');
    return grant;
  }

  async phase(taskId: TaskId): Promise<string> {
    return value(await this.coordinator.client.get(ADMIN, taskId)).phase;
  }

  async tick(byMs = 0): Promise<void> {
    await this.clock.advance(byMs);
    await this.coordinator.tick(this.clock.monotonicMs());
  }
}

export function value<T>(answer: Answer<T>): T {
  if (!answer.ok) throw new Error(`${answer.problem.code}: ${answer.problem.message}`);
  return answer.value;
}

export function problem(answer: Answer<unknown>): string {
  return answer.ok ? 'none' : answer.problem.code;
}

export function answered<T>(answer: PortAnswer<T>): T {
  if (answer.kind !== 'answered') throw new Error(`${answer.kind}: ${answer.detail}`);
  return answer.value;
}
