import type { SessionContext } from './session-context.js';
import type { CancelReason } from './vocabulary.js';

/** INV-5: a session is ready when all four hold. */
export interface Readiness {
  readonly allocation: boolean;
  readonly workspace: boolean;
  /** Every rank is in. */
  readonly ranks: boolean;
  /** Every rank's agent answers. */
  readonly agent: boolean;
}

type Held = Pick<SessionContext, 'grantedAtMs' | 'workspace' | 'ranks' | 'ranksIn'>;

export function readinessOf({ grantedAtMs, workspace, ranks, ranksIn }: Held): Readiness {
  const allIn = ranksIn.length === ranks;
  return {
    allocation: grantedAtMs !== null,
    workspace,
    ranks: allIn,
    agent: allIn && ranksIn.every(({ answered }) => answered),
  };
}

export function isReady(held: Held): boolean {
  const { allocation, workspace, ranks, agent } = readinessOf(held);
  return allocation && workspace && ranks && agent;
}

/** So many ranks are named one by one; there may be thousands. */
const RANKS_NAMED = 8;

/** What is missing, for people: "3 of 4 ranks; waiting for rank 2". "ready" when nothing is. */
export function readinessWords(held: Held): string {
  const { allocation, workspace, ranks: allIn, agent } = readinessOf(held);
  const { ranks, ranksIn } = held;
  const parts = [
    ...(allocation ? [] : ['waiting for the allocation']),
    ...(workspace ? [] : ['waiting for the workspace']),
    ...(allIn || (!allocation && ranksIn.length === 0)
      ? []
      : [`${rankCount(held)}; waiting for ${missingRanks(held)}`]),
    ...(allIn && !agent ? [`${rankCount(held)}; waiting for an answer of ${unanswered(held)}`] : []),
  ];
  return parts.length === 0 ? `ready: ${String(ranks)} of ${String(ranks)} ranks` : parts.join('; ');
}

const rankCount = ({ ranks, ranksIn }: Held): string => `${String(ranksIn.length)} of ${String(ranks)} ranks`;

function missingRanks({ ranks, ranksIn }: Held): string {
  const known = new Set(ranksIn.map(({ rank }) => rank));
  return named(Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => !known.has(rank)));
}

const unanswered = ({ ranksIn }: Held): string =>
  named(ranksIn.filter(({ answered }) => !answered).map(({ rank }) => rank));

function named(ranks: readonly number[]): string {
  const some = ranks.slice(0, RANKS_NAMED).join(', ');
  const more = ranks.length > RANKS_NAMED ? ` and ${String(ranks.length - RANKS_NAMED)} more` : '';
  return `${ranks.length === 1 ? 'rank' : 'ranks'} ${some}${more}`;
}

/**
 * When the session ends if nobody does anything, Unix epoch ms; null while it holds nothing or a command of somebody's
 * runs. Only what users do moves it: no agent, connection or heartbeat does.
 */
export function idleEndsAtMs({ grantedAtMs, activeAtMs, openSteps, idleLimitMs }: SessionContext): number | null {
  if (grantedAtMs === null || openSteps.length > 0) return null;
  return Math.max(grantedAtMs, activeAtMs ?? 0) + idleLimitMs;
}

/** Counted from the first allocation, over all jobs of the session; waiting for one costs nothing. Unix epoch ms. */
export const lifetimeEndsAtMs = ({ firstGrantedAtMs, maxLifetimeMs }: SessionContext): number | null =>
  firstGrantedAtMs === null ? null : firstGrantedAtMs + maxLifetimeMs;

/** Which clock has run out, the earlier one first; null: none, or the session holds nothing that would have to end. */
export function expiredClock(
  context: SessionContext,
  nowMs: number,
): Extract<CancelReason, 'SESSION_IDLE_TIMEOUT' | 'SESSION_MAX_LIFETIME_EXCEEDED'> | null {
  if (context.ending !== null || context.end !== null) return null;
  const idleMs = idleEndsAtMs(context) ?? Number.POSITIVE_INFINITY;
  const lifetimeMs = lifetimeEndsAtMs(context) ?? Number.POSITIVE_INFINITY;
  if (nowMs < Math.min(idleMs, lifetimeMs)) return null;
  return idleMs <= lifetimeMs ? 'SESSION_IDLE_TIMEOUT' : 'SESSION_MAX_LIFETIME_EXCEEDED';
}
