import type { StepRequest } from '../../coordinator/session-api.js';
import { clip } from '../../events/schema-parts.js';
import { phaseOf, type Job } from '../../machines/job-aggregate.js';
import { sessionContextOf, sessionStateOf, type Session } from '../../machines/session-aggregate.js';
import { readinessWords } from '../../machines/session-rules.js';
import { wordsOf } from './session-view.js';

const OPEN_STEPS_MAX = 64;

export type Admission =
  /** `noticeDue`: what its user has to be told first. */
  | { readonly kind: 'admitted'; readonly noticeDue: string | null }
  /** Something is on its way that will make it possible. */
  | { readonly kind: 'notYet'; readonly detail: string }
  | { readonly kind: 'refused'; readonly detail: string };

const NO_ALLOCATION = 'a step runs only inside an allocation that the session holds, and never makes one';

/** Whether a step may start now. Pure. Only the job that is there and runs counts (INV-4), and only a ready session (INV-5). */
export function admission(session: Session | null, job: Job | null, request: StepRequest): Admission {
  if (session === null) return { kind: 'refused', detail: `this worker has no such session; ${NO_ALLOCATION}` };
  const context = sessionContextOf(session);
  const state = sessionStateOf(session);
  const jobIsOver = job !== null && ['Completed', 'Failed', 'Cancelled', 'Lost'].includes(phaseOf(job));
  if (state !== 'Ready' && state !== 'Starting')
    return { kind: 'refused', detail: `the session is not ready: ${wordsOf(session, jobIsOver)}; ${NO_ALLOCATION}` };
  if (job === null || phaseOf(job) !== 'Running')
    return { kind: 'refused', detail: `the session's job has ended, or does not run; ${NO_ALLOCATION}` };
  const problem = sizeProblem(request, context.ranks);
  if (problem !== null) return { kind: 'refused', detail: problem };
  if (context.openSteps.length >= OPEN_STEPS_MAX)
    return {
      kind: 'refused',
      detail: `${String(OPEN_STEPS_MAX)} steps run in this session already; wait for one to end`,
    };
  if (state === 'Starting') return { kind: 'notYet', detail: `the session is not ready: ${readinessWords(context)}` };
  return {
    kind: 'admitted',
    noticeDue: context.noticeDue
      ? clip(
          `this session came back as a new job (${context.lastLoss ?? 'its job was lost'}): what its processes had in memory is gone`,
        )
      : null,
  };
}

function sizeProblem(request: StepRequest, ranks: number): string | null {
  if (request.mode === 'exec')
    return request.rank < ranks
      ? null
      : `the session has ranks 0 to ${String(ranks - 1)}: there is no rank ${String(request.rank)}`;
  const nodes = request.nodes ?? 1;
  if (nodes > ranks) return `the session holds ${String(ranks)} nodes, not ${String(nodes)}`;
  return request.tasks !== null && request.tasks < nodes
    ? `${String(request.tasks)} tasks do not fill ${String(nodes)} nodes: ask for at least one on each`
    : null;
}
