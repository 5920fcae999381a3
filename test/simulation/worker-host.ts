import type { Backend, Profile } from '../../src/backend.js';
import { StoreError } from '../../src/events/store.js';
import { createSlurmBackend, type Run } from '../../src/slurm/index.js';
import type { Principal } from '../../src/coordinator/principal.js';
import type { WorkerConfig } from '../../src/worker/context.js';
import { silentLog, type Log } from '../../src/runtime/log.js';
import { Worker } from '../../src/worker/worker.js';
import { watchedBackend, type Break } from './breaks.js';
import type { Chance } from './chance.js';
import type { Checker, Incarnation } from './checker.js';
import type { CoordinatorHost } from './coordinator-host.js';
import type { Swarm } from './faults.js';
import { HostProcesses } from './host-processes.js';
import { Life } from './life.js';
import type { LogHost } from './log-host.js';
import { scriptedRun, type CommandParts } from './scripted-commands.js';
import type { HostClock, VirtualTime } from './virtual-time.js';

export interface WorkerHostParts {
  readonly name: string;
  readonly time: VirtualTime;
  readonly clock: HostClock;
  readonly chance: Chance;
  readonly swarm: Swarm;
  readonly checker: Checker;
  readonly log: LogHost;
  readonly coordinator: CoordinatorHost;
  readonly profiles: ReadonlyMap<string, Profile>;
  readonly config: WorkerConfig;
  readonly limits: {
    readonly queryTimeLimitMs: number;
    readonly submitTimeLimitMs: number;
    readonly cancelTimeLimitMs: number;
  };
  readonly clusters: readonly string[];
  readonly jobNamePrefix: string;
  readonly scheduler: Omit<CommandParts, 'processes' | 'onCancel' | 'onSubmit' | 'onMistake'>;
  readonly broken: Break | null;
  readonly onError: (error: unknown) => void;
  readonly log_?: Log;
}

interface Running {
  readonly life: Life;
  readonly incarnation: Incarnation;
  worker: Worker | null;
  readonly sinceMs: number;
  /** Another process wrote to its log while it ran: its memory is old, and it can only be started again. */
  sharedLog: boolean;
}

/** A gateway host: a worker's log, its runs directory, its submitting processes; and the worker, while it runs. */
export class WorkerHost {
  readonly parts: WorkerHostParts;
  readonly runsDir: string;
  readonly #principal: Principal;
  readonly #processes: HostProcesses;
  #running: Running[] = [];
  #starts = 0;
  isCutOff = false;
  isGone = false;
  #restarting = false;

  constructor(parts: WorkerHostParts) {
    this.parts = parts;
    this.runsDir = `/shared/${parts.name}`;
    this.#principal = { id: `credential-${parts.name}`, name: parts.name, role: 'worker' };
    this.#processes = new HostProcesses(parts.time);
  }

  get running(): readonly Running[] {
    return this.#running;
  }

  start(): void {
    const { time, chance, swarm, clock, log, coordinator, config, profiles, scheduler } = this.parts;
    this.#starts += 1;
    const name = `${this.parts.name} #${String(this.#starts)}`;
    const life = new Life(() => {
      if (!swarm.strikes('workerCrash')) return 'goOn';
      return chance.chance(0.5) ? 'crashBefore' : 'crashAfter';
    });
    const incarnation: Incarnation = { log: log.name, name, isBlind: false };
    const running: Running = { life, incarnation, worker: null, sinceMs: time.nowMs, sharedLog: false };
    this.#running.push(running);
    if (this.#running.length > 1) for (const one of this.#running) one.sharedLog = true;
    life.onDeath(() => {
      this.#running = this.#running.filter((one) => one !== running);
      this.#startAgain(chance.int(1, 30_000));
    });
    const deps = {
      name: this.parts.name,
      backend: this.#backend(life, incarnation),
      coordinator: coordinator.portFor(life, this.#principal, () => this.isCutOff),
      store: log.openFor(life, incarnation),
      sessions: null,
      directories: gatedDirectories(life, scheduler.files.directoriesOf(this.runsDir), this.parts.broken),
      profiles,
      clock: life.clock(clock),
      random: chance.fork(name),
      log: this.parts.log_ ?? silentLog,
      config,
    };
    void this.#run(running, deps);
  }

  async #run(running: Running, deps: Parameters<typeof Worker.start>[0]): Promise<void> {
    const { life } = running;
    try {
      running.worker = await Worker.start(deps, life.stopping);
      await running.worker?.run(life.stopping);
      life.kill();
    } catch (error) {
      // A log that can not be written at the start: the service manager starts it again.
      if (error instanceof StoreError) life.kill();
      else this.parts.onError(error);
    }
  }

  /** SIGTERM; SIGKILL if it takes too long. */
  stop(killAfterMs: number): void {
    for (const { life } of this.#running) {
      life.stop();
      this.parts.time.after(killAfterMs, () => {
        life.kill();
      });
    }
  }

  kill(): void {
    for (const { life } of this.#running) life.kill();
  }

  #startAgain(ms: number): void {
    if (this.isGone || this.#restarting) return;
    this.#restarting = true;
    this.parts.time.after(ms, () => {
      this.#restarting = false;
      if (this.#running.length === 0 && !this.isGone) this.start();
    });
  }

  #backend(life: Life, incarnation: Incarnation): Backend {
    const { scheduler, clock, limits, clusters, jobNamePrefix, broken, checker, onError } = this.parts;
    let answered = 0;
    // When each queue that answered the newest poll was asked, and as the worker knew it when it sent its newest cancel.
    const answeredNow = new Map<string, number>();
    let polled: ReadonlyMap<string, number> = new Map();
    let knownAtCancel = polled;
    const run = scriptedRun({
      ...scheduler,
      processes: this.#processes,
      onSubmit: (token) => {
        checker.submitStarted(incarnation, token);
      },
      onCancel: (job) => {
        checker.cancelHits(incarnation, job, (knownAtCancel.get(job.cluster) ?? Infinity) > job.visibleAtMs);
      },
      onMistake: onError,
    });
    const counted: Run = (call) =>
      life.call(call.command, async () => {
        const askedAtMs = this.parts.time.nowMs;
        // Accounting is asked when every queue has answered or not: from here on that is what the worker goes by.
        if (call.command === 'sacct') polled = new Map(answeredNow);
        const ending = await run(call);
        const isAnswer = ending.kind === 'exited' && ending.exitCode === 0 && ending.stderr === '';
        if (isAnswer && (call.command === 'squeue' || call.command === 'sacct')) answered += 1;
        // The self-test's question has a header, and nobody looks at its rows.
        if (isAnswer && call.command === 'squeue' && call.argv.includes('--noheader')) {
          const cluster = call.argv.find((word) => word.startsWith('--clusters='))?.slice('--clusters='.length);
          answeredNow.set(cluster ?? scheduler.controller(null).settings.cluster, askedAtMs);
        }
        return ending;
      });
    const backend = createSlurmBackend({
      jobNamePrefix,
      clusterName: null,
      clusters,
      binariesDir: null,
      path: '/usr/bin',
      slurmConf: null,
      user: { name: 'science', uid: scheduler.uid, home: '/home/science' },
      clock: life.clock(clock),
      limits,
      run: counted,
      host: {
        readText: (path) => life.call('readText', () => scheduler.files.readText(path)),
        writeScript: (path) => life.call('writeScript', () => scheduler.files.writeScript(path)),
        endAttempt: (token) => life.call('endAttempt', () => this.#processes.endAttempt(token)),
      },
    });
    return watchedBackend(backend, broken, {
      observe: async (ask) => {
        const before = answered;
        answeredNow.clear();
        const observations = await ask();
        incarnation.isBlind = answered === before;
        polled = new Map(answeredNow);
        return observations;
      },
      cancelling: () => {
        knownAtCancel = polled;
      },
    });
  }
}

/** A dead process reads and writes no file. */
function gatedDirectories(
  life: Life,
  files: Parameters<typeof Worker.start>[0]['directories'],
  broken: Break | null,
): typeof files {
  return {
    path: (jobId) => files.path(jobId),
    prepare: (jobId, content) => life.call('prepare', () => files.prepare(jobId, content)),
    collect: (jobId, limitBytes) => life.call('collect', () => files.collect(jobId, limitBytes)),
    endMarker: (jobId) => life.call('endMarker', () => files.endMarker(jobId)),
    claim: (jobId) =>
      broken === 'lookup' ? Promise.resolve({ kind: 'none' }) : life.call('claim', () => files.claim(jobId)),
    tails: (jobId, limitBytes) => life.call('tails', () => files.tails(jobId, limitBytes)),
    remove: (jobId) => life.call('remove', () => files.remove(jobId)),
    takeWakes: () => life.call('takeWakes', () => files.takeWakes()),
  };
}
