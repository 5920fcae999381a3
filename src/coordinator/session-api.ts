import { z } from 'zod';
import { SESSION_STATES, STEP_ENDS, STEP_MODES } from '../machines/session-events.js';
import { Epoch, JobId, Reason, SafeName, StepId, TaskId } from '../machines/vocabulary.js';
import { TaskView } from './api.js';
import type { PortAnswer } from './worker-api.js';

/**
 * What is said about sessions on the wire: by people's programs, by workers, and by the coordinator between them. A
 * session is a task of kind `session` and has its id. The coordinator passes steps on and keeps no log of them: that is
 * the worker's, in the session's stream.
 */

/** Of one stream; binary data travels as base64. */
export const STREAMS = ['stdout', 'stderr'] as const;
export const OutputStream = z.enum(STREAMS);
export type OutputStream = z.infer<typeof OutputStream>;

/** Bytes in one piece before base64. */
export const PIECE_BYTES_MAX = 256 * 1024;
const Data = z.base64().max(Math.ceil(PIECE_BYTES_MAX / 3) * 4);
const Offset = z.int().nonnegative();
const Bytes = z.int().nonnegative();

export const OUTPUT_LIMIT_DEFAULT_BYTES = 16 * 1024 * 1024;
export const OUTPUT_LIMIT_MAX_BYTES = 64 * 1024 * 1024;
/** All words of a command together, UTF-8: what one command line may have on Linux, less what comes before it. */
export const ARGV_BYTES_MAX = 96 * 1024;

const Argv = z
  .array(z.string().refine((word) => !word.includes('\0'), 'a word of a command has no NUL'))
  .min(1)
  .max(4096)
  .refine((argv) => (argv[0] ?? '') !== '', 'a command has a name')
  .refine((argv) => argv.reduce((sum, word) => sum + new TextEncoder().encode(word).length + 1, 0) <= ARGV_BYTES_MAX, {
    error: `a command has at most ${String(ARGV_BYTES_MAX)} bytes`,
  });

const Count = z.int().positive().max(65_536);

const common = {
  stepId: StepId,
  argv: Argv,
  /** null: as long as the session lasts. */
  timeLimitS: z
    .number()
    .positive()
    .max(366 * 86_400)
    .nullable(),
  outputLimitBytes: z.int().positive().max(OUTPUT_LIMIT_MAX_BYTES),
} as const;

/**
 * `run`: on the nodes of the allocation; null sizes are one node, one task on each node, one processor for each task.
 * `exec`: by the agent of one rank.
 */
export const StepRequest = z.discriminatedUnion('mode', [
  z.strictObject({
    mode: z.literal('run'),
    ...common,
    nodes: Count.nullable(),
    tasks: Count.nullable(),
    cpusPerTask: Count.nullable(),
  }),
  z.strictObject({ mode: z.literal('exec'), ...common, rank: z.int().nonnegative().max(65_535), stdin: z.boolean() }),
]);
export type StepRequest = z.infer<typeof StepRequest>;

export const StepEnd = z.strictObject({
  how: z.enum(STEP_ENDS),
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  detail: z.string().max(4000),
  droppedBytes: Bytes,
});
export type StepEnd = z.infer<typeof StepEnd>;

/** How much a step has written in all, less what was dropped; null: nobody knows, some of it may have been lost. */
export const StepSizes = z.strictObject({ stdout: Bytes, stderr: Bytes }).nullable();
export type StepSizes = z.infer<typeof StepSizes>;

export const StepView = z.strictObject({
  stepId: StepId,
  mode: z.enum(STEP_MODES),
  rank: z.int().nullable(),
  argv: z.array(z.string()),
  by: z.string(),
  requestedAtMs: z.number(),
  /** null: it is under way. */
  end: StepEnd.nullable(),
  endedAtMs: z.number().nullable(),
});
export type StepView = z.infer<typeof StepView>;

/** INV-5: ready is all four. */
export const Readiness = z.strictObject({
  allocation: z.boolean(),
  workspace: z.boolean(),
  ranks: z.boolean(),
  agent: z.boolean(),
});
export type Readiness = z.infer<typeof Readiness>;

/** A session as its worker sees it. */
export const SessionView = z.strictObject({
  taskId: TaskId,
  profile: SafeName,
  state: z.enum(SESSION_STATES),
  jobId: JobId.nullable(),
  epoch: Epoch.nullable(),
  readiness: Readiness,
  /** For people: "ready", or "3 of 4 ranks; waiting for rank 2". */
  words: z.string().max(4000),
  ranks: z.int(),
  /** By rank, as far as they are in. */
  ranksIn: z.array(z.strictObject({ rank: z.int(), node: z.string() })),
  grantedAtMs: z.number().nullable(),
  /** When the session ends if nobody does anything; null while a step runs or nothing is held. */
  idleEndsAtMs: z.number().nullable(),
  lifetimeEndsAtMs: z.number().nullable(),
  /** How often a lost job was followed by another one: what processes had in memory is gone then. */
  recoveries: z.int(),
  lastLoss: z.string().nullable(),
  reason: Reason.nullable(),
  /** All that are under way, and the newest that have ended; newest last. */
  steps: z.array(StepView),
});
export type SessionView = z.infer<typeof SessionView>;

/** The worker's view is null until it has reported one (not leased yet, or the coordinator has just restarted). */
export const SessionInfo = z.strictObject({ task: TaskView, session: SessionView.nullable() });
export type SessionInfo = z.infer<typeof SessionInfo>;
export const SessionList = z.strictObject({ sessions: z.array(SessionInfo) });
export type SessionList = z.infer<typeof SessionList>;

/** Without `all` those that are not over; newest first, at most `limit`. */
export const SessionQuery = z.strictObject({
  all: z.enum(['true', 'false']).default('false'),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
});
export type SessionQuery = z.infer<typeof SessionQuery>;

/**
 * `epoch`: of the session's job that a step was asked of before. Whoever asks again says it: were the session to come
 * back as a new job in between, the command would be started a second time.
 */
export const StepQuery = z.strictObject({ epoch: z.coerce.number().int().positive().optional() });
export type StepQuery = z.infer<typeof StepQuery>;

/** `created`: false when this step had been asked for before, with the same id. */
export const StepAccepted = z.strictObject({ stepId: StepId, created: z.boolean(), epoch: Epoch });
export type StepAccepted = z.infer<typeof StepAccepted>;

/** Where a reader is: bytes of each stream that it has. */
export const OutputQuery = z.strictObject({
  stdout: z.coerce.number().int().nonnegative().default(0),
  stderr: z.coerce.number().int().nonnegative().default(0),
  waitMs: z.coerce.number().int().nonnegative().max(30_000).default(0),
});
export type OutputQuery = z.infer<typeof OutputQuery>;

export const OutputPiece = z.strictObject({ stream: OutputStream, offset: Offset, data: Data });
export type OutputPiece = z.infer<typeof OutputPiece>;

/**
 * Pieces that follow what the reader has, in the order in which they came; a piece whose offset is beyond what the
 * reader has tells of a gap (the coordinator restarted). `end` comes with the last pieces, never before them.
 */
export const StepOutput = z.strictObject({
  pieces: z.array(OutputPiece),
  /** What whoever asks has to know, such as that the session's job was replaced since the last step. Said once. */
  notice: z.string().nullable(),
  /** Why there is nothing yet, where the coordinator knows; null otherwise. */
  waiting: z.string().nullable(),
  end: StepEnd.nullable(),
  /** With the end. */
  sizes: StepSizes,
});
export type StepOutput = z.infer<typeof StepOutput>;

/** What a user types. `offset`: bytes sent before; a piece that was taken already is not taken again. */
export const StdinPiece = z.strictObject({ offset: Offset, data: Data, end: z.boolean() });
export type StdinPiece = z.infer<typeof StdinPiece>;
/** How many bytes of standard input the coordinator has taken, from the first one on. */
export const StdinTaken = z.strictObject({ taken: Bytes });
export type StdinTaken = z.infer<typeof StdinTaken>;

/** `ended`: it was over already. A step that the coordinator does not know is asked to end all the same. */
export const StepCancelled = z.strictObject({ stepId: StepId, ended: z.boolean() });
export type StepCancelled = z.infer<typeof StepCancelled>;

/* Between worker and coordinator. */

/**
 * Bytes of one report as JSON. A worker that has more to say says it in several: what is not in a report is not taken.
 */
export const REPORT_BYTES_MAX = 8 * 1024 * 1024;

/** What the coordinator asks of a worker, numbered for one worker and one life of the coordinator (`desk`). */
export const SessionCall = z.discriminatedUnion('type', [
  /** Asked again, also of a later life of the worker, it is the same step: it is not run a second time. */
  z.strictObject({ type: z.literal('step'), taskId: TaskId, by: z.string(), request: StepRequest }),
  z.strictObject({ type: z.literal('stdin'), taskId: TaskId, stepId: StepId, piece: StdinPiece }),
  z.strictObject({ type: z.literal('cancel'), taskId: TaskId, stepId: StepId, by: z.string() }),
]);
export type SessionCall = z.infer<typeof SessionCall>;

/** `desk`, `after`: the last call that this worker has taken up; null: none yet. Calls after it come again until then. */
export const CallsRequest = z.strictObject({
  desk: z.string().max(64).nullable(),
  after: z.int().nonnegative(),
  waitMs: z.int().nonnegative().max(60_000),
});
export type CallsRequest = z.infer<typeof CallsRequest>;
export const CallsAnswer = z.strictObject({
  desk: z.string(),
  calls: z.array(z.strictObject({ seq: z.int().positive(), call: SessionCall })),
});
export type CallsAnswer = z.infer<typeof CallsAnswer>;

/**
 * Output of one step since the last report that was taken, and its end when everything before it has been sent. A step
 * that the coordinator was asked for anew (it has restarted) takes up each stream at the first piece that it gets: an
 * empty piece says where a stream is that has nothing more to come, so that its reader sees what it has missed.
 */
export const StepNews = z.strictObject({
  taskId: TaskId,
  epoch: Epoch,
  stepId: StepId,
  pieces: z.array(OutputPiece).max(64),
  notice: z.string().max(4000).nullable(),
  /** Bytes of its standard input that the command has taken, from the first one on. */
  stdinTaken: Bytes,
  end: StepEnd.nullable(),
  /** With the end. */
  sizes: StepSizes,
});
export type StepNews = z.infer<typeof StepNews>;

export const SessionReport = z.strictObject({
  views: z.array(z.strictObject({ epoch: Epoch, view: SessionView })).max(1000),
  steps: z.array(StepNews).max(100),
});
export type SessionReport = z.infer<typeof SessionReport>;
/**
 * `stale`: sessions whose epoch is not in force (INV-7); of a session that is over the newest epoch still is, for its
 * last words. `taken`: for each reported step, in order, how many of its bytes
 * of each stream the coordinator has (nobody may be reading: the rest is sent again later), or null for a step that it
 * does not know (nobody asks for it any more), and whether its end was taken.
 */
export const SessionReportAnswer = z.strictObject({
  desk: z.string(),
  stale: z.array(TaskId),
  taken: z.array(z.strictObject({ stdout: Bytes, stderr: Bytes, ended: z.boolean() }).nullable()),
});
export type SessionReportAnswer = z.infer<typeof SessionReportAnswer>;

/** What passes between a worker's sessions and the coordinator. Never throws; every call may be repeated. */
export interface SessionPort {
  /** Waits for at most `waitMs` until there is a call; none is an answer. */
  calls(request: CallsRequest, signal?: AbortSignal): Promise<PortAnswer<CallsAnswer>>;
  report(report: SessionReport): Promise<PortAnswer<SessionReportAnswer>>;
}
