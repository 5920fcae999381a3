import type { Backend, Profile } from '../../src/backend.js';
import { phaseOf } from '../../src/machines/job-aggregate.js';
import type { JobEvent } from '../../src/machines/job-events.js';
import { systemClock, type Clock } from '../../src/runtime/clock.js';
import { endAttempt } from '../../src/slurm/attempt.js';
import { createSlurmBackend } from '../../src/slurm/backend.js';
import type { Call, Command, Ending, Run } from '../../src/slurm/broker.js';
import type { Limits } from '../../src/slurm/config.js';
import type { WorkerConfig, WorkerDeps } from '../../src/worker/context.js';
import { grant } from './fake-coordinator.js';
import { taskId } from './ids.js';
import { flush, ManualClock } from './manual-clock.js';
import {
  ACCOUNT_HEADER_TEXT,
  accountText,
  CONFIG_TEXT,
  QUEUE_HEADER_TEXT,
  queueText,
  type AccountFields,
  type QueueFields,
} from './scheduler-rows.js';
import { WorkerWorld } from './worker-world.js';

export const exited = (stdout: string, stderr = '', exitCode = 0): Ending => ({
  kind: 'exited',
  exitCode,
  stdout,
  stderr,
  truncated: false,
});

const wordOf = (call: Call, option: string): string =>
  call.argv.find((word) => word.startsWith(`${option}=`))?.slice(option.length + 1) ?? '';

/** Wall time of the world, but real time for the limits of real processes. */
export const processClock = (world: ManualClock): Clock => ({
  nowMs: () => world.nowMs(),
  monotonicMs: () => systemClock.monotonicMs(),
  sleep: (ms, signal) => systemClock.sleep(ms, signal),
});

let worlds = 0;

/** The production worker and the production backend, over whatever stands in for the scheduler's commands. */
export class SlurmWorld extends WorkerWorld {
  /** No other test's, for processes are looked for by the names of jobs. */
  readonly prefix = `oc${String(process.pid)}w${String((worlds += 1))}`;
  readonly slurm: Backend;
  readonly calls: Call[] = [];
  readonly #running = new Set<Promise<Ending>>();

  constructor(
    makeRun: (clock: Clock) => Run,
    options: { readonly config?: Partial<WorkerConfig>; readonly limits?: Partial<Limits> } = {},
  ) {
    super(options.config);
    const clock = processClock(this.clock);
    const run = makeRun(clock);
    this.slurm = createSlurmBackend({
      jobNamePrefix: this.prefix,
      clusterName: null,
      clusters: [],
      binariesDir: null,
      path: '',
      slurmConf: null,
      user: { name: 'science', uid: 1001, home: '/' },
      clock,
      ...(options.limits === undefined ? {} : { limits: options.limits }),
      run: (call) => {
        this.calls.push(call);
        const ending = run(call);
        this.#running.add(ending);
        void ending.then(() => this.#running.delete(ending));
        return ending;
      },
      host: {
        readText: () => Promise.resolve('#!/bin/sh\ntrue\n'),
        writeScript: () => Promise.resolve(),
        endAttempt: (token) => endAttempt(token, this.prefix, clock),
      },
    });
  }

  override deps(): WorkerDeps {
    return { ...super.deps(), backend: this.slurm };
  }

  /** Processes take no time of the world: it waits for those that run. */
  override async round(stepMs?: number): Promise<void> {
    await super.round(stepMs);
    while (this.#running.size > 0) {
      await Promise.all(this.#running);
      for (let turn = 0; turn < 20; turn += 1) await flush();
    }
  }

  /** A started worker with so many tasks to take. */
  async offered(count = 1, over: Partial<Profile> = {}): Promise<this> {
    const smoke = this.profiles.get('smoke');
    if (smoke !== undefined) this.profiles.set('smoke', { ...smoke, ...over });
    await this.start();
    for (let n = 1; n <= count; n += 1) this.coordinator.grants.push(grant({ taskId: taskId(n) }));
    return this;
  }

  /** People want the first so many tasks to end. */
  wishCancel(count = 1): void {
    const cancel = Array.from({ length: count }, (_, n) => ({ taskId: taskId(n + 1), by: 'alice', asAdmin: false }));
    this.coordinator.wishes = { lost: [], cancel, abandon: [], wantLogs: [] };
  }

  /** Runs until every job is in one of these phases. */
  untilPhase(...phases: readonly string[]): Promise<void> {
    return this.until((jobs) => jobs.length > 0 && jobs.every((job) => phases.includes(phaseOf(job))), 900_000);
  }

  /** Runs until every job's outcome is with the coordinator. */
  untilDelivered(): Promise<void> {
    return this.until((jobs) => jobs.length > 0 && jobs.every((job) => job.aftermath.delivered), 900_000);
  }

  /** Runs until a command has been called so many times more. */
  async untilAskedAgain(command: Command, times: number, stepMs?: number): Promise<void> {
    const target = this.asked(command).length + times;
    for (let rounds = 0; this.asked(command).length < target; rounds += 1) {
      if (rounds > 5_000) throw new Error(`${command} was not called ${String(times)} times more`);
      await this.round(stepMs);
    }
  }

  /** The events of one kind in the whole log, in order. */
  async events<T extends JobEvent['type']>(type: T): Promise<readonly Extract<JobEvent, { type: T }>[]> {
    const isOf = (event: { readonly type: string }): event is Extract<JobEvent, { type: T }> => event.type === type;
    return (await this.recorded()).flatMap(({ event }) => (isOf(event) ? [event] : []));
  }

  /** Calls of a command, without the self-test's. */
  asked(command: Command): readonly Call[] {
    return this.calls.filter((call) => call.command === command && !isSelfTest(call));
  }
}

/** What a call meets; null: the scheduler answers by itself. */
export type Intervention = (call: Call) => Ending | null;

/** Larger than any id of a job: the self-test's. */
const IMPOSSIBLE_ID = '99999999';

function isSelfTest({ command, argv }: Call): boolean {
  if (command === 'scontrol' || argv.includes('--version') || argv.includes(IMPOSSIBLE_ID)) return true;
  return (command === 'squeue' || command === 'sacct') && !argv.includes('--noheader');
}

/**
 * A small scheduler in memory: submissions land with ids from 101 on, the queue shows `jobs`, accounting what the test
 * puts into `accounted`, and whatever is put into `meet` answers first.
 */
export class ScriptedSlurm {
  readonly world: SlurmWorld;
  jobs: QueueFields[] = [];
  /** Rows by job name. */
  accounted: AccountFields[] = [];
  config = CONFIG_TEXT;
  obeysCancel = true;
  readonly meet: Partial<Record<Command, Intervention>> = {};
  #nextId = 101;

  constructor(options: ConstructorParameters<typeof SlurmWorld>[1] = {}) {
    this.world = new SlurmWorld(() => (call) => Promise.resolve(this.#answer(call)), options);
  }

  /** Every job in the queue is changed in this way. */
  set(change: Partial<QueueFields>): void {
    this.jobs = this.jobs.map((job) => ({ ...job, ...change }));
  }

  /** The queue forgets every job; accounting gets rows like this for them. */
  leave(rows: readonly (Partial<AccountFields> & Pick<AccountFields, 'state'>)[]): void {
    this.accounted = this.jobs.flatMap(({ id, name, submittedAtMs }) =>
      rows.map((row) => ({ id, name, submittedAtMs, ...row })),
    );
    this.jobs = [];
  }

  /** Puts the submission of this call into the queue. */
  land(call: Call, over: Partial<QueueFields> = {}): QueueFields {
    const job = {
      id: String(this.#nextId),
      state: 'PENDING',
      submittedAtMs: this.world.clock.nowMs(),
      reason: 'Priority',
      name: wordOf(call, '--job-name'),
      ...over,
    };
    this.#nextId += 1;
    this.jobs.push(job);
    return job;
  }

  #answer(call: Call): Ending {
    const met = isSelfTest(call) ? null : (this.meet[call.command]?.(call) ?? null);
    return met ?? this.#byItself(call);
  }

  #byItself(call: Call): Ending {
    switch (call.command) {
      case 'sbatch':
        return exited(call.argv.includes('--version') ? 'slurm 24.11.5\n' : `${this.land(call).id}\n`);
      case 'srun':
        return exited('slurm 24.11.5\n');
      case 'scontrol':
        return exited(this.config);
      case 'squeue':
        return exited((call.argv.includes('--noheader') ? '' : QUEUE_HEADER_TEXT) + queueText(this.jobs));
      case 'sacct':
        return exited((call.argv.includes('--noheader') ? '' : ACCOUNT_HEADER_TEXT) + accountText(this.#asked(call)));
      case 'scancel':
        if (this.obeysCancel) {
          this.jobs = this.jobs.map((job) => (call.argv.includes(job.id) ? { ...job, state: 'CANCELLED' } : job));
        }
        return exited('');
    }
  }

  /** The rows that a question is about, by id or by name. */
  #asked(call: Call): readonly AccountFields[] {
    const ids = wordOf(call, '--jobs').split(',');
    const names = wordOf(call, '--name').split(',');
    return this.accounted.filter(({ id, name }) => ids.includes(id) || names.includes(name));
  }
}
