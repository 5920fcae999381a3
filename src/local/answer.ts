import type { JobAnswer, SeenState } from '../backend.js';
import type { Handle } from '../machines/vocabulary.js';
import type { LocalState } from './job-state.js';
import type { Submission } from './registry.js';

/** A token is never used again, so it is the id; with the time of its submission it says all that the port asks for. */
export const handleOf = ({ token, submittedAtMs }: Submission): Handle => ({ id: token, cluster: null, submittedAtMs });

export const absent = (detail: string): JobAnswer => ({
  kind: 'absent',
  queue: 'absent',
  accounting: 'notKept',
  limitEndsAtMs: null,
  detail,
});

/** Says what a state is in the words of the port. `waitingWhy`: what a job that has not started waits for. */
export function answerOf(submission: Submission, state: LocalState, waitingWhy: string): JobAnswer {
  const seen = (what: SeenState, why: string, diagnostics: Readonly<Record<string, string>> = {}): JobAnswer => ({
    kind: 'seen',
    handle: handleOf(submission),
    source: 'queue',
    state: what,
    why,
    warnings: [],
    diagnostics: { state: state.kind, ...diagnostics },
    duplicates: [],
  });
  switch (state.kind) {
    case 'waiting':
      return seen({ phase: 'Pending', waiting: 'queued' }, waitingWhy);
    case 'running': {
      const why = state.cancelAskedAtMs === null ? '' : 'asked to end';
      return seen({ phase: 'Running', ending: state.cancelAskedAtMs !== null }, why, { pid: String(state.run.pid) });
    }
    case 'ended': {
      const { marker } = state;
      const diagnostics = { status: String(marker.status), signal: String(marker.signal ?? ''), stage: marker.stage };
      const [what, why] = outcomeOf(state);
      return seen(what, why, diagnostics);
    }
    case 'withdrawn':
      return seen({ phase: 'Cancelled', reason: 'USER_CANCELLED' }, 'cancelled before it started');
    case 'failedToStart':
      return seen({ phase: 'Failed', reason: 'BOOTSTRAP_FAILED' }, state.detail);
    case 'killed':
      return state.by === 'cancel'
        ? seen({ phase: 'Cancelled', reason: 'USER_CANCELLED' }, 'did not end when asked, and was killed')
        : seen({ phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' }, 'ran out of time and was killed');
    case 'vanished':
      return absent(state.detail);
    case 'unknown':
      return { kind: 'unanswered', detail: state.detail, queueAbsent: false };
  }
}

/** The time limit counts whatever the exit status says; a cancelled job that completed all the same has completed. */
function outcomeOf(state: Extract<LocalState, { readonly kind: 'ended' }>): readonly [SeenState, string] {
  const { marker, timedOut, cancelAsked } = state;
  const how =
    marker.signal === null ? `ended with status ${String(marker.status)}` : `ended by signal ${String(marker.signal)}`;
  if (timedOut) return [{ phase: 'Failed', reason: 'TIME_LIMIT_EXCEEDED' }, `ran out of time; ${how}`];
  if (marker.stage === 'bootstrap') return [{ phase: 'Failed', reason: 'BOOTSTRAP_FAILED' }, marker.detail];
  if (marker.status === 0) return [{ phase: 'Completed' }, how];
  if (cancelAsked) return [{ phase: 'Cancelled', reason: 'USER_CANCELLED' }, `cancelled; ${how}`];
  return [{ phase: 'Failed', reason: marker.signal === null ? 'EXIT_NONZERO' : 'SIGNALED' }, how];
}
