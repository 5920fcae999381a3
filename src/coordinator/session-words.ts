import { isTaskOver, liveLeaseOf, taskContextOf, taskPhaseOf, type Task } from '../machines/task-aggregate.js';
import type { Epoch, TaskId } from '../machines/vocabulary.js';
import { answer, no, type Answer } from './problems.js';
import type { SessionView, StepEnd } from './session-api.js';
import type { Holder } from './session-desk.js';

/** `Cancelled(SESSION_IDLE_TIMEOUT)`: how a task ended. */
function endOf(task: Task): string {
  const { reason } = taskContextOf(task);
  return reason === null ? taskPhaseOf(task) : `${taskPhaseOf(task)}(${reason})`;
}

const RULE = 'a step runs only inside an allocation that the session holds';

/**
 * INV-4: who holds the session's job, and sees to the rest; or why a step can not be passed on. `waiting`: what a queued
 * session waits for.
 */
export function allocationOf(task: Task, waiting: string | null): Answer<Holder> {
  const { taskId, cancel, abandon, openJobs } = taskContextOf(task);
  if (isTaskOver(task)) {
    return no('no_allocation', `the session ${taskId} has ended: ${endOf(task)}; ${RULE}`, 'start another session');
  }
  if (cancel !== null || abandon !== null) {
    const message = `the session ${taskId} is being ended, and takes no new steps; ${RULE}`;
    return no('no_allocation', message, 'start another session');
  }
  const lease = liveLeaseOf(task);
  if (lease === null) {
    const why = waiting === null ? '' : ` (${waiting})`;
    return no(
      'no_allocation',
      `the session ${taskId} is waiting for a worker${why}; ${RULE}`,
      'repeat it when the session is ready',
    );
  }
  if (openJobs.some(({ epoch }) => epoch === lease.epoch)) return answer(lease);
  return no(
    'no_allocation',
    `the session ${taskId} has no job yet: worker ${lease.worker} has just taken it; ${RULE}`,
    'repeat it when the session is ready',
  );
}

/** INV-7: the step belonged to a job that is gone; another one never takes it over. */
export const otherJob = (taskId: TaskId, asked: number, current: number): Answer<never> =>
  no(
    'no_allocation',
    `the session ${taskId} has come back as a new job (epoch ${String(current)}, and not ${String(asked)}): what became of the step nobody can say`,
    'what its processes had in memory is gone; see whether the command is to run again',
  );

const NOTHING = { allocation: false, workspace: false, ranks: false, agent: false };

/** A worker speaks every few seconds, if only to renew its leases. */
const SILENT_MS = 30_000;

/**
 * The worker's newest word about a session, put right where the coordinator knows better: it is over, it waits again, it
 * is asked to end, or its worker has not been heard for `silentMs`.
 */
export function shownView(task: Task, epoch: Epoch, view: SessionView, silentMs: number): SessionView {
  if (isTaskOver(task)) {
    if (view.state === 'Ended') return view;
    const { reason, endedAtMs } = taskContextOf(task);
    return { ...gone(view, endedAtMs), state: 'Ended', words: `ended: ${endOf(task)}`, reason };
  }
  const lease = liveLeaseOf(task);
  if (lease?.epoch === epoch) {
    const silent =
      silentMs < SILENT_MS
        ? []
        : [`worker ${lease.worker} has not been heard for ${String(Math.round(silentMs / 1000))} s`];
    const { cancel } = taskContextOf(task);
    const isTold = view.state === 'Ending' || view.state === 'Ended';
    const wished = cancel === null || isTold ? [] : [`asked to end by ${cancel.by}`];
    if (silent.length + wished.length === 0) return view;
    const words = [...wished, ...silent, `last heard: ${view.words}`].join('; ').slice(0, 4000);
    // Whether its agents answer nobody can say.
    const readiness = silent.length === 0 ? view.readiness : { ...view.readiness, agent: false };
    const state = silent.length > 0 && view.state === 'Ready' ? 'Starting' : view.state;
    return { ...view, readiness, state, words };
  }
  return { ...gone(view, null), state: 'Interrupted', words: 'its job is gone; it waits for a new one' };
}

/** Without all that was held; what became of its steps, nobody has said. */
const gone = (view: SessionView, atMs: number | null): SessionView => ({
  ...view,
  readiness: NOTHING,
  ranksIn: [],
  idleEndsAtMs: null,
  lifetimeEndsAtMs: null,
  steps: view.steps.map((step) => (step.end === null ? { ...step, end: NOT_SAID, endedAtMs: atMs } : step)),
});

const NOT_SAID: StepEnd = {
  how: 'unknown',
  exitCode: null,
  signal: null,
  detail: "the session's job is gone",
  droppedBytes: 0,
};
