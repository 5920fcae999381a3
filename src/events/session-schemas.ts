import { z } from 'zod';
import { STEP_ENDS, STEP_MODES, type SessionEvent } from '../machines/session-events.js';
import { CancelReason, Epoch, JobId, Phase, Reason, SafeName, StepId, TaskId } from '../machines/vocabulary.js';
import { Count, describes, head, Milliseconds, Name, Text } from './schema-parts.js';

const Rank = z.int().nonnegative();

const requested = z.strictObject({
  ...head('session.requested'),
  taskId: TaskId,
  profile: SafeName,
  ranks: z.int().positive(),
  idleLimitMs: Milliseconds,
  maxLifetimeMs: Milliseconds,
});

const progress = [
  z.strictObject({ ...head('session.jobAssigned'), jobId: JobId, epoch: Epoch }),
  z.strictObject(head('allocation.granted')),
  z.strictObject({ ...head('allocation.withdrawn'), detail: Text }),
  z.strictObject(head('workspace.prepared')),
  z.strictObject({ ...head('rank.registered'), epoch: Epoch, rank: Rank, node: Name }),
  z.strictObject({ ...head('rank.answered'), epoch: Epoch, rank: Rank }),
  z.strictObject({ ...head('rank.left'), epoch: Epoch, rank: Rank, detail: Text }),
] as const;

/** A command line's words are kept as far as people need them to know it again (`clipArgv`). */
const Argv = z.array(Text).max(100);

const step = [
  z.strictObject({
    ...head('step.requested'),
    stepId: StepId,
    mode: z.enum(STEP_MODES),
    rank: Rank.nullable(),
    argv: Argv,
    by: Name,
  }),
  z.strictObject({ ...head('step.cancelRequested'), stepId: StepId, by: Name }),
  z.strictObject({
    ...head('step.ended'),
    stepId: StepId,
    how: z.enum(STEP_ENDS),
    exitCode: z.int().nullable(),
    signal: Name.nullable(),
    detail: Text,
    droppedBytes: Count,
  }),
  z.strictObject({ ...head('activity.seen'), what: Name }),
] as const;

const ending = [
  z.strictObject({ ...head('session.ending'), reason: CancelReason, by: Name }),
  z.strictObject({ ...head('session.interrupted'), jobId: JobId, reason: Reason, detail: Text }),
  z.strictObject({ ...head('session.ended'), phase: Phase, reason: Reason.nullable(), detail: Text }),
] as const;

/** Everything a `session/<task id>` stream may hold, in its newest shape. Text limits: schema-parts.ts. */
export const SessionEventSchema = describes<SessionEvent>()(
  z.discriminatedUnion('type', [requested, ...progress, ...step, ...ending]),
);
