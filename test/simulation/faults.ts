import type { Chance } from './chance.js';

/**
 * Everything that may go wrong. Each seed switches some kinds off (a swarm): a world in which everything fails at once
 * hides what fails alone. `chance`: of one occasion; `everyMs`, `forMs`: for faults that last, the mean pause and the
 * longest duration.
 */
export const FAULTS = {
  // sbatch
  answerLostAfterLanding: { chance: 0.15 },
  answerLostBeforeLanding: { chance: 0.1 },
  /** The request reaches the controller after its client has ended. */
  landsLate: { chance: 0.15 },
  /** Neither an answer nor an end: the backend's own time limit has to end it. */
  submitHangs: { chance: 0.08 },
  /** … and it survives being killed for a while. */
  submitUnkillable: { chance: 0.3 },
  submitKilled: { chance: 0.06 },
  partialAnswer: { chance: 0.1 },
  unknownRefusal: { chance: 0.05 },
  submitLimit: { chance: 0.08 },
  // the controller and what it shows
  queueLag: { chance: 0.4 },
  controllerDown: { everyMs: 90_000, forMs: 45_000 },
  controllerFrozen: { everyMs: 90_000, forMs: 40_000 },
  shortMemory: { chance: 1 },
  idReuse: { chance: 1 },
  requeue: { chance: 0.12 },
  nodeFailure: { chance: 0.08 },
  outsideDuplicate: { chance: 0.03 },
  outsideCancel: { chance: 0.08 },
  held: { chance: 0.1 },
  neverStarts: { chance: 0.05 },
  slowEnding: { chance: 0.2 },
  queryFails: { chance: 0.05 },
  cancelLost: { chance: 0.2 },
  // accounting
  accountingLag: { chance: 0.6 },
  accountingDown: { everyMs: 80_000, forMs: 60_000 },
  halfMadeRows: { chance: 0.4 },
  runawayRows: { chance: 0.06 },
  // jobs
  badExits: { chance: 0.25 },
  badResults: { chance: 0.1 },
  lateResults: { chance: 0.2 },
  // hosts
  fileTrouble: { chance: 0.03 },
  diskFull: { chance: 0.01 },
  slowDisk: { chance: 0.05 },
  clockSteps: { everyMs: 40_000, forMs: 0 },
  workerCrash: { chance: 0.0015 },
  workerCrashTimed: { everyMs: 90_000, forMs: 60_000 },
  workerStops: { everyMs: 150_000, forMs: 30_000 },
  workerGone: { chance: 0.3 },
  /** A second process writes to the worker's log for a while: the lock of its state directory did not hold. */
  twoWriters: { chance: 0.3 },
  coordinatorCrash: { chance: 0.002 },
  twoCoordinators: { everyMs: 90_000, forMs: 40_000 },
  // between worker and coordinator
  coordinatorUnreachable: { everyMs: 80_000, forMs: 120_000 },
  requestLost: { chance: 0.05 },
  answerLost: { chance: 0.05 },
  // people
  cancels: { chance: 0.25 },
  abandons: { chance: 0.06 },
  submitsTwice: { chance: 0.3 },
} as const satisfies Readonly<Record<string, { chance: number } | { everyMs: number; forMs: number }>>;

export type Fault = keyof typeof FAULTS;
type Lasting = { [F in Fault]: (typeof FAULTS)[F] extends { everyMs: number } ? F : never }[Fault];

export const FAULT_NAMES = Object.keys(FAULTS) as readonly Fault[];
/** What the lock of the state directory excludes: only in worlds that ask for it. */
const ASKED_FOR_ONLY: readonly Fault[] = ['twoWriters', 'twoCoordinators'];

/** Which faults a world has, and whether one strikes now. */
export class Swarm {
  readonly #chance: Chance;
  readonly #on = new Set<Fault>();
  readonly #scale = new Map<Fault, number>();
  readonly counts = new Map<Fault, number>();
  #healed = false;

  /** `forced`: faults that this world has in any case. */
  constructor(chance: Chance, forced: readonly Fault[]) {
    this.#chance = chance;
    const share = chance.pick([0.15, 0.35, 0.6, 0.85]);
    for (const fault of FAULT_NAMES) {
      if (chance.chance(share) && !ASKED_FOR_ONLY.includes(fault)) this.#on.add(fault);
      this.#scale.set(fault, chance.pick([0.3, 1, 2, 4]));
    }
    for (const fault of forced) {
      this.#on.add(fault);
      this.#scale.set(fault, 3);
    }
  }

  get names(): readonly Fault[] {
    return [...this.#on];
  }

  has(fault: Fault): boolean {
    return this.#on.has(fault);
  }

  /** From here on nothing goes wrong any more. */
  heal(): void {
    this.#healed = true;
  }

  get isHealed(): boolean {
    return this.#healed;
  }

  /** Whether a fault of one occasion strikes this one. */
  strikes(fault: Exclude<Fault, Lasting>): boolean {
    if (this.#healed || !this.#on.has(fault)) return false;
    const struck = this.#chance.chance(Math.min(0.9, FAULTS[fault].chance * (this.#scale.get(fault) ?? 1)));
    if (struck) this.count(fault);
    return struck;
  }

  count(fault: Fault): void {
    this.counts.set(fault, (this.counts.get(fault) ?? 0) + 1);
  }

  /** How long a lasting fault stays away, then how long it lasts, ms. */
  pauseMs(fault: Lasting): number {
    return this.#chance.int(1, 2 * Math.ceil(FAULTS[fault].everyMs / (this.#scale.get(fault) ?? 1)));
  }

  durationMs(fault: Lasting): number {
    return this.#chance.int(1, Math.max(1, FAULTS[fault].forMs));
  }
}

export type LastingFault = Lasting;
