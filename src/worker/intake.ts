import { z } from 'zod';
import type { Backend, Profile } from '../backend.js';
import type { LeaseGrant } from '../coordinator/worker-api.js';
import type { JobCreated, JobEvent, JobPolicy } from '../machines/job-events.js';
import { SESSION_KIND, TRAINING_KIND } from '../machines/task-context.js';
import { JobId, SafeName, Token } from '../machines/vocabulary.js';
import { parametersCheck } from '../parameters.js';
import { uniquePart, type Random } from '../runtime/random.js';
import type { WorkerDeps } from './context.js';

/** The kinds of task that a profile serves: its script is run to an end, or its nodes are held for steps. */
export const kindsOf = ({ scriptPath, session }: Pick<Profile, 'scriptPath' | 'session'>): readonly string[] => [
  ...(scriptPath === null ? [] : [TRAINING_KIND]),
  ...(session === null ? [] : [SESSION_KIND]),
];

/** The kinds of task that this worker can run: sessions only if agents can dial in. */
export const servedBy = ({ sessions }: Pick<WorkerDeps, 'sessions'>): readonly string[] =>
  sessions === null ? [TRAINING_KIND] : [TRAINING_KIND, SESSION_KIND];

/** The payload of a `training` or a `session` task. */
export const TaskPayload = z.strictObject({
  profile: SafeName,
  parameters: z.record(z.string(), z.unknown()).default({}),
});

type Checked =
  | { readonly kind: 'fit'; readonly profile: Profile; readonly parameters: unknown }
  | { readonly kind: 'unfit'; readonly profileName: string; readonly detail: string };

/** Everything that can be wrong with a task before anything is submitted. */
export function checkTask(
  grant: LeaseGrant,
  profiles: ReadonlyMap<string, Profile>,
  kinds: readonly string[],
): Checked {
  if (!kinds.includes(grant.kind)) {
    return unfit('none', `no such kind: ${grant.kind}; this worker runs ${kinds.join(', ')}`);
  }
  const payload = TaskPayload.safeParse(grant.payload);
  if (!payload.success) return unfit('none', `payload does not fit: ${z.prettifyError(payload.error)}`);
  const { profile: name, parameters } = payload.data;
  const profile = profiles.get(name);
  if (profile === undefined) {
    return unfit(name, `unknown profile "${name}"; this worker offers ${[...profiles.keys()].join(', ')}`);
  }
  if (!kindsOf(profile).includes(grant.kind)) {
    return unfit(name, `profile "${name}" serves ${kindsOf(profile).join(' and ')} only, not ${grant.kind}`);
  }
  // What a session is to do is said by its steps.
  if (grant.kind === SESSION_KIND) return { kind: 'fit', profile, parameters };
  const problems = profile.parametersSchema === null ? [] : parametersCheck(profile.parametersSchema)(parameters);
  return problems.length > 0 ? unfit(name, problems.join('; ')) : { kind: 'fit', profile, parameters };
}

/** A kind that the log would not take is refused like any unknown one, with the text in the reason. */
const kindOf = ({ kind }: LeaseGrant): string => (SafeName.safeParse(kind).success ? kind : 'none');

const unfit = (profileName: string, detail: string): Checked => ({ kind: 'unfit', profileName, detail });

/** What the intake needs to know beside the grant. */
export interface IntakeContext {
  readonly profiles: ReadonlyMap<string, Profile>;
  readonly backend: Pick<Backend, 'timing' | 'sources'>;
  readonly random: Random;
  readonly nowMs: number;
  readonly watchLimitMs: number;
  /** What this worker runs: `servedBy`. */
  readonly kinds: readonly string[];
}

export interface NewJob {
  readonly created: JobCreated;
  readonly more: readonly JobEvent[];
}

function policyFor({ timing, sources }: IntakeContext['backend'], profile: Profile | null): JobPolicy {
  const heldFailsAfterS = profile?.heldFailsAfterS ?? null;
  return {
    settleMs: timing.settleMs,
    looks: timing.looks,
    sources,
    lossGraceMs: timing.lossGraceMs,
    lossLooks: timing.lossLooks,
    heldFailsAfterMs: heldFailsAfterS === null ? null : heldFailsAfterS * 1000,
  };
}

/** A session lives as long as its profile allows: the watch limit is for the time beside that, in the queue and after. */
const lifetimeMs = (kind: string, checked: Checked): number =>
  kind === SESSION_KIND && checked.kind === 'fit' ? (checked.profile.session?.maxLifetimeS ?? 0) * 1000 : 0;

/** The first events of a leased task's job. A task that can not run becomes a job that was rejected: it is delivered like any other end. */
export function jobForGrant(grant: LeaseGrant, context: IntakeContext): NewJob {
  const { nowMs, random } = context;
  const checked = checkTask(grant, context.profiles, context.kinds);
  const created: JobCreated = {
    type: 'job.created',
    v: 1,
    atMs: nowMs,
    jobId: JobId.parse(`job_${uniquePart(nowMs, random)}`),
    taskId: grant.taskId,
    epoch: grant.epoch,
    token: Token.parse(uniquePart(nowMs, random)),
    kind: kindOf(grant),
    profile: checked.kind === 'fit' ? checked.profile.name : checked.profileName,
    inherited: false,
    parameters: checked.kind === 'fit' ? checked.parameters : null,
    watchUntilMs: nowMs + context.watchLimitMs + lifetimeMs(grant.kind, checked),
    policy: policyFor(context.backend, checked.kind === 'fit' ? checked.profile : null),
  };
  if (checked.kind === 'fit') return { created, more: [] };
  const rejected: JobEvent = {
    type: 'submission.rejected',
    v: 1,
    atMs: nowMs,
    reason: 'INVALID_SPEC',
    detail: checked.detail.slice(0, 4000),
  };
  return { created, more: [rejected] };
}

/** How long another worker's own submission may still be under way, ms: it can not be looked at from here. */
const FOREIGN_ATTEMPT_MS = 180_000;

/**
 * The first events of a job that another worker opened and did not report as over: known by its token only, it is
 * looked for and ended before the task's next job starts (INV-3).
 */
export function inheritedJob(
  grant: LeaseGrant,
  open: LeaseGrant['openJobs'][number],
  context: Pick<IntakeContext, 'backend' | 'nowMs'>,
): NewJob {
  const { nowMs } = context;
  const policy = policyFor(context.backend, null);
  return {
    created: {
      type: 'job.created',
      v: 1,
      atMs: nowMs,
      jobId: open.jobId,
      taskId: grant.taskId,
      epoch: open.epoch,
      token: open.token,
      kind: kindOf(grant),
      profile: 'none',
      inherited: true,
      parameters: null,
      watchUntilMs: null,
      policy: { ...policy, settleMs: policy.settleMs + FOREIGN_ATTEMPT_MS },
    },
    more: [
      { type: 'submission.started', v: 1, atMs: nowMs, attempt: 1 },
      {
        type: 'submission.lost',
        v: 1,
        atMs: nowMs,
        cause: 'inherited',
        detail: `opened by worker ${open.worker} at epoch ${String(open.epoch)}`,
        hint: null,
      },
      { type: 'cancel.requested', v: 1, atMs: nowMs, reason: 'LEASE_LOST', by: 'the lease that followed' },
    ],
  };
}
