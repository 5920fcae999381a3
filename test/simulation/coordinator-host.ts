import type { WorkerPort } from '../../src/coordinator/worker-api.js';
import type { Principal } from '../../src/coordinator/principal.js';
import { StoreError } from '../../src/events/store.js';
import { Coordinator } from '../../src/coordinator/service.js';
import type { Break } from './breaks.js';
import type { Chance } from './chance.js';
import type { Swarm } from './faults.js';
import { Life } from './life.js';
import type { LogHost } from './log-host.js';
import type { HostClock, VirtualTime } from './virtual-time.js';

interface CoordinatorParts {
  readonly time: VirtualTime;
  readonly clock: HostClock;
  readonly chance: Chance;
  readonly swarm: Swarm;
  readonly log: LogHost;
  readonly leaseTtlMs: number;
  readonly lossesMax: number;
  readonly broken: Break | null;
  readonly onError: (error: unknown) => void;
}

interface Running {
  readonly life: Life;
  readonly coordinator: Coordinator;
}

type Unreachable = { readonly kind: 'unreachable'; readonly detail: string };
const UNREACHABLE: Unreachable = { kind: 'unreachable', detail: 'the simulated network' };
const RESTART_MAX_MS = 20_000;
const TICK_MS = 1_000;

const isStoreError = (error: unknown): boolean => error instanceof StoreError;

/** The host of the coordinator: starts it, and starts it again after a crash; at times a second one on the same log. */
export class CoordinatorHost {
  readonly #parts: CoordinatorParts;
  #running: Running[] = [];
  #starting = 0;

  constructor(parts: CoordinatorParts) {
    this.#parts = parts;
  }

  get running(): readonly Running[] {
    return this.#running;
  }

  async start(): Promise<void> {
    const { time, clock, chance, swarm, log, leaseTtlMs, lossesMax, onError } = this.#parts;
    const life = new Life(() => {
      if (!swarm.strikes('coordinatorCrash')) return 'goOn';
      return chance.chance(0.5) ? 'crashBefore' : 'crashAfter';
    });
    this.#starting += 1;
    life.onDeath(() => {
      this.#running = this.#running.filter((one) => one.life !== life);
      if (this.#running.length === 0) time.after(chance.int(1, RESTART_MAX_MS), () => this.#startIfNone());
    });
    try {
      const coordinator = await Coordinator.open({
        store: log.openFor(life, null),
        clock: life.clock(clock),
        random: chance.fork(`coordinator ${String(this.#starting)}`),
        config: { leaseTtlMs, lossesMax, checkpointEvery: 40, unclaimedGraceMs: 10_000, changesKept: 50 },
      });
      if (!life.isAlive) return;
      this.#running.push({ life, coordinator });
      this.#tick(life, coordinator);
    } catch (error) {
      // A log that can not be written now: the service manager starts it again.
      if (isStoreError(error)) life.kill();
      else onError(error);
    }
  }

  /** The one that people talk to; null while there is none. */
  any(): Coordinator | null {
    return this.#running[this.#parts.chance.int(0, Math.max(0, this.#running.length - 1))]?.coordinator ?? null;
  }

  /** All but the newest end. */
  endOld(): void {
    for (const { life } of this.#running.slice(0, -1)) life.kill();
  }

  #startIfNone(): void {
    if (this.#running.length === 0) void this.start();
  }

  #tick(life: Life, coordinator: Coordinator): void {
    const { time, clock, onError } = this.#parts;
    if (!life.isAlive) return;
    coordinator.tick(clock.monotonicMs()).catch((error: unknown) => {
      if (!isStoreError(error)) onError(error);
    });
    time.after(TICK_MS, () => this.#tick(life, coordinator));
  }

  /** The network between one worker's process and the coordinator. */
  portFor(workerLife: Life, principal: Principal, isCutOff: () => boolean): WorkerPort {
    const { time, chance, swarm, broken } = this.#parts;
    const call = <T>(what: string, ask: (port: WorkerPort) => Promise<T>): Promise<T | Unreachable> =>
      workerLife.call(what, async () => {
        await time.wait(chance.int(0, 60));
        const running = this.#running[chance.int(0, Math.max(0, this.#running.length - 1))];
        if (running === undefined || isCutOff() || swarm.strikes('requestLost')) {
          await time.wait(chance.int(0, 2_000));
          return UNREACHABLE;
        }
        const port =
          broken === 'epoch' ? withoutFence(running.coordinator, principal) : running.coordinator.workerPort(principal);
        const died = new Promise<Unreachable>((resolve) => {
          running.life.onDeath(() => {
            resolve(UNREACHABLE);
          });
        });
        const answer = await Promise.race([ask(port), died]);
        return isCutOff() || swarm.strikes('answerLost') ? UNREACHABLE : answer;
      });
    return {
      hello: (hello) => call('hello', (port) => port.hello(hello)),
      acquire: (request, signal) => call('acquire', (port) => port.acquire(request, signal)),
      renew: (leases) => call('renew', (port) => port.renew(leases)),
      report: (items) => call('report', (port) => port.report(items)),
      outcome: (outcome) => call('outcome', (port) => port.outcome(outcome)),
      putLogs: (logs) => call('putLogs', (port) => port.putLogs(logs)),
    };
  }
}

/** Broken on purpose: whatever a worker says counts as said by the task's newest lease. */
function withoutFence(coordinator: Coordinator, principal: Principal): WorkerPort {
  const own = coordinator.workerPort(principal);
  const current = (taskId: Parameters<typeof coordinator.core.book.live.get>[0]) => {
    const task = coordinator.core.book.live.get(taskId);
    const lease = task?.snapshot.value === 'Leased' ? task.snapshot.context.lease : null;
    if (lease === null) return null;
    return {
      epoch: lease.epoch,
      port: coordinator.workerPort({ id: lease.workerId, name: lease.worker, role: 'worker' }),
    };
  };
  return {
    ...own,
    renew: async (leases) => {
      const answer = await own.renew(leases);
      return answer.kind === 'answered' ? { ...answer, value: { ...answer.value, lost: [] } } : answer;
    },
    report: async (items) => {
      const verdicts: ('ok' | 'stale')[] = [];
      for (const item of items) {
        const now = current(item.taskId);
        const fixed = now === null || item.type === 'closed' ? item : { ...item, epoch: now.epoch };
        const answer = await (now?.port ?? own).report([fixed]);
        if (answer.kind !== 'answered') return answer;
        verdicts.push(...answer.value.verdicts);
      }
      return { kind: 'answered', value: { verdicts } };
    },
    outcome: (outcome) => {
      const now = current(outcome.taskId);
      return now === null ? own.outcome(outcome) : now.port.outcome({ ...outcome, epoch: now.epoch });
    },
  };
}
