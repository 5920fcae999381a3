import type { SubmitReply } from '../backend.js';
import { clip, NAME_MAX } from '../events/schema-parts.js';
import type { JobEvent } from '../machines/job-events.js';

/** How long a submit limit ("not now") makes a job wait before it is tried again, ms. */
export const DEFERRAL_MS = { first: 15_000, max: 300_000 } as const;

/**
 * What the answer to a submission means for the log. Only a known "no" is a failure; everything that leaves it open
 * whether the request took effect is `submission.lost` (INV-8).
 */
export function decideSubmission(reply: SubmitReply, nowMs: number, deferralMs: number): JobEvent {
  const at = { v: 1, atMs: nowMs } as const;
  const hint = 'hint' in reply && reply.hint !== null ? clip(reply.hint, NAME_MAX) : null;
  switch (reply.kind) {
    case 'accepted':
      return { type: 'submission.accepted', ...at, handle: reply.handle };
    case 'refused':
      return { type: 'submission.rejected', ...at, reason: reply.reason, detail: clip(reply.detail) };
    case 'deferred':
      return {
        type: 'submission.deferred',
        ...at,
        notBeforeMs: nowMs + deferralMs,
        limit: clip(reply.limit),
        detail: clip(reply.detail),
      };
    case 'unreadable':
      return { type: 'submission.lost', ...at, cause: 'unreadable', detail: clip(reply.detail), hint };
    case 'timedOut':
      return { type: 'submission.lost', ...at, cause: 'timedOut', detail: clip(reply.detail), hint };
    case 'unreachable':
      return { type: 'submission.lost', ...at, cause: 'unreachable', detail: clip(reply.detail), hint };
  }
}
