import type { Chance } from './chance.js';
import type { Swarm } from './faults.js';
import type { ScriptedJob } from './scripted-job.js';
import type { VirtualTime } from './virtual-time.js';

/** One run of one job in the accounts. Times: ms of the world. */
export interface AccountingEntry {
  readonly cluster: string;
  readonly id: number;
  readonly uid: number;
  readonly name: string;
  comment: string;
  state: string;
  exit: string;
  readonly submittedAtMs: number;
  startedAtMs: number | null;
  endedAtMs: number | null;
  readonly limitMs: number;
  /** A question by name does not find jobs that never became eligible. */
  wasEligible: boolean;
  readonly halfMadeUntilMs: number;
}

export type AccountingQuestion = { readonly cluster: string; readonly uid: number } & (
  | { readonly ids: ReadonlySet<string> }
  /** `isWhole`: also those that never became eligible. */
  | { readonly names: ReadonlySet<string>; readonly isWhole: boolean }
);

type Change = (entry: AccountingEntry) => void;

export type Condition = 'up' | 'down' | 'frozen';

/** Longest time between a change at a controller that can reach the accounts, and the change in the accounts, ms. */
const LAG_MAX_MS = 15_000;
const HALF_MADE_MAX_MS = 5_000;

/**
 * What the accounts know, which is not what the controller knows: changes arrive late, are kept by the controller while
 * the accounts are away, and an end may never arrive.
 */
export class ScriptedAccounting {
  condition: Condition = 'up';
  readonly #time: VirtualTime;
  readonly #chance: Chance;
  readonly #swarm: Swarm;
  readonly #entries = new Map<string, AccountingEntry>();
  readonly #settledAtMs = new Map<string, number>();
  #waiting: (() => void)[] = [];

  constructor(time: VirtualTime, chance: Chance, swarm: Swarm) {
    this.#time = time;
    this.#chance = chance;
    this.#swarm = swarm;
  }

  setCondition(condition: Condition): void {
    this.condition = condition;
    if (condition !== 'up') return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const deliver of waiting) deliver();
  }

  submitted(job: ScriptedJob): void {
    const half = this.#swarm.strikes('halfMadeRows') ? this.#chance.int(1, HALF_MADE_MAX_MS) : 0;
    const { cluster, id, uid, name, submittedAtMs, limitMs } = job;
    this.#deliver(job, (key) => {
      this.#entries.set(key, {
        cluster,
        id,
        uid,
        name,
        comment: '',
        state: 'PENDING',
        exit: '0:0',
        submittedAtMs,
        startedAtMs: null,
        endedAtMs: null,
        limitMs,
        wasEligible: job.wasEligible,
        halfMadeUntilMs: this.#time.nowMs + half,
      });
    });
  }

  started(job: ScriptedJob): void {
    const { startedAtMs } = job;
    this.#change(job, (entry) => {
      entry.state = 'RUNNING';
      entry.startedAtMs = startedAtMs;
      entry.wasEligible = true;
    });
  }

  /** The end of a run. One that a fault swallows leaves its row running for ever. */
  ended(job: ScriptedJob, state: string, exit: string): void {
    if (job.startedAtMs !== null && this.#swarm.strikes('runawayRows')) return;
    const { comment, wasEligible } = job;
    const endedAtMs = this.#time.nowMs;
    this.#change(job, (entry) => {
      entry.state = state === 'CANCELLED' ? `CANCELLED by ${String(job.uid)}` : state;
      entry.exit = exit;
      entry.endedAtMs = endedAtMs;
      entry.comment = comment;
      entry.wasEligible = wasEligible;
    });
  }

  /** The rows of a question, whatever they say. */
  find(question: AccountingQuestion): readonly AccountingEntry[] {
    return [...this.#entries.values()].filter((entry) => {
      if (entry.cluster !== question.cluster || entry.uid !== question.uid) return false;
      if ('ids' in question) return question.ids.has(String(entry.id));
      return (question.isWhole || entry.wasEligible) && !this.isHalfMade(entry) && question.names.has(entry.name);
    });
  }

  isHalfMade(entry: AccountingEntry): boolean {
    return entry.endedAtMs === null && entry.halfMadeUntilMs > this.#time.nowMs;
  }

  /** Whether the accounts hold any row of this job, by its name. */
  knowsName(name: string): boolean {
    return [...this.#entries.values()].some((entry) => entry.name === name && !this.isHalfMade(entry));
  }

  #change(job: ScriptedJob, change: Change): void {
    this.#deliver(job, (key) => {
      const entry = this.#entries.get(key);
      if (entry !== undefined) change(entry);
    });
  }

  /** Changes of one run arrive in their order. */
  #deliver(job: ScriptedJob, apply: (key: string) => void): void {
    const key = `${String(job.serial)}/${String(job.requeues)}`;
    const send = (): void => {
      const lagMs = this.#swarm.strikes('accountingLag') ? this.#chance.int(0, LAG_MAX_MS) : this.#chance.int(50, 900);
      const atMs = Math.max(this.#time.nowMs + lagMs, this.#settledAtMs.get(key) ?? 0);
      this.#settledAtMs.set(key, atMs);
      this.#time.after(atMs - this.#time.nowMs, () => {
        apply(key);
      });
    };
    if (this.condition === 'up') send();
    else this.#waiting.push(send);
  }
}
