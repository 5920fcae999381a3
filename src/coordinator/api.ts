import { z } from 'zod';
import { TASK_PHASES } from '../machines/task-events.js';
import { JobId, Phase, Reason, SafeName, TaskId } from '../machines/vocabulary.js';
import { PublicProfile } from './worker-api.js';

/** What people's programs and the coordinator say to each other. All times are Unix epoch ms by the coordinator's clock. */

export const ROLES = ['submitter', 'worker', 'viewer', 'admin'] as const;
export const Role = z.enum(ROLES);
export type Role = z.infer<typeof Role>;

export const TaskPhaseName = z.enum(TASK_PHASES);

/**
 * A client's own name for one submission: sent again with the same key it is the same task. Printable ASCII, because it
 * travels in a header.
 */
export const SubmissionKey = z
  .string()
  .regex(/^[\x21-\x7e]{1,200}$/, 'an idempotency key has 1 to 200 printable ASCII characters and no blank');

export const SubmitRequest = z.strictObject({
  kind: SafeName,
  payload: z.unknown(),
});
export type SubmitRequest = z.infer<typeof SubmitRequest>;

/** `created`: false when this key had been sent before. `waiting`: why nobody can run it yet, or null. */
export const SubmitAnswer = z.strictObject({
  taskId: TaskId,
  created: z.boolean(),
  waiting: z.string().nullable(),
});
export type SubmitAnswer = z.infer<typeof SubmitAnswer>;

export const JobView = z.strictObject({
  jobId: JobId,
  epoch: z.number().int(),
  worker: z.string(),
  phase: Phase,
  reason: Reason.nullable(),
  detail: z.string(),
  openedAtMs: z.number(),
  closedAtMs: z.number().nullable(),
});
export type JobView = z.infer<typeof JobView>;

const Wish = z.strictObject({ by: z.string(), atMs: z.number() });

export const TaskView = z.strictObject({
  taskId: TaskId,
  kind: z.string(),
  profile: z.string().nullable(),
  phase: TaskPhaseName,
  reason: Reason.nullable(),
  detail: z.string(),
  /** Credential id of the submitter. */
  by: z.string(),
  submittedAtMs: z.number(),
  endedAtMs: z.number().nullable(),
  epoch: z.number().int(),
  worker: z.string().nullable(),
  losses: z.number().int(),
  lossesMax: z.number().int(),
  /** Newest last; at most 20. The task's history has them all. */
  jobs: z.array(JobView),
  jobsTotal: z.number().int(),
  /** Jobs whose end nobody has reported yet. */
  openJobs: z.array(JobId),
  /** Jobs that an abandon has left to themselves: they may live on. */
  forgottenJobs: z.array(JobId),
  cancelRequested: Wish.nullable(),
  abandonRequested: Wish.nullable(),
  warnings: z.array(z.string()),
  /** Why it waits, as far as the coordinator knows; null when it does not wait. */
  waiting: z.string().nullable(),
});
export type TaskView = z.infer<typeof TaskView>;

/** Newest first. `next`: the cursor of the following page, null at the end. */
export const ListQuery = z.strictObject({
  phase: TaskPhaseName.optional(),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  cursor: z.coerce.number().int().positive().optional(),
});
export type ListQuery = z.infer<typeof ListQuery>;
export const TaskList = z.strictObject({ tasks: z.array(TaskView), next: z.number().int().nullable() });
export type TaskList = z.infer<typeof TaskList>;

export const TaskResult = z.strictObject({
  taskId: TaskId,
  result: z.unknown(),
  warnings: z.array(z.string()),
});
export type TaskResult = z.infer<typeof TaskResult>;

/** The newest part of a job's output. `updatedAtMs`: when its worker handed it over; null: never yet. */
export const LogsView = z.strictObject({
  taskId: TaskId,
  stdout: z.string(),
  stderr: z.string(),
  updatedAtMs: z.number().nullable(),
});
export type LogsView = z.infer<typeof LogsView>;

/** One event of a task, with what the task was right after it. `position` is where a watch is resumed. */
export const TaskChange = z.strictObject({
  position: z.number().int(),
  atMs: z.number(),
  taskId: TaskId,
  event: z.string(),
  phase: TaskPhaseName,
  reason: Reason.nullable(),
  detail: z.string(),
  worker: z.string().nullable(),
  job: z.strictObject({ jobId: JobId, phase: Phase, reason: Reason.nullable(), detail: z.string() }).nullable(),
});
export type TaskChange = z.infer<typeof TaskChange>;

export const TaskHistory = z.strictObject({ changes: z.array(TaskChange) });
export type TaskHistory = z.infer<typeof TaskHistory>;

/** `workers`: how many that offer it have been heard lately. */
export const OfferedProfile = z.strictObject({ ...PublicProfile.shape, workers: z.number().int() });
export type OfferedProfile = z.infer<typeof OfferedProfile>;
export const ProfileList = z.strictObject({ profiles: z.array(OfferedProfile), kinds: z.array(z.string()) });
export type ProfileList = z.infer<typeof ProfileList>;

export const CreateCredential = z.strictObject({ role: Role, name: SafeName });
export type CreateCredential = z.infer<typeof CreateCredential>;
/** The secret is in this answer and nowhere else. */
export const NewCredential = z.strictObject({ id: z.string(), secret: z.string(), role: Role, name: z.string() });
export type NewCredential = z.infer<typeof NewCredential>;
export const CredentialView = z.strictObject({
  id: z.string(),
  name: z.string(),
  role: Role,
  createdAtMs: z.number(),
  revokedAtMs: z.number().nullable(),
});
export type CredentialView = z.infer<typeof CredentialView>;
export const CredentialList = z.strictObject({ credentials: z.array(CredentialView) });
export type CredentialList = z.infer<typeof CredentialList>;

/** Every answer that is not a success has this body. `hint`: what to do next. */
export const ErrorBody = z.strictObject({
  error: z.strictObject({ code: z.string(), message: z.string(), hint: z.string() }),
});
export type ErrorBody = z.infer<typeof ErrorBody>;
