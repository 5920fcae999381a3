import type { NoAnswer, Observations } from '../backend.js';
import { clip } from '../events/schema-parts.js';
import type { BackendEvent } from '../machines/backend-events.js';
import { SOURCES, type Source } from '../machines/vocabulary.js';

interface SourceHealth {
  /** Unix epoch ms of the first answer without a break since; null while it does not answer. */
  readonly healthySinceMs: number | null;
  readonly outageSinceMs: number | null;
}

export type Health = Readonly<Record<Source, SourceHealth>>;

/** Before the first poll nothing is known: neither healthy nor an outage. */
export const UNKNOWN_HEALTH: Health = {
  queue: { healthySinceMs: null, outageSinceMs: null },
  accounting: { healthySinceMs: null, outageSinceMs: null },
};

/** Which source did not answer in this poll. */
function outagesOf(seen: Observations): Readonly<Record<Source, NoAnswer | null>> {
  // A poll whose queue failed did not get as far as accounting: that says nothing about accounting.
  return { queue: seen.queueOutage, accounting: seen.queueOutage === null ? seen.outage : null };
}

/**
 * One poll's effect on the backend's health: events only where an outage begins or ends (INV-10), however many jobs
 * and however many polls lie between.
 */
export function decideHealth(
  health: Health,
  seen: Observations,
  nowMs: number,
  jobsKept: number,
): { readonly health: Health; readonly events: readonly BackendEvent[] } {
  const outages = outagesOf(seen);
  const events: BackendEvent[] = [];
  const next = { ...health };
  for (const part of SOURCES) {
    const was = health[part];
    const outage = outages[part];
    if (outage !== null) {
      if (was.outageSinceMs === null) {
        events.push({
          type: 'outage.began',
          v: 1,
          atMs: nowMs,
          part,
          kind: outage.kind,
          detail: clip(outage.detail),
          jobsKept,
        });
      }
      next[part] = { healthySinceMs: null, outageSinceMs: was.outageSinceMs ?? nowMs };
      continue;
    }
    if (part === 'accounting' && seen.queueOutage !== null) continue;
    if (was.outageSinceMs !== null) events.push({ type: 'outage.ended', v: 1, atMs: nowMs, part });
    next[part] = { healthySinceMs: was.healthySinceMs ?? nowMs, outageSinceMs: null };
  }
  return { health: next, events };
}
