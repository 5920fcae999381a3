import type { Log } from '../../src/runtime/log.js';
import type { Break } from './breaks.js';
import { Chance } from './chance.js';
import { Checker, place } from './checker.js';
import { CoordinatorHost } from './coordinator-host.js';
import type { Fault, LastingFault, Swarm } from './faults.js';
import { LogHost } from './log-host.js';
import { People } from './people.js';
import { ScriptedAccounting } from './scripted-accounting.js';
import { ScriptedController } from './scripted-controller.js';
import { SharedFiles } from './shared-files.js';
import { HostClock, VirtualTime } from './virtual-time.js';
import { WorkerHost } from './worker-host.js';
import {
  drawConfig,
  drawSwarm,
  HOME_CLUSTER,
  OTHER_UID,
  PREFIX,
  profilesOf,
  SECOND_CLUSTER,
  UID,
  type WorldConfig,
} from './world-config.js';

const TOKEN_NAME = new RegExp(`^${PREFIX}-([0-9a-hjkmnp-tv-z]{26})$`);
const tokenOf = (name: string): string | null => TOKEN_NAME.exec(name)?.[1] ?? null;

/** After everything works again, all has to be settled within this time, ms. */
const SETTLED_WITHIN_MS = 3 * 3_600_000;
const LOOK_EVERY_MS = 5_000;
const CALM_GRAIN_MS = 2_000;

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A whole site made from one seed: schedulers, gateways, a coordinator, people, and what goes wrong between them. */
export class World {
  readonly time = new VirtualTime();
  readonly swarm: Swarm;
  readonly config: WorldConfig;
  readonly checker: Checker;
  readonly #chance: Chance;
  readonly #accounting: ScriptedAccounting;
  readonly #files: SharedFiles;
  readonly #controllers: readonly ScriptedController[];
  readonly #logs: LogHost[] = [];
  readonly #clocks: HostClock[] = [];
  readonly #coordinator: CoordinatorHost;
  readonly #workers: readonly WorkerHost[];
  readonly #people: People;
  readonly #running = new Set<() => void>();
  #serial = 0;
  #grainMs: number;
  #steps = 0;
  #isSettled = false;

  constructor(seed: number, broken: Break | null, forced: readonly Fault[], log: Log | null) {
    const chance = new Chance(seed);
    this.#chance = chance.fork('world');
    this.swarm = drawSwarm(chance, broken, forced);
    this.config = drawConfig(chance.fork('config'), this.swarm, broken);
    const { config, swarm, time } = this;
    this.#grainMs = config.grainMs;
    this.#accounting = new ScriptedAccounting(time, chance.fork('accounting'), swarm);
    this.checker = new Checker(() => time.nowMs, this.#accounting);
    const { checker } = this;
    this.#files = new SharedFiles(
      () => time.nowMs,
      () => swarm.strikes('fileTrouble'),
    );
    this.#controllers = [HOME_CLUSTER, SECOND_CLUSTER].slice(0, config.clusters).map(
      (cluster) =>
        new ScriptedController(
          {
            cluster,
            messageTimeoutMs: config.messageTimeoutMs,
            minJobAgeMs: config.minJobAgeMs,
            ids: config.ids,
            isTokenOurs: tokenOf,
          },
          {
            time,
            chance: chance.fork(cluster),
            swarm,
            files: this.#files,
            accounting: this.#accounting,
            witness: checker,
          },
          () => (this.#serial += 1),
        ),
    );
    const onError = (error: unknown): void => {
      checker.fail(
        `an error that nobody expected: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
      );
    };
    const clock = (): HostClock => {
      const made = new HostClock(time, () => this.#grainMs);
      this.#clocks.push(made);
      return made;
    };
    const logHost = (name: string, own: HostClock): LogHost => {
      const made = new LogHost(name, { time, clock: own, chance: chance.fork(`log ${name}`), swarm, checker, broken });
      this.#logs.push(made);
      return made;
    };
    const coordinatorClock = clock();
    this.#coordinator = new CoordinatorHost({
      time,
      clock: coordinatorClock,
      chance: chance.fork('coordinator'),
      swarm,
      log: logHost('coordinator', coordinatorClock),
      leaseTtlMs: config.leaseTtlMs,
      lossesMax: config.lossesMax,
      broken,
      onError,
    });
    const profiles = profilesOf(config);
    this.#workers = Array.from({ length: config.workers }, (_, index) => {
      const name = `worker-${String.fromCharCode(97 + index)}`;
      const own = clock();
      return new WorkerHost({
        name,
        time,
        clock: own,
        chance: chance.fork(name),
        swarm,
        checker,
        log: logHost(name, own),
        coordinator: this.#coordinator,
        profiles,
        config: config.worker,
        limits: config.limits,
        clusters: config.clusters > 1 ? [SECOND_CLUSTER] : [],
        jobNamePrefix: PREFIX,
        scheduler: {
          time,
          chance: chance.fork(`commands ${name}`),
          swarm,
          files: this.#files,
          accounting: this.#accounting,
          controller: (cluster) => this.#controllerOf(cluster),
          uid: UID,
          tokenOf,
        },
        broken,
        onError,
        ...(log === null ? {} : { log_: log }),
      });
    });
    const [first = 'small', ...others] = profiles.keys();
    this.#people = new People({
      time,
      chance: chance.fork('people'),
      swarm,
      coordinator: this.#coordinator,
      checker,
      profiles: [first, ...others],
      onError,
    });
  }

  get steps(): number {
    return this.#steps;
  }

  get logs(): readonly LogHost[] {
    return this.#logs;
  }

  get acceptedTasks(): number {
    return this.#people.accepted.length;
  }

  /** Lives through everything. Ends at the first broken promise, or when all is settled. */
  async run(): Promise<void> {
    const { config, time, checker } = this;
    void this.#coordinator.start();
    for (const worker of this.#workers) worker.start();
    for (let number = 1; number <= config.tasks; number += 1) {
      this.#people.plan(number, this.#chance.int(500, Math.floor(config.healAtMs * 0.7)));
    }
    this.#startFaults();
    if (this.swarm.has('idReuse')) this.#otherPeoplesJobs();
    time.after(config.healAtMs, () => this.#heal());
    time.after(LOOK_EVERY_MS, () => this.#look());
    while (!this.#isSettled && checker.violations.length === 0) {
      if (!time.step()) throw new Error('nothing ever happens again');
      await nextTurn();
      this.#steps += 1;
      this.#check();
      if (time.nowMs > config.healAtMs + SETTLED_WITHIN_MS) {
        checker.fail(`not settled in time: ${this.whatIsLeft().slice(0, 12).join('; ')}`);
      }
    }
  }

  #look(): void {
    const { config, time, checker } = this;
    checker.lookForStuck(this.#liveLogs());
    this.#isSettled = time.nowMs > config.healAtMs && this.whatIsLeft().length === 0;
    time.after(LOOK_EVERY_MS, () => this.#look());
  }

  #check(): void {
    this.checker.tick(this.#controllers.flatMap((controller) => controller.active()));
    for (const { running, parts } of this.#workers) {
      const [only] = running;
      const worker = only?.worker ?? null;
      if (worker === null || only?.sharedLog === true || !parts.log.isQuiet) continue;
      const kept = JSON.stringify(sorted(worker.status().jobs));
      const read = JSON.stringify(sorted(this.checker.phaseCounts(parts.log.name)));
      if (kept !== read) this.checker.fail(`${parts.name} has ${kept} in memory, its log says ${read} (INV-12)`);
    }
    for (const { coordinator } of this.#coordinator.running) {
      for (const [taskId, task] of coordinator.core.book.live) {
        const phase = this.checker.tasks.get(taskId)?.phases[task.version];
        if (phase !== task.snapshot.value) {
          this.checker.fail(
            `the coordinator has ${taskId} as ${task.snapshot.value}, its log says ${phase ?? 'nothing'} (INV-12)`,
          );
        }
      }
    }
  }

  /** What has to be over in the end and is not yet. */
  whatIsLeft(): readonly string[] {
    const left: string[] = [];
    if (!this.#people.isDone) left.push('people still wait for an answer');
    for (const [taskId, task] of this.checker.tasks) {
      if (task.ends !== 1)
        left.push(`${taskId} is ${task.phase}, epoch ${String(task.epoch)}, open ${[...task.open.keys()].join()}`);
    }
    for (const { coordinator } of this.#coordinator.running) {
      if (coordinator.core.leases.size > 0) left.push(`${String(coordinator.core.leases.size)} leases`);
    }
    if (this.#coordinator.running.length === 0) left.push('no coordinator');
    for (const worker of this.#workers) {
      if (worker.isGone) continue;
      const { log, name } = worker.parts;
      for (const job of this.checker.unsettled(log.name)) {
        left.push(
          `${name}: ${job.created.jobId} of ${job.created.taskId} is ${job.phase}, ${job.delivered ? '' : 'not '}delivered`,
        );
      }
      for (const directory of this.#files.list(worker.runsDir)) left.push(`${name}: the directory of ${directory}`);
    }
    for (const job of this.#controllers.flatMap((controller) => controller.active())) {
      // One that was submitted by hand after its job was over is nobody's; before that it is among the duplicates.
      if (job.token !== null && !job.isOutside && !this.#isAbandoned(job.token))
        left.push(`${place(job)} is ${job.state}`);
    }
    return left;
  }

  #isAbandoned(token: string): boolean {
    return [...this.checker.tasks.values()].some(
      (task) => task.isAbandoned && [...task.jobs.keys()].some((jobId) => this.checker.tokenOf(jobId) === token),
    );
  }

  #liveLogs(): readonly { readonly log: string; readonly sinceMs: number }[] {
    return this.#workers.flatMap(({ parts, running }) =>
      running.map(({ sinceMs }) => ({ log: parts.log.name, sinceMs })),
    );
  }

  #controllerOf(cluster: string | null): ScriptedController {
    const [home] = this.#controllers;
    const found = cluster === null ? home : this.#controllers.find((one) => one.settings.cluster === cluster);
    if (found === undefined) throw new Error(`there is no cluster ${cluster ?? 'at all'}`);
    return found;
  }

  /** Each lasting fault comes and goes by itself. */
  #lasting(fault: LastingFault, begin: () => (() => void) | null): void {
    if (!this.swarm.has(fault)) return;
    const { time, swarm } = this;
    const wait = (): void => {
      time.after(swarm.pauseMs(fault), () => {
        if (swarm.isHealed) return;
        const end = begin();
        if (end === null) {
          wait();
          return;
        }
        swarm.count(fault);
        const once = (): void => {
          if (!this.#running.delete(once)) return;
          end();
          wait();
        };
        this.#running.add(once);
        time.after(swarm.durationMs(fault), once);
      });
    };
    wait();
  }

  #startFaults(): void {
    const chance = this.#chance.fork('faults');
    const anyOf = <T>(items: readonly T[]): T | null => items[chance.int(0, Math.max(0, items.length - 1))] ?? null;
    const condition = (to: 'down' | 'frozen') => () => {
      const controller = anyOf(this.#controllers.filter((one) => one.condition === 'up'));
      if (controller === null) return null;
      controller.setCondition(to);
      return () => controller.setCondition('up');
    };
    this.#lasting('controllerDown', condition('down'));
    this.#lasting('controllerFrozen', condition('frozen'));
    this.#lasting('accountingDown', () => {
      this.#accounting.setCondition(chance.pick(['down', 'frozen']));
      return () => this.#accounting.setCondition('up');
    });
    this.#lasting('clockSteps', () => {
      anyOf(this.#clocks)?.step(chance.int(-180_000, 180_000));
      return () => undefined;
    });
    this.#lasting('coordinatorUnreachable', () => {
      const worker = anyOf(this.#workers);
      if (worker === null) return null;
      worker.isCutOff = true;
      return () => {
        worker.isCutOff = false;
      };
    });
    this.#lasting('workerStops', () => {
      anyOf(this.#workers)?.stop(chance.int(1_000, 40_000));
      return () => undefined;
    });
    this.#lasting('twoCoordinators', () => {
      if (this.#coordinator.running.length !== 1) return null;
      void this.#coordinator.start();
      return () => {
        this.#coordinator.endOld();
      };
    });
    this.#lasting('workerCrashTimed', () => {
      const worker = anyOf(this.#workers.filter((one) => one.running.length === 1));
      if (worker === null) return null;
      if (this.swarm.strikes('twoWriters')) {
        worker.start();
        return () => {
          worker.kill();
        };
      }
      const others = this.#workers.filter((one) => one !== worker && !one.isGone);
      if (others.length > 0 && this.swarm.strikes('workerGone')) worker.isGone = true;
      worker.kill();
      return () => undefined;
    });
  }

  /** Ids are used up, and used again, by jobs that are none of ours. */
  #otherPeoplesJobs(): void {
    const chance = this.#chance.fork('others');
    const land = (): void => {
      if (this.swarm.isHealed) return;
      for (const controller of this.#controllers) {
        if (controller.condition !== 'up' || controller.size > 40) continue;
        const uid = chance.pick([UID, OTHER_UID]);
        controller.land({
          uid,
          name: chance.pick(['train-x', 'oc-helper', 'oc-0123', '']),
          comment: '',
          directory: null,
          singleton: false,
          limitMs: 60_000,
          requeue: false,
          isOutside: false,
        });
      }
      this.time.after(chance.int(200, 4_000), land);
    };
    land();
  }

  #heal(): void {
    this.swarm.heal();
    this.#grainMs = CALM_GRAIN_MS;
    for (const end of [...this.#running]) end();
    for (const controller of this.#controllers) controller.releaseAll();
    for (const worker of this.#workers) {
      if (worker.running.some(({ sharedLog }) => sharedLog)) worker.kill();
    }
    this.checker.healedAtMs = this.time.nowMs;
  }
}

const sorted = (counts: Readonly<Record<string, number>>): readonly (readonly [string, number])[] =>
  Object.entries(counts).sort(([a], [b]) => (a < b ? -1 : 1));
