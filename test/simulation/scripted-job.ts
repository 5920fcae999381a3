/** What a submission asked for. */
export interface Submission {
  readonly uid: number;
  readonly name: string;
  readonly comment: string;
  readonly directory: string | null;
  readonly singleton: boolean;
  readonly limitMs: number;
  readonly requeue: boolean;
  /** Somebody submitted the script once more by hand. */
  readonly isOutside: boolean;
}

export const LIVE_STATES = ['PENDING', 'CONFIGURING', 'RUNNING', 'COMPLETING'] as const;
export const ENDED_STATES = [
  'COMPLETED',
  'FAILED',
  'CANCELLED',
  'TIMEOUT',
  'NODE_FAIL',
  'PREEMPTED',
  'OUT_OF_MEMORY',
] as const;
export type JobState = (typeof LIVE_STATES)[number] | (typeof ENDED_STATES)[number];

/** A job as it really is, from the moment in which its submission took effect: the ground truth. Times: ms of the world. */
export interface ScriptedJob extends Submission {
  /** Of all jobs of the world; ids are used again, this is not. */
  readonly serial: number;
  readonly cluster: string;
  readonly id: number;
  /** The submission token in its name, if it is one of ours. */
  readonly token: string | null;
  readonly landedAtMs: number;
  /** The queue shows it from then on. */
  readonly visibleAtMs: number;
  submittedAtMs: number;
  startedAtMs: number | null;
  endedAtMs: number | null;
  state: JobState;
  reason: string;
  exit: string;
  /** While COMPLETING: what it will be. */
  endState: JobState | null;
  wasEligible: boolean;
  /** How often it was taken away and queued again under its id; each run has its own row in the accounts. */
  requeues: number;
  /** Its profile runs now. */
  isWorking: boolean;
  /** Its profile has run, at least in part. */
  worked: boolean;
  /** What it wrote as its result; null: nothing, or nothing that counts. */
  result: unknown;
  isPurged: boolean;
}

export const isOver = (job: ScriptedJob): boolean => ENDED_STATES.some((state) => state === job.state);

/** Waiting or running: what a cancel is meant to end. A job in COMPLETING does nothing any more. */
export const isActive = (job: ScriptedJob): boolean => !isOver(job) && (job.isWorking || job.state !== 'COMPLETING');
