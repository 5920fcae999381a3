import type { SeenState } from '../backend.js';

/** Every job state and state flag that any release of Slurm documents, up to 26.05, in its own spelling. */
export const SLURM_STATES = [
  'BOOT_FAIL',
  'CANCELLED',
  'COMPLETED',
  'COMPLETING',
  'CONFIGURING',
  'DEADLINE',
  'EXPEDITING',
  'FAILED',
  'LAUNCH_FAILED',
  'NODE_FAIL',
  'OUT_OF_MEMORY',
  'PENDING',
  'POWER_UP_NODE',
  'PREEMPTED',
  'RECONFIG_FAIL',
  'REQUEUED',
  'REQUEUE_FED',
  'REQUEUE_HOLD',
  'RESIZING',
  'RESV_DEL_HOLD',
  'REVOKED',
  'RUNNING',
  'SIGNALING',
  'SPECIAL_EXIT',
  'STAGE_OUT',
  'STOPPED',
  'SUSPENDED',
  'TIMEOUT',
  'UPDATE_DB',
] as const;
export type SlurmState = (typeof SLURM_STATES)[number];

/** `look`: the word says nothing about the job's phase; nothing changes until another one is seen. */
export type StateMeaning = SeenState | { readonly phase: 'look'; readonly why: string };

interface StateRow {
  /** The short code of squeue(1), or null where a state has none. */
  readonly code: string | null;
  readonly means: StateMeaning;
}

const PENDING: SeenState = { phase: 'Pending', waiting: 'queued' };
const HELD: SeenState = { phase: 'Pending', waiting: 'held' };
const RUNNING: SeenState = { phase: 'Running', ending: false };
const ENDING: SeenState = { phase: 'Running', ending: true };

/** The total table: scheduler state → phase and reason. What a pending job waits for is in `reasons.ts`. */
export const STATES = {
  // Slurm blames the nodes, and the work never began: the task may be tried again.
  BOOT_FAIL: { code: 'BF', means: { phase: 'Lost', reason: 'NODE_FAILED' } },
  // By whom is not known here: the job machine puts our own wish in the place of this reason if there was one.
  CANCELLED: { code: 'CA', means: { phase: 'Cancelled', reason: 'ADMIN_CANCELLED' } },
  COMPLETED: { code: 'CD', means: { phase: 'Completed' } },
  // Still holds the allocation; its exit is not settled before the epilog ends.
  COMPLETING: { code: 'CG', means: ENDING },
  // Nodes are given, but they are not ready: the script does not run yet.
  CONFIGURING: { code: 'CF', means: PENDING },
  DEADLINE: { code: 'DL', means: { phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' } },
  // 25.11 and later: requeued, and first in line.
  EXPEDITING: { code: null, means: PENDING },
  // EXIT_NONZERO is the most common kind; the exit code tells the others (`failure.ts`).
  FAILED: { code: 'F', means: { phase: 'Failed', reason: 'EXIT_NONZERO' } },
  // A flag beside PENDING: the launch is tried again, or the job is held with a reason that says so.
  LAUNCH_FAILED: { code: null, means: PENDING },
  NODE_FAIL: { code: 'NF', means: { phase: 'Lost', reason: 'NODE_FAILED' } },
  OUT_OF_MEMORY: { code: 'OOM', means: { phase: 'Failed', reason: 'OUT_OF_MEMORY' } },
  PENDING: { code: 'PD', means: PENDING },
  POWER_UP_NODE: { code: null, means: PENDING },
  PREEMPTED: { code: 'PR', means: { phase: 'Lost', reason: 'PREEMPTED' } },
  RECONFIG_FAIL: { code: null, means: { phase: 'look', why: 'reconfiguring its nodes failed' } },
  REQUEUED: { code: 'RQ', means: PENDING },
  REQUEUE_FED: { code: 'RF', means: PENDING },
  REQUEUE_HOLD: { code: 'RH', means: HELD },
  RESIZING: { code: 'RS', means: RUNNING },
  RESV_DEL_HOLD: { code: 'RD', means: HELD },
  REVOKED: { code: 'RV', means: { phase: 'look', why: 'a sibling cluster has the job' } },
  RUNNING: { code: 'R', means: RUNNING },
  SIGNALING: { code: 'SI', means: RUNNING },
  // Requeued by an exit code that the site lists, and held.
  SPECIAL_EXIT: { code: 'SE', means: HELD },
  STAGE_OUT: { code: 'SO', means: ENDING },
  STOPPED: { code: 'ST', means: RUNNING },
  SUSPENDED: { code: 'S', means: RUNNING },
  // Whatever the exit code says: a script may trap the signal and exit 0.
  TIMEOUT: { code: 'TO', means: { phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' } },
  UPDATE_DB: { code: null, means: { phase: 'look', why: 'its record is being written' } },
} as const satisfies Record<SlurmState, StateRow>;

const BY_NAME: ReadonlyMap<string, SlurmState> = new Map(SLURM_STATES.map((name) => [name, name]));

/**
 * Reads a state as squeue's `%T` and sacct's `State` print it: `CANCELLED by 1001` and `CANCELLED+` are CANCELLED. A
 * word that is not in the table (`OUT_OF_ME+` is a truncated one) is undefined, never a guess.
 */
export function parseState(text: string): SlurmState | undefined {
  const known = BY_NAME.get(text);
  if (known !== undefined) return known;
  const match = /^([A-Z_]+)(?:\+| by [0-9]+)$/.exec(text);
  return match?.[1] === undefined ? undefined : BY_NAME.get(match[1]);
}

export const meaningOf = (state: SlurmState): StateMeaning => STATES[state].means;

/** Can a job in this state still run? True for `look`: what is not known to be over counts as live. */
export function isLive(state: SlurmState): boolean {
  const { phase } = meaningOf(state);
  return phase === 'Pending' || phase === 'Running' || phase === 'look';
}
