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

/** In our words (INV-2): the scheduler's own go into the diagnostics, which only the gateway's administrator sees. */
const WORDS: readonly (readonly [pattern: RegExp, words: string])[] = [
  [/^Resources$/, 'waiting for free resources'],
  [/^Priority$/, 'waiting behind jobs of higher priority'],
  [/^BeginTime$/, 'waiting for its begin time'],
  [/^Dependency$/, 'waiting for another job'],
  [
    /^(?:ReqNodeNotAvail|Nodes? ?[Dd]own|PartitionDown|PartitionInactive|Nodes required for job are DOWN)/,
    'waiting for nodes that are out of service',
  ],
  [/^(?:QOS|Assoc|Max|Licenses)/, 'waiting: a limit of the site is reached'],
  [/^(?:Reservation|ReqNodeNotAvail, May be reserved)/, 'waiting for a reservation'],
];

/** For people, without a word of the scheduler's. */
export function waitingWhy(reason: string, waiting: Waiting): string {
  if (waiting === 'held') return 'held until a person releases it';
  if (waiting === 'never') return 'can never start: it asks for more than it may have here';
  return WORDS.find(([pattern]) => pattern.test(reason))?.[1] ?? 'waiting for its turn';
}
