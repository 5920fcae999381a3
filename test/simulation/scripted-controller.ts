import type { Chance } from './chance.js';
import type { Swarm } from './faults.js';
import type { Condition, ScriptedAccounting } from './scripted-accounting.js';
import { isActive, isOver, type JobState, type ScriptedJob, type Submission } from './scripted-job.js';
import type { SharedFiles } from './shared-files.js';
import type { VirtualTime } from './virtual-time.js';

export interface ControllerSettings {
  readonly cluster: string;
  readonly messageTimeoutMs: number;
  readonly minJobAgeMs: number;
  /** Ids run from the first to the last and then from the first again. */
  readonly ids: { readonly first: number; readonly last: number };
  readonly isTokenOurs: (name: string) => string | null;
}

/** What the world wants to know about jobs as it happens. */
export interface JobWitness {
  landed(job: ScriptedJob): void;
  workBegan(job: ScriptedJob): void;
}

export interface ControllerParts {
  readonly time: VirtualTime;
  readonly chance: Chance;
  readonly swarm: Swarm;
  readonly files: SharedFiles;
  readonly accounting: ScriptedAccounting;
  readonly witness: JobWitness;
}

/** How a request went, as its client sees it. `timedOut`: it may be taken yet. */
export type Reached<T> =
  { readonly kind: 'answered'; readonly value: T } | { readonly kind: 'noConnection' | 'timedOut' };

/** A controller that thaws takes what it was sent within this time, ms. */
const THAW_MAX_MS = 4_000;
const QUEUE_LAG_MAX_MS = 8_000;
const KILL_WAIT_MAX_MS = 2_000;
const SINGLETON_LOOK_MS = 2_000;

interface Queued {
  readonly take: () => void;
}

/** One cluster's controller: a job table, and what becomes of the jobs in it. */
export class ScriptedController {
  condition: Condition = 'up';
  readonly settings: ControllerSettings;
  readonly #parts: ControllerParts;
  readonly #table = new Map<number, ScriptedJob>();
  /** Every job that ever landed here. */
  readonly history: ScriptedJob[] = [];
  readonly #held = new Set<ScriptedJob>();
  #queued: Queued[] = [];
  #whenUp: (() => void)[] = [];
  #nextId: number;
  readonly #nextSerial: () => number;

  constructor(settings: ControllerSettings, parts: ControllerParts, nextSerial: () => number) {
    this.settings = settings;
    this.#parts = parts;
    this.#nextSerial = nextSerial;
    this.#nextId = settings.ids.first;
  }

  setCondition(condition: Condition): void {
    const { time, chance } = this.#parts;
    this.condition = condition;
    // A controller that dies forgets what it had not taken.
    if (condition === 'down') this.#queued = [];
    if (condition !== 'up') return;
    for (const { take } of this.#queued.splice(0)) time.after(chance.int(0, THAW_MAX_MS), () => this.#whenever(take));
    for (const run of this.#whenUp.splice(0)) run();
  }

  /** A request over the network; `effect` happens when the controller takes it, whether or not somebody still waits. */
  async reach<T>(effect: () => T): Promise<Reached<T>> {
    const { time, chance } = this.#parts;
    await time.wait(chance.int(2, 150));
    if (this.condition === 'down') {
      await time.wait(this.settings.messageTimeoutMs * 0.9);
      return { kind: 'noConnection' };
    }
    if (this.condition === 'up') return { kind: 'answered', value: effect() };
    return new Promise((resolve) => {
      this.#queued.push({
        take: () => {
          resolve({ kind: 'answered', value: effect() });
        },
      });
      time.after(this.settings.messageTimeoutMs, () => {
        resolve({ kind: 'timedOut' });
      });
    });
  }

  /** A request whose client has gone: it arrives, or the connection is refused. */
  arrive(effect: () => void): void {
    if (this.condition === 'up') effect();
    else if (this.condition === 'frozen') this.#queued.push({ take: effect });
  }

  land(submission: Submission): ScriptedJob {
    const { time, chance, swarm, accounting, witness } = this.#parts;
    const held = swarm.strikes('held');
    const never = !held && swarm.strikes('neverStarts');
    const blocked = submission.singleton && this.#hasOlder(submission, Number.POSITIVE_INFINITY);
    const job: ScriptedJob = {
      ...submission,
      serial: this.#nextSerial(),
      cluster: this.settings.cluster,
      id: this.#takeId(),
      token: this.settings.isTokenOurs(submission.name),
      landedAtMs: time.nowMs,
      visibleAtMs: time.nowMs + (swarm.strikes('queueLag') ? chance.int(0, QUEUE_LAG_MAX_MS) : 0),
      submittedAtMs: time.nowMs,
      startedAtMs: null,
      endedAtMs: null,
      state: 'PENDING',
      reason: held ? 'JobHeldAdmin' : never ? 'PartitionTimeLimit' : chance.pick(['None', 'Priority', 'Resources']),
      exit: '0:0',
      endState: null,
      wasEligible: !held && !blocked,
      requeues: 0,
      isWorking: false,
      worked: false,
      result: null,
      isPurged: false,
    };
    this.#table.set(job.id, job);
    this.history.push(job);
    witness.landed(job);
    accounting.submitted(job);
    if (held) this.#held.add(job);
    else if (!never) this.#startAfter(job, chance.int(0, chance.chance(0.7) ? 3_000 : 25_000));
    if (job.token !== null && !job.isOutside && swarm.strikes('outsideDuplicate')) {
      const again = { ...submission, isOutside: true, singleton: chance.chance(0.5) };
      time.after(chance.int(0, 20_000), () => this.#whenever(() => void this.land(again)));
    }
    if (swarm.strikes('outsideCancel'))
      time.after(chance.int(0, 40_000), () => this.#whenever(() => void this.cancel(job.id, job.uid, job)));
    return job;
  }

  /** What scancel is told. `only`: this very job, not whoever has its id by now. */
  cancel(id: number, uid: number, only?: ScriptedJob): 'asked' | 'nothingThere' | 'denied' {
    const { time, chance } = this.#parts;
    const job = this.#table.get(id);
    if (job === undefined || isOver(job) || job.state === 'COMPLETING' || (only !== undefined && only !== job))
      return 'nothingThere';
    if (job.uid !== uid) return 'denied';
    if (job.state === 'PENDING') {
      this.#end(job, 'CANCELLED', '0:0');
      return 'asked';
    }
    const run = job.requeues;
    time.after(chance.int(0, KILL_WAIT_MAX_MS), () => {
      if (job.requeues !== run || job.state !== 'RUNNING') return;
      this.#stopScript(job, 15);
      this.#whenever(() => this.#complete(job, run, 'CANCELLED', '0:15'));
    });
    return 'asked';
  }

  /** An administrator releases everything that is held. */
  releaseAll(): void {
    for (const job of this.#held) {
      job.reason = 'None';
      job.wasEligible = true;
      this.#startAfter(job, 1_000);
    }
    this.#held.clear();
  }

  /** What squeue shows of one user's jobs, in any state. */
  visible(uid: number): readonly ScriptedJob[] {
    return [...this.#table.values()].filter((job) => job.uid === uid && job.visibleAtMs <= this.#parts.time.nowMs);
  }

  /** Jobs in the table. */
  get size(): number {
    return this.#table.size;
  }

  /** The job that has this id now and is not over; null if there is none. */
  find(id: number): ScriptedJob | null {
    const job = this.#table.get(id);
    return job === undefined || isOver(job) ? null : job;
  }

  #takeId(): number {
    const { first, last } = this.settings.ids;
    while (this.#table.has(this.#nextId)) this.#nextId = this.#nextId >= last ? first : this.#nextId + 1;
    const id = this.#nextId;
    this.#nextId = id >= last ? first : id + 1;
    return id;
  }

  #whenever(run: () => void): void {
    if (this.condition === 'up') run();
    else this.#whenUp.push(run);
  }

  #startAfter(job: ScriptedJob, ms: number): void {
    this.#parts.time.after(ms, () => this.#whenever(() => this.#tryStart(job)));
  }

  #hasOlder({ name, uid }: Submission, serial: number): boolean {
    return [...this.#table.values()].some(
      (other) => other.name === name && other.uid === uid && other.serial < serial && !isOver(other),
    );
  }

  #tryStart(job: ScriptedJob): void {
    const { time, chance, accounting } = this.#parts;
    if (job.state !== 'PENDING') return;
    if (job.singleton && this.#hasOlder(job, job.serial)) {
      job.reason = 'Dependency';
      this.#startAfter(job, SINGLETON_LOOK_MS);
      return;
    }
    job.state = 'RUNNING';
    job.reason = 'None';
    job.wasEligible = true;
    job.startedAtMs = time.nowMs;
    accounting.started(job);
    const run = job.requeues;
    time.after(chance.int(1, 200), () => {
      if (job.state === 'RUNNING' && job.requeues === run) this.#runScript(job, run);
    });
  }

  /** What the compute node does. It goes on whether or not the controller is there. */
  #runScript(job: ScriptedJob, run: number): void {
    const { time, chance, swarm, files, witness } = this.#parts;
    if (job.directory !== null) {
      const start = files.startScript(job.directory, String(job.id));
      if (start !== 'goesOn') {
        const exit = start === 'claimTaken' ? '122:0' : '121:0';
        time.after(100, () => this.#whenever(() => this.#complete(job, run, 'FAILED', exit)));
        return;
      }
    }
    job.isWorking = true;
    job.worked = true;
    job.result = null;
    witness.workBegan(job);
    const wantedMs = chance.chance(0.8) ? chance.int(200, 20_000) : chance.int(20_000, 150_000);
    if (swarm.strikes('nodeFailure')) {
      time.after(chance.int(0, wantedMs), () => {
        if (job.requeues !== run || job.state !== 'RUNNING') return;
        job.isWorking = false;
        this.#whenever(() => this.#takeAway(job, run, 'NODE_FAIL'));
      });
    } else if (swarm.strikes('requeue')) {
      time.after(chance.int(0, wantedMs), () => this.#whenever(() => this.#takeAway(job, run, 'PREEMPTED')));
    }
    const isTooLong = wantedMs > job.limitMs;
    time.after(Math.min(wantedMs, job.limitMs), () => {
      if (job.requeues !== run || job.state !== 'RUNNING' || !job.isWorking) return;
      if (isTooLong) {
        this.#stopScript(job, 15);
        this.#whenever(() => this.#complete(job, run, 'TIMEOUT', '0:15'));
      } else {
        this.#endScript(job, run);
      }
    });
  }

  #stopScript(job: ScriptedJob, signal: number): void {
    if (job.isWorking && job.directory !== null && this.#parts.chance.chance(0.7)) {
      this.#parts.files.endScript(job.directory, { stage: 'profile', exitCode: null, signal });
    }
    job.isWorking = false;
  }

  #endScript(job: ScriptedJob, run: number): void {
    const { chance, swarm, files } = this.#parts;
    const bad = swarm.strikes('badExits') ? chance.pick(['exit', 'signal', 'memory', 'bootstrap']) : null;
    job.isWorking = false;
    if (bad === null && job.directory !== null) this.#writeResult(job, job.directory);
    const exitCode = bad === 'exit' ? chance.int(1, 120) : bad === 'bootstrap' ? 121 : 0;
    const signal = bad === 'signal' ? 11 : bad === 'memory' ? 9 : null;
    if (job.directory !== null) {
      const marker = {
        stage: bad === 'bootstrap' ? 'bootstrap' : 'profile',
        exitCode: signal === null ? exitCode : null,
        signal,
      } as const;
      files.endScript(job.directory, marker);
    }
    const state = bad === null ? 'COMPLETED' : bad === 'memory' ? 'OUT_OF_MEMORY' : 'FAILED';
    const exit = bad === 'memory' ? '0:125' : `${String(exitCode)}:${String(signal ?? 0)}`;
    this.#whenever(() => this.#complete(job, run, state, exit));
  }

  #writeResult(job: ScriptedJob, directory: string): void {
    const { chance, swarm, files } = this.#parts;
    const value = { serial: job.serial, run: job.requeues, token: job.token };
    if (swarm.strikes('badResults')) {
      if (chance.chance(0.5)) files.writeResult(directory, '{"half":', 0);
      return;
    }
    job.result = value;
    files.writeResult(directory, JSON.stringify(value), swarm.strikes('lateResults') ? chance.int(0, 8_000) : 0);
  }

  /** A node or its time was taken away: the same id waits again, or it is over. */
  #takeAway(job: ScriptedJob, run: number, state: 'NODE_FAIL' | 'PREEMPTED'): void {
    const { time, chance, accounting } = this.#parts;
    if (job.requeues !== run || job.state !== 'RUNNING') return;
    job.isWorking = false;
    if (!job.requeue) {
      this.#end(job, state, '0:0');
      return;
    }
    accounting.ended(job, chance.pick([state, 'REQUEUED']), '0:0');
    job.state = 'PENDING';
    job.reason = 'BeginTime';
    job.submittedAtMs = time.nowMs;
    job.startedAtMs = null;
    job.requeues += 1;
    accounting.submitted(job);
    this.#startAfter(job, chance.int(2_000, 30_000));
  }

  /** The allocation is cleaned up; then it is over. */
  #complete(job: ScriptedJob, run: number, state: JobState, exit: string): void {
    const { time, chance, swarm, accounting } = this.#parts;
    if (job.requeues !== run || job.state !== 'RUNNING') return;
    job.isWorking = false;
    job.exit = exit;
    job.state = 'COMPLETING';
    job.endState = state;
    accounting.ended(job, state, exit);
    const ms = swarm.strikes('slowEnding') ? chance.int(1_000, 60_000) : chance.int(0, 300);
    time.after(ms, () => this.#whenever(() => this.#leave(job, state)));
  }

  /** Over at once, without having run (again). */
  #end(job: ScriptedJob, state: JobState, exit: string): void {
    job.exit = exit;
    this.#parts.accounting.ended(job, state, exit);
    this.#leave(job, state);
  }

  #leave(job: ScriptedJob, state: JobState): void {
    const { time } = this.#parts;
    job.state = state;
    job.reason = state === 'FAILED' ? 'NonZeroExitCode' : 'None';
    job.endedAtMs = time.nowMs;
    this.#held.delete(job);
    time.after(this.settings.minJobAgeMs, () =>
      this.#whenever(() => {
        job.isPurged = true;
        this.#table.delete(job.id);
      }),
    );
  }

  /** Jobs that may still do something. */
  active(): readonly ScriptedJob[] {
    return [...this.#table.values()].filter(isActive);
  }
}
