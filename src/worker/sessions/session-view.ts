import type { SessionView, StepView } from '../../coordinator/session-api.js';
import { clip } from '../../events/schema-parts.js';
import { sessionContextOf, sessionStateOf, type Session } from '../../machines/session-aggregate.js';
import type { SessionContext, Step } from '../../machines/session-context.js';
import { idleEndsAtMs, lifetimeEndsAtMs, readinessOf, readinessWords } from '../../machines/session-rules.js';

/** Of each command this much is shown. */
const SHOWN = { words: 12, chars: 120 } as const;

/** A session as its users see it. `jobIsOver`: the backend has reported the end of its job; the rest is tidying up. */
export function viewOf(session: Session, jobIsOver: boolean): SessionView {
  const context = sessionContextOf(session);
  const state = sessionStateOf(session);
  return {
    taskId: context.taskId,
    profile: context.profile,
    state: jobIsOver && (state === 'Ready' || state === 'Starting' || state === 'Waiting') ? 'Ending' : state,
    jobId: context.jobId,
    epoch: context.epoch,
    readiness: { ...readinessOf(context) },
    words: clip(wordsOf(session, jobIsOver)),
    ranks: context.ranks,
    ranksIn: context.ranksIn.map(({ rank, node }) => ({ rank, node })),
    grantedAtMs: context.grantedAtMs,
    idleEndsAtMs: context.ending === null ? idleEndsAtMs(context) : null,
    lifetimeEndsAtMs: lifetimeEndsAtMs(context),
    recoveries: context.recoveries,
    lastLoss: context.lastLoss,
    reason: context.end?.reason ?? context.ending?.reason ?? null,
    steps: [...context.pastSteps, ...context.openSteps].map(stepView),
  };
}

/** Why the session is where it is, in one line. */
export function wordsOf(session: Session, jobIsOver: boolean): string {
  const context = sessionContextOf(session);
  const { ending, end, lastLoss, openSteps } = context;
  switch (sessionStateOf(session)) {
    case 'Ended':
      return `ended: ${endWords(end)}`;
    case 'Interrupted':
      return `its job was lost (${lastLoss ?? 'nobody knows why'}); what its processes had in memory is gone, and it waits for another job`;
    case 'Ending':
      return openSteps.length === 0
        ? `ending: ${String(ending?.reason)}; its nodes are being given back`
        : `ending: ${String(ending?.reason)}; ${String(openSteps.length)} steps are being ended`;
    default:
      return jobIsOver ? 'its job has ended' : readinessWords(context);
  }
}

const endWords = (end: SessionContext['end']): string =>
  end === null
    ? ''
    : [end.reason === null ? end.phase : `${end.phase}(${end.reason})`, end.detail].filter(Boolean).join(': ');

function stepView({ stepId, mode, rank, argv, by, requestedAtMs, end, endedAtMs }: Step): StepView {
  const words = argv.slice(0, SHOWN.words).map((word) => clip(word, SHOWN.chars));
  return { stepId, mode, rank, argv: words, by, requestedAtMs, end, endedAtMs };
}
