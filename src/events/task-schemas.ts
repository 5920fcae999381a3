import { z } from 'zod';
import type { TaskEvent } from '../machines/task-events.js';
import { Epoch, JobId, Phase, Reason, SafeName, TaskId, Token } from '../machines/vocabulary.js';
import { Count, describes, head, Json, Name, Text, Texts } from './schema-parts.js';

const OpenJob = z.strictObject({ jobId: JobId, token: Token, epoch: Epoch, worker: Name, site: Name });

const submitted = z.strictObject({
  ...head('task.submitted'),
  taskId: TaskId,
  kind: SafeName,
  payload: Json,
  by: Name,
  submissionKey: Name.nullable(),
  lossesMax: Count,
});

const progress = [
  z.strictObject({ ...head('task.leased'), epoch: Epoch, workerId: Name, worker: Name, site: Name }),
  z.strictObject({ ...head('task.jobOpened'), job: OpenJob }),
  z.strictObject({
    ...head('task.progressed'),
    epoch: Epoch,
    jobId: JobId,
    phase: Phase,
    reason: Reason.nullable(),
    detail: Text,
  }),
  z.strictObject({ ...head('task.jobClosed'), jobId: JobId, phase: Phase, reason: Reason.nullable() }),
  z.strictObject({ ...head('task.leaseExpired'), epoch: Epoch }),
  z.strictObject({ ...head('task.released'), epoch: Epoch, detail: Text }),
] as const;

const wish = [
  z.strictObject({ ...head('task.cancelRequested'), by: Name, asAdmin: z.boolean() }),
  z.strictObject({ ...head('task.abandonRequested'), by: Name }),
] as const;

const outcome = [
  z.strictObject({ ...head('task.completed'), epoch: Epoch, jobId: JobId, result: Json, warnings: Texts }),
  z.strictObject({ ...head('task.failed'), epoch: Epoch, jobId: JobId.nullable(), reason: Reason, detail: Text }),
  z.strictObject({ ...head('task.cancelled'), epoch: Epoch, jobId: JobId.nullable(), reason: Reason }),
  z.strictObject({ ...head('task.lost'), epoch: Epoch, jobId: JobId, reason: Reason, detail: Text }),
] as const;

/** Everything a `task/<id>` stream may hold, in its newest shape. Text limits: schema-parts.ts. */
export const TaskEventSchema = describes<TaskEvent>()(
  z.discriminatedUnion('type', [submitted, ...progress, ...wish, ...outcome]),
);
