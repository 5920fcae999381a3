import { z } from 'zod';
import { describes } from '../events/schema-parts.js';
import type { StoredTask } from '../machines/task-aggregate.js';
import type { TaskContext } from '../machines/task-context.js';
import { TASK_PHASES, type TaskPhase } from '../machines/task-events.js';
import { Epoch, JobId, Phase, Reason, TaskId, Token } from '../machines/vocabulary.js';

/** What a coordinator's checkpoint holds. One that does not parse is passed over, and the log is folded from its start. */

const Ms = z.number();
const OpenJob = z.strictObject({ jobId: JobId, token: Token, epoch: Epoch, worker: z.string(), site: z.string() });

const Context = describes<TaskContext>()(
  z.strictObject({
    taskId: TaskId,
    kind: z.string(),
    profile: z.string().nullable(),
    by: z.string(),
    submissionKey: z.string().nullable(),
    lossesMax: z.number(),
    submittedAtMs: Ms,
    epoch: z.number(),
    lease: z
      .strictObject({ epoch: Epoch, workerId: z.string(), worker: z.string(), site: z.string(), atMs: Ms })
      .nullable(),
    openJobs: z.array(OpenJob),
    forgotten: z.array(OpenJob),
    jobs: z.array(
      z.strictObject({
        jobId: JobId,
        epoch: Epoch,
        worker: z.string(),
        openedAtMs: Ms,
        phase: Phase,
        reason: Reason.nullable(),
        detail: z.string(),
        closedAtMs: Ms.nullable(),
      }),
    ),
    jobsTotal: z.number(),
    losses: z.number(),
    progress: z
      .strictObject({ jobId: JobId, phase: Phase, reason: Reason.nullable(), detail: z.string(), atMs: Ms })
      .nullable(),
    cancel: z.strictObject({ by: z.string(), asAdmin: z.boolean(), atMs: Ms }).nullable(),
    abandon: z.strictObject({ by: z.string(), atMs: Ms }).nullable(),
    outcome: z
      .strictObject({
        type: z.enum(['completed', 'failed', 'cancelled', 'lost']),
        epoch: Epoch,
        jobId: JobId.nullable(),
        workerId: z.string(),
      })
      .nullable(),
    reason: Reason.nullable(),
    detail: z.string(),
    warnings: z.array(z.string()),
    endedAtMs: Ms.nullable(),
  }),
);

const Stored = describes<StoredTask>()(
  z.strictObject({ phase: z.enum(TASK_PHASES), context: Context, version: z.number() }),
);

export const CoordinatorCheckpoint = z.strictObject({
  v: z.literal(1),
  counts: z.partialRecord(z.enum(TASK_PHASES), z.number()),
  /** Position of the submission, task, submitter, phase; oldest first. */
  index: z.array(z.tuple([z.number(), TaskId, z.string(), z.enum(TASK_PHASES)])),
  /** Which of these are sessions. A checkpoint from before there were any has none. */
  sessions: z.array(TaskId).default([]),
  live: z.array(Stored),
});

/** The same, as it is written. */
export interface CheckpointData {
  readonly v: 1;
  readonly counts: Readonly<Partial<Record<TaskPhase, number>>>;
  readonly index: readonly (readonly [number, TaskId, string, TaskPhase])[];
  readonly sessions: readonly TaskId[];
  readonly live: readonly StoredTask[];
}
