import type { StepReply } from '../../backend.js';
import type { StepRequest } from '../../coordinator/session-api.js';
import { clip } from '../../events/schema-parts.js';
import type { AgentStepEnd } from '../../gateway/agent-port.js';
import type { SessionMachineEvent, StepEnd, StepMode } from '../../machines/session-events.js';

/** Words of a command line that the log keeps. */
const STEP_WORDS_MAX = 100;

/** The end of a step of which nothing was started. */
export const refusal = (detail: string): StepEnd => ({
  how: 'refused',
  exitCode: null,
  signal: null,
  detail: detail.slice(0, 4000),
  droppedBytes: 0,
});

/** The intention, as the log keeps it. */
export function requested(request: StepRequest, by: string, atMs: number): SessionMachineEvent {
  const { stepId, mode, argv } = request;
  const words = argv.slice(0, STEP_WORDS_MAX).map((word) => clip(word));
  const rank = request.mode === 'exec' ? request.rank : null;
  return { type: 'step.requested', v: 1, atMs, stepId, mode, rank, argv: words, by: clip(by, 200) };
}

export function endOfReply(reply: StepReply, droppedBytes: number): StepEnd {
  const none = { exitCode: null, signal: null, droppedBytes };
  switch (reply.kind) {
    case 'ended':
      return { how: 'exited', exitCode: reply.exitCode, signal: reply.signal, detail: '', droppedBytes };
    case 'stopped':
      return { how: reply.by === 'cancel' ? 'cancelled' : 'timeLimit', detail: '', ...none };
    case 'refused':
      return { how: 'refused', detail: clip(reply.detail), ...none };
    case 'timedOut':
    case 'unreachable':
      return {
        how: 'unknown',
        detail: clip(`the backend did not answer; it may not have run: ${reply.detail}`),
        ...none,
      };
  }
}

export function endOfAgent(end: AgentStepEnd, ownDropped: number): StepEnd {
  const none = { exitCode: null, signal: null, droppedBytes: ownDropped };
  switch (end.kind) {
    case 'notStarted':
      return { how: 'refused', detail: clip(end.detail), ...none };
    case 'lost':
      return { how: 'unknown', detail: clip(end.detail), ...none };
    case 'exited': {
      const { exitCode, signal } = end;
      const how = end.stoppedBy === 'itself' ? 'exited' : end.stoppedBy === 'cancel' ? 'cancelled' : 'timeLimit';
      return { how, exitCode, signal, detail: '', droppedBytes: end.droppedBytes + ownDropped };
    }
  }
}

/** The end of a step whose stream knows that it was asked for, and no more. */
export const NO_END_KNOWN: StepEnd = {
  how: 'unknown',
  exitCode: null,
  signal: null,
  detail: 'it was started before, and its end is not on record',
  droppedBytes: 0,
};

/** What is left of a command that its worker lost sight of. */
const LEFT: Readonly<Record<StepMode, string>> = {
  run: 'it may still run, as long as the session holds its nodes',
  exec: 'its agent ends it',
};

/** The end of a step that its worker lost sight of; `mode`: what held it goes on. */
export const outOfSight = (why: string, mode: StepMode | null): StepEnd => ({
  ...NO_END_KNOWN,
  detail: mode === null ? why : `${why}; ${LEFT[mode]}`,
});
