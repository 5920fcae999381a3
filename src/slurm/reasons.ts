import type { Waiting } from '../machines/vocabulary.js';

/** Held until a person releases it. 26.05 and earlier also end free text in "requeued held". */
const HELD: ReadonlySet<string> = new Set([
  'JobHeldUser',
  'JobHeldAdmin',
  'JobHoldMaxRequeue',
  'ReservationDeleted',
  'job requeued in held state',
  // May clear when an account comes back into the controller's cache, so it is not "never"; a person has to look.
  'InvalidAccount',
  'InvalidQOS',
  // "Outside the limits", but also "the nodes it needs are down" (squeue(1)): it can clear.
  'PartitionNodeLimit',
]);

/** Cannot clear by itself: the job asks for what the cluster does not give, or depends on what cannot happen. */
const NEVER: ReadonlySet<string> = new Set([
  'DependencyNeverSatisfied',
  'BadConstraints',
  'PartitionTimeLimit',
  'AccountNotAllowed',
  'QOSNotAllowed',
]);

/** Limits on one job's own size, e.g. QOSMaxWallDurationPerJobLimit, AssocMaxMemPerNode, QOSMinCpuNotSatisfied. */
const NEVER_PATTERN = /^(?:(?:QOS|Assoc)Max[A-Za-z]*Per(?:Job(?:Limit)?|Node)|QOSMin[A-Za-z]+)$/;

/**
 * Why a pending job waits, from squeue's `%r`. `never` leads to a cancel that cannot be taken back, so only what is
 * sure is in it; a reason that is not known waits in the queue. Reasons may hold blanks, commas and brackets.
 */
export function waitingFor(reason: string): Waiting {
  if (HELD.has(reason) || reason.endsWith('requeued held')) return 'held';
  if (NEVER.has(reason) || NEVER_PATTERN.test(reason)) return 'never';
  return 'queued';
}

/** For people. */
export function waitingWhy(reason: string, waiting: Waiting): string {
  if (waiting === 'held') return `held until a person releases it (${reason})`;
  if (waiting === 'never') return `can never start (${reason})`;
  return reason === 'None' || reason === '' ? 'waiting for its turn' : `waiting (${reason})`;
}
