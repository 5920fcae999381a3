import { z } from 'zod';
import type { JobEvent } from '../machines/job-events.js';
import {
  CancelReason,
  Epoch,
  Handle,
  JobId,
  Phase,
  Reason,
  SafeName,
  Source,
  SOURCES,
  TaskId,
  Token,
  Waiting,
} from '../machines/vocabulary.js';
import {
  Count,
  describes,
  Diagnostics,
  head,
  Json,
  LossReason,
  Milliseconds,
  Name,
  Text,
  Texts,
} from './schema-parts.js';

const Policy = z.strictObject({
  settleMs: Milliseconds,
  looks: Count,
  sources: z.array(Source),
  lossGraceMs: Milliseconds,
  lossLooks: Count,
  heldFailsAfterMs: Milliseconds.nullable(),
});

const created = z.strictObject({
  ...head('job.created'),
  jobId: JobId,
  taskId: TaskId,
  epoch: Epoch,
  token: Token,
  kind: SafeName,
  profile: SafeName,
  inherited: z.boolean(),
  parameters: Json,
  watchUntilMs: Milliseconds.nullable(),
  policy: Policy,
});

const submission = [
  z.strictObject({ ...head('submission.started'), attempt: z.int().positive() }),
  z.strictObject({ ...head('submission.accepted'), handle: Handle }),
  z.strictObject({
    ...head('submission.rejected'),
    reason: z.enum(['BACKEND_REJECTED', 'INVALID_SPEC']),
    detail: Text,
  }),
  z.strictObject({ ...head('submission.deferred'), notBeforeMs: Milliseconds, limit: Text, detail: Text }),
  z.strictObject({
    ...head('submission.lost'),
    cause: z.enum(['timedOut', 'unreachable', 'unreadable', 'interrupted', 'inherited']),
    detail: Text,
    hint: Name.nullable(),
  }),
  z.strictObject({ ...head('attempt.ended'), how: Text }),
  z.strictObject({
    ...head('lookup.absent'),
    source: Source,
    askedAtMs: Milliseconds,
    healthySinceMs: Milliseconds,
    detail: Text,
  }),
  z.strictObject({ ...head('submission.found'), handle: Handle, source: z.enum([...SOURCES, 'directory']) }),
  z.strictObject(head('submission.disproved')),
] as const;

const observation = [
  z.strictObject({
    ...head('job.observed'),
    phase: z.enum(['Pending', 'Running', 'Failed', 'Cancelled']),
    reason: Reason.nullable(),
    source: Source,
    waiting: Waiting.nullable(),
    why: Text,
    handle: Handle,
    diagnostics: Diagnostics,
  }),
  z.strictObject({
    ...head('completion.reported'),
    source: Source,
    handle: Handle,
    warnings: Texts,
    diagnostics: Diagnostics,
  }),
  z.strictObject({
    ...head('result.collected'),
    bytes: Count,
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
  }),
  z.strictObject({
    ...head('result.unusable'),
    reason: z.enum(['RESULT_MISSING', 'RESULT_INVALID']),
    detail: Text,
  }),
  z.strictObject({ ...head('loss.noted'), reason: LossReason, healthySinceMs: Milliseconds, detail: Text }),
  z.strictObject({ ...head('loss.confirmed'), reason: LossReason }),
] as const;

const wish = [
  z.strictObject({ ...head('cancel.requested'), reason: CancelReason, by: Name }),
  z.strictObject({ ...head('cancel.sent'), attempt: z.int().positive(), nextAtMs: Milliseconds }),
  z.strictObject({ ...head('job.abandoned'), by: Name }),
] as const;

const duplicate = [
  z.strictObject({ ...head('duplicate.found'), keep: Handle, cancel: z.array(Handle) }),
  z.strictObject({ ...head('duplicate.ended'), handle: Handle }),
] as const;

const aftermath = [
  z.strictObject({ ...head('outcome.delivered'), accepted: z.boolean(), detail: Text }),
  z.strictObject({ ...head('directory.removed'), kept: Text.nullable() }),
  z.strictObject({
    ...head('late.observed'),
    phase: Phase,
    reason: Reason.nullable(),
    diagnostics: Diagnostics,
  }),
] as const;

/** Everything a `job/<id>` stream may hold, in its newest shape. Text limits: schema-parts.ts. */
export const JobEventSchema = describes<JobEvent>()(
  z.discriminatedUnion('type', [created, ...submission, ...observation, ...wish, ...duplicate, ...aftermath]),
);
