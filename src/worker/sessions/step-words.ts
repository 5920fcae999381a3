import type { StepReply } from '../../backend.js';
import type { StepRequest } from '../../coordinator/session-api.js';
import { clip } from '../../events/schema-parts.js';
import type { AgentStepEnd } from '../../gateway/agent-port.js';
import type { SessionMachineEvent, StepEnd } from '../../machines/session-events.js';

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
