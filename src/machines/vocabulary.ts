import { z } from 'zod';

/** Where a job is. The four last ones are terminal (INV-6). */
export const PHASES = [
  'Submitting',
  'Unknown',
  'Pending',
  'Running',
  'Completed',
  'Failed',
  'Cancelled',
  'Lost',
] as const;
export const Phase = z.enum(PHASES);
export type Phase = z.infer<typeof Phase>;

export const TERMINAL_PHASES = ['Completed', 'Failed', 'Cancelled', 'Lost'] as const satisfies readonly Phase[];
export type TerminalPhase = (typeof TERMINAL_PHASES)[number];

export function isTerminalPhase(phase: Phase): phase is TerminalPhase {
  return TERMINAL_PHASES.some((terminal) => terminal === phase);
}

/** Why a job is where it is. One enum for every backend. */
export const REASONS = [
  'TIME_LIMIT_EXCEEDED',
  'OUT_OF_MEMORY',
  'EXIT_NONZERO',
  'SIGNALED',
  'BOOTSTRAP_FAILED',
  'UNSCHEDULABLE',
  'BACKEND_REJECTED',
  'INVALID_SPEC',
  'RESULT_MISSING',
  'RESULT_INVALID',
  'WATCH_LIMIT_EXCEEDED',
  'NODE_FAILED',
  'PREEMPTED',
  'NOT_FOUND',
  'USER_CANCELLED',
  'ADMIN_CANCELLED',
  'LEASE_LOST',
  'DUPLICATE',
  'ABANDONED',
  'SESSION_IDLE_TIMEOUT',
  'SESSION_MAX_LIFETIME_EXCEEDED',
] as const;
export const Reason = z.enum(REASONS);
export type Reason = z.infer<typeof Reason>;

/** Why somebody wants a job to end. Recorded as a wish; the job keeps its phase until the backend reports the end. */
export const CANCEL_REASONS = [
  'USER_CANCELLED',
  'ADMIN_CANCELLED',
  'LEASE_LOST',
  'DUPLICATE',
  'WATCH_LIMIT_EXCEEDED',
  'UNSCHEDULABLE',
  'SESSION_IDLE_TIMEOUT',
  'SESSION_MAX_LIFETIME_EXCEEDED',
] as const satisfies readonly Reason[];
export const CancelReason = z.enum(CANCEL_REASONS);
export type CancelReason = z.infer<typeof CancelReason>;

/**
 * Why a pending job waits: `queued` for its turn; `held` until a person releases it;
 * `never`: a reason that can not clear by itself.
 */
export const WAITING = ['queued', 'held', 'never'] as const;
export const Waiting = z.enum(WAITING);
export type Waiting = z.infer<typeof Waiting>;

/** The two places a backend can be asked; a backend without accounting answers from its queue alone. */
export const SOURCES = ['queue', 'accounting'] as const;
export const Source = z.enum(SOURCES);
export type Source = z.infer<typeof Source>;

/** 26 characters of Crockford base32 in lower case: a time-ordered unique part. */
const UNIQUE = '[0-9a-hjkmnp-tv-z]{26}';
export const JobId = z
  .string()
  .regex(new RegExp(`^job_${UNIQUE}$`))
  .brand<'JobId'>();
export type JobId = z.infer<typeof JobId>;
export const TaskId = z
  .string()
  .regex(new RegExp(`^task_${UNIQUE}$`))
  .brand<'TaskId'>();
export type TaskId = z.infer<typeof TaskId>;
/** The submission token: a job's identity outside. Minted and stored before the first submission (INV-8). */
export const Token = z
  .string()
  .regex(new RegExp(`^${UNIQUE}$`))
  .brand<'Token'>();
export type Token = z.infer<typeof Token>;
/** A step's identity, minted by whoever asks for it: asked for twice, it is the same step. */
export const StepId = z
  .string()
  .regex(new RegExp(`^step_${UNIQUE}$`))
  .brand<'StepId'>();
export type StepId = z.infer<typeof StepId>;

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/** Unix epoch ms at which an id's unique part was minted: its first ten characters. */
export function mintedAtMs(id: Token | JobId | TaskId): number {
  let ms = 0;
  for (const digit of id.slice(-26, -16)) ms = ms * 32 + ALPHABET.indexOf(digit);
  return ms;
}

/** A lease's fencing number; only grows; an old one is refused (INV-7). */
export const Epoch = z.int().positive().brand<'Epoch'>();
export type Epoch = z.infer<typeof Epoch>;

/** Names that pass through a scheduler's output are limited to this class (INV-9): nothing there is escaped. */
export const SafeName = z
  .string()
  .max(64, 'a name has at most 64 characters')
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._-]*$/,
    'a name starts with a letter or digit and has only letters, digits, ".", "_" and "-"',
  );

/**
 * A backend's own id for a job. `submittedAtMs` (Unix epoch ms) belongs to the identity: ids wrap and are used again
 * (INV-13). `cluster` is set when the backend has several and said which.
 */
export const Handle = z.strictObject({
  id: z.string().min(1).max(64),
  cluster: z.string().max(128).nullable(),
  submittedAtMs: z.number().int().nonnegative(),
});
export type Handle = z.infer<typeof Handle>;

export const sameHandle = (a: Handle, b: Handle): boolean => a.id === b.id && a.cluster === b.cluster;
