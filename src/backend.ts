import type { Handle, JobId, Reason, Source, Token, Waiting } from './machines/vocabulary.js';

/**
 * The port that a backend fills. A backend runs prepared job directories and says what is true about them; it decides
 * nothing and remembers nothing that its own system does not keep.
 */
export interface Backend {
  /** Short, for people and for streams: `backend/<name>`. */
  readonly name: string;
  /**
   * What two workers must have in common for one to see the other's jobs: a worker may take over a task only within
   * one site.
   */
  readonly site: string;
  /** Where absence has to be confirmed. A backend whose accounting is switched off answers from its queue alone. */
  readonly sources: readonly Source[];
  /** Defaults for a job's policy, derived from the backend's own time limits, ms. */
  readonly timing: BackendTiming;

  /** Runs every external command in the exact form used later. Called once before the first poll. */
  selfTest(): Promise<SelfTest>;
  /** Fills in what the backend needs to run the directory (its `run.sh`). Local files only; may be repeated. */
  prepare(request: SubmitRequest): Promise<void>;
  /** Sends one submission. The caller has recorded the intention before. */
  submit(request: SubmitRequest): Promise<SubmitReply>;
  /** Ends what is left of an attempt on this host; `ended` only when no process can still send the request. */
  endAttempt(token: Token): Promise<AttemptEnd>;
  /** Says what is true about every item, with a constant number of external calls however many there are. */
  observe(items: readonly WatchItem[]): Promise<Observations>;
  /** Asks for the end of many jobs. That it was asked proves nothing: the end is observed. */
  cancel(targets: readonly CancelTarget[]): Promise<CancelReply>;
  /**
   * Whether enough is known to be sure that a cancel hits no other job (INV-13). False: not before the next poll is
   * answered, for ids may have been given out again since the last one.
   */
  mayCancel(target: CancelTarget): boolean;
  /** Runs a command inside the allocation that a job holds; never allocates (INV-4). */
  runStep(request: StepRequest): Promise<StepReply>;
  /** External calls made so far, by command. */
  callCounts(): Readonly<Record<string, number>>;
  close(): Promise<void>;
}

export interface BackendTiming {
  readonly settleMs: number;
  readonly looks: number;
  readonly lossGraceMs: number;
  readonly lossLooks: number;
}

/** Why a call gave no answer. Neither proves that nothing happened. */
export type NoAnswer =
  | { readonly kind: 'timedOut'; readonly afterMs: number; readonly detail: string }
  | { readonly kind: 'unreachable'; readonly detail: string };

export type SelfTest =
  | { readonly kind: 'fit'; readonly report: Readonly<Record<string, string>>; readonly warnings: readonly string[] }
  /** A command answered in a way that this version cannot work with: do not start. */
  | { readonly kind: 'unfit'; readonly problems: readonly string[] }
  | NoAnswer;

/** What an administrator allows people to run. Scheduler settings are the backend's own and opaque here. */
export interface Profile {
  readonly name: string;
  readonly description: string;
  /** null: it serves sessions only. */
  readonly scriptPath: string | null;
  /** null: it serves no sessions. */
  readonly session: SessionProfile | null;
  readonly sha256: string | null;
  readonly cpus: number | null;
  readonly memoryMiB: number | null;
  readonly gpus: number | null;
  readonly nodes: number | null;
  readonly walltimeS: number | null;
  /** null: a held job waits for the administrator. */
  readonly heldFailsAfterS: number | null;
  /** JSON Schema that a payload's parameters must fit, or null. */
  readonly parametersSchema: Readonly<Record<string, unknown>> | null;
  /** Variables that the job sees, beside its own. */
  readonly environment: Readonly<Record<string, string>>;
  /** The backend's own settings, read by nobody else. */
  readonly placement: Readonly<Record<string, string>>;
}

/** What an administrator allows sessions of a profile. */
export interface SessionProfile {
  /** A session that nobody uses for this long ends. */
  readonly idleLimitS: number;
  /** Counted from its first allocation. */
  readonly maxLifetimeS: number;
  /** The agent's file on a file system that the nodes share; null: each job gets a copy in its directory. */
  readonly agentPath: string | null;
  /** The `node` that runs the agent on the nodes: a path there, or a name to be found on PATH. */
  readonly nodePath: string;
}

/** How a session's job starts its agents: one on each node, all ended when one of them fails. */
export interface SessionLaunch {
  readonly ranks: number;
  /** The agent's command line, to which the backend adds the name of the variable that holds a process's rank. */
  readonly command: readonly string[];
  /** Where the agents find their credentials: a path template, never a value (INV-9). */
  readonly credentials: string;
}

export interface SubmitRequest {
  readonly jobId: JobId;
  readonly token: Token;
  readonly profile: Profile;
  /** Absolute path of the prepared job directory. */
  readonly directory: string;
  /** null: the profile's script is what runs. */
  readonly session: SessionLaunch | null;
}

export type SubmitReply =
  | { readonly kind: 'accepted'; readonly handle: Handle; readonly notes: string }
  | {
      readonly kind: 'refused';
      readonly reason: 'BACKEND_REJECTED' | 'INVALID_SPEC';
      readonly detail: string;
    }
  /** "Not now": a limit on how many jobs may be submitted. */
  | { readonly kind: 'deferred'; readonly limit: string; readonly detail: string }
  /** Answered, but no complete id line. `hint`: an id in an answer that is otherwise not to be trusted. */
  | { readonly kind: 'unreadable'; readonly detail: string; readonly hint: string | null }
  | (NoAnswer & { readonly hint: string | null });

export type AttemptEnd =
  { readonly kind: 'ended'; readonly how: string } | { readonly kind: 'alive'; readonly detail: string };

export interface WatchItem {
  readonly jobId: JobId;
  readonly token: Token;
  /** null: to be found by token. */
  readonly handle: Handle | null;
  /** Unix epoch ms: no submission of this job can be older. */
  readonly sinceMs: number;
}

export interface Observations {
  /** One answer per item, by job id; an item that is not there is `unanswered`. */
  readonly jobs: ReadonlyMap<JobId, JobAnswer>;
  /** null: every call of this poll was answered. */
  readonly outage: NoAnswer | null;
  /** Set when the queue itself did not answer; `outage` alone may be accounting's. */
  readonly queueOutage: NoAnswer | null;
  /** Foreign or odd things worth one event: unknown state words, unusable rows. */
  readonly oddities: readonly string[];
}

export type JobAnswer =
  | SeenAnswer
  /** A healthy "not here" of every source that was asked. */
  | {
      readonly kind: 'absent';
      readonly queue: 'absent';
      /** `stillActive`: accounting holds a row that says active although the queue does not know the job. */
      readonly accounting: 'absent' | 'stillActive' | 'notKept';
      /** For `stillActive`: Unix epoch ms after which the job cannot be alive; null if unknown. */
      readonly limitEndsAtMs: number | null;
      readonly detail: string;
    }
  /** No source gave an answer that counts; nothing changes. `queueAbsent`: but the queue gave a healthy "not here". */
  | { readonly kind: 'unanswered'; readonly detail: string; readonly queueAbsent: boolean };

export interface SeenAnswer {
  readonly kind: 'seen';
  readonly handle: Handle;
  readonly source: Source;
  readonly state: SeenState;
  /** For people: why it waits or how it ended. */
  readonly why: string;
  readonly warnings: readonly string[];
  readonly diagnostics: Readonly<Record<string, string>>;
  /** Other live jobs that carry the same token, newest last (INV-8). */
  readonly duplicates: readonly Handle[];
}

export type SeenState =
  | { readonly phase: 'Pending'; readonly waiting: Waiting }
  /** `ending`: the job's work is over, the backend is cleaning up; still Running, but ask again soon. */
  | { readonly phase: 'Running'; readonly ending: boolean }
  | { readonly phase: 'Completed' }
  | { readonly phase: 'Failed'; readonly reason: Reason }
  | { readonly phase: 'Cancelled'; readonly reason: Reason }
  /** Taken away through no fault of its own; may come back under the same handle. */
  | { readonly phase: 'Lost'; readonly reason: 'NODE_FAILED' | 'PREEMPTED' };

/** The handle alone does not say whose job it is by now. */
export interface CancelTarget {
  readonly token: Token;
  readonly handle: Handle;
}

export interface CancelReply {
  /** Handles whose request was answered, or whose job is gone; the others were not asked or got no answer. */
  readonly asked: readonly Handle[];
  readonly outage: NoAnswer | null;
}

/** A command to run inside an allocation that is held. */
export interface StepRequest {
  readonly handle: Handle | null;
  readonly argv: readonly string[];
  /** Nodes, and processes on all of them together. */
  readonly nodes: number;
  readonly tasks: number;
  readonly cpusPerTask: number;
  /** Its working directory: that of the job. */
  readonly directory: string;
  /** Variables that it sees beside the backend's own. */
  readonly environment: Readonly<Record<string, string>>;
  /** null: as long as the job lasts. */
  readonly timeLimitMs: number | null;
  /** Called with all that it writes, in order; the caller bounds what it keeps. */
  readonly onOutput: (stream: 'stdout' | 'stderr', bytes: Buffer) => void;
  /** Aborted: the step is ended, the allocation stays; with the reason `LEAVE_RUNNING` it is only not followed any more. */
  readonly signal: AbortSignal;
}

/** Why a step's signal is aborted when its worker stops: what runs goes on, as jobs do. */
export const LEAVE_RUNNING = 'leave running';

export type StepReply =
  | { readonly kind: 'ended'; readonly exitCode: number | null; readonly signal: string | null }
  /** By the caller's signal, or because its time was over. Nothing of it runs any more, unless it was left running. */
  | { readonly kind: 'stopped'; readonly by: 'cancel' | 'timeLimit' }
  /** Nothing was started. */
  | { readonly kind: 'refused'; readonly detail: string }
  /** Nobody can say whether it ran. */
  | NoAnswer;
