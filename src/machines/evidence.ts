import type { JobContext, LookupEvidence } from './job-context.js';
import type { CancelReason, Source, TerminalPhase } from './vocabulary.js';

const looksAt = (lookup: LookupEvidence, source: Source): number =>
  source === 'queue' ? lookup.queueLooks : lookup.accountingLooks;

/** One condition of the conclusive negative, in words for `explain`. */
export interface Condition {
  readonly what: string;
  readonly met: boolean;
}

/**
 * The conditions under which a lost submission may be sent again (INV-8): the attempt's processes have ended, each
 * source said "not here" often enough, and between the first and the last of these answers, counted from the end of
 * the processes, lies the settling time in which a request still in flight would have shown.
 */
export function disproofConditions({ lookup, policy }: Pick<JobContext, 'lookup' | 'policy'>): readonly Condition[] {
  if (lookup === null) return [{ what: 'the submission is not in doubt', met: false }];
  const { endedAtMs, firstLookAtMs, lastLookAtMs } = lookup;
  const spanMs =
    endedAtMs === null || firstLookAtMs === null || lastLookAtMs === null
      ? 0
      : lastLookAtMs - Math.max(endedAtMs, firstLookAtMs);
  return [
    { what: 'every process of the attempt has ended', met: endedAtMs !== null },
    ...policy.sources.map((source) => ({
      what: `${source} said "not here" ${String(looksAt(lookup, source))} of ${String(policy.looks)} times`,
      met: looksAt(lookup, source) >= policy.looks,
    })),
    {
      what: `the answers span ${String(Math.max(0, spanMs))} of ${String(policy.settleMs)} ms of settling time`,
      met: endedAtMs !== null && firstLookAtMs !== null && spanMs >= policy.settleMs,
    },
  ];
}

export const isDisproved = (context: Pick<JobContext, 'lookup' | 'policy'>): boolean =>
  disproofConditions(context).every((condition) => condition.met);

/** Absence is Lost only after several healthy answers over a grace period (INV-11). */
export function isLossConfirmed({ loss, policy }: Pick<JobContext, 'loss' | 'policy'>): boolean {
  return loss !== null && loss.looks >= policy.lossLooks && loss.lastAtMs - loss.firstAtMs >= policy.lossGraceMs;
}

/** Where a job goes that was cancelled for `reason`: some wishes are our verdict on the job, not a person's change of mind. */
export const CANCEL_OUTCOME = {
  USER_CANCELLED: 'Cancelled',
  ADMIN_CANCELLED: 'Cancelled',
  LEASE_LOST: 'Cancelled',
  DUPLICATE: 'Cancelled',
  WATCH_LIMIT_EXCEEDED: 'Failed',
  UNSCHEDULABLE: 'Failed',
  SESSION_IDLE_TIMEOUT: 'Cancelled',
  SESSION_MAX_LIFETIME_EXCEEDED: 'Cancelled',
} as const satisfies Record<CancelReason, TerminalPhase>;
