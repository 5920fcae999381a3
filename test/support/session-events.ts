import { foldSession, type Session } from '../../src/machines/session-aggregate.js';
import type { SessionMachineEvent, SessionRequested, StepEnd } from '../../src/machines/session-events.js';
import type { CancelReason, Phase, Reason } from '../../src/machines/vocabulary.js';
import { epoch, jobId, stepId, taskId } from './ids.js';

/** Two ranks, an hour of idleness, ten of life. */
export const requested = (over: Partial<SessionRequested> = {}): SessionRequested => ({
  type: 'session.requested',
  v: 1,
  atMs: 1_000,
  taskId: taskId(),
  profile: 'gang',
  ranks: 2,
  idleLimitMs: 3_600_000,
  maxLifetimeMs: 36_000_000,
  ...over,
});

const at = (atMs: number) => ({ v: 1, atMs }) as const;

export const assigned = (n = 1, atMs = 2_000): SessionMachineEvent => ({
  type: 'session.jobAssigned',
  ...at(atMs),
  jobId: jobId(n),
  epoch: epoch(n),
});
export const granted = (atMs = 3_000): SessionMachineEvent => ({ type: 'allocation.granted', ...at(atMs) });
export const withdrawn = (atMs = 9_000): SessionMachineEvent => ({
  type: 'allocation.withdrawn',
  ...at(atMs),
  detail: 'queued again',
});
export const prepared = (atMs = 2_500): SessionMachineEvent => ({ type: 'workspace.prepared', ...at(atMs) });
export const registered = (rank: number, n = 1, atMs = 4_000): SessionMachineEvent => ({
  type: 'rank.registered',
  ...at(atMs),
  epoch: epoch(n),
  rank,
  node: `n${String(rank + 1)}`,
});
export const answered = (rank: number, n = 1, atMs = 4_100): SessionMachineEvent => ({
  type: 'rank.answered',
  ...at(atMs),
  epoch: epoch(n),
  rank,
});
export const left = (rank: number, n = 1, atMs = 5_000): SessionMachineEvent => ({
  type: 'rank.left',
  ...at(atMs),
  epoch: epoch(n),
  rank,
  detail: 'the connection was closed',
});
export const stepRequested = (n = 1, atMs = 6_000): SessionMachineEvent => ({
  type: 'step.requested',
  ...at(atMs),
  stepId: stepId(n),
  mode: 'exec',
  rank: 0,
  argv: ['hostname'],
  by: 'alice',
});
export const stepCancel = (n = 1, atMs = 6_500): SessionMachineEvent => ({
  type: 'step.cancelRequested',
  ...at(atMs),
  stepId: stepId(n),
  by: 'alice',
});
export const stepEnded = (n = 1, atMs = 7_000, how: StepEnd['how'] = 'exited'): SessionMachineEvent => ({
  type: 'step.ended',
  ...at(atMs),
  stepId: stepId(n),
  how,
  exitCode: how === 'exited' ? 0 : null,
  signal: null,
  detail: '',
  droppedBytes: 0,
});
export const activity = (atMs = 6_000): SessionMachineEvent => ({ type: 'activity.seen', ...at(atMs), what: 'input' });
export const ending = (reason: CancelReason = 'USER_CANCELLED', atMs = 8_000): SessionMachineEvent => ({
  type: 'session.ending',
  ...at(atMs),
  reason,
  by: 'alice',
});
export const interrupted = (n = 1, reason: Reason = 'NODE_FAILED', atMs = 8_500): SessionMachineEvent => ({
  type: 'session.interrupted',
  ...at(atMs),
  jobId: jobId(n),
  reason,
  detail: '',
});
export const ended = (
  phase: Phase = 'Cancelled',
  reason: Reason | null = 'USER_CANCELLED',
  atMs = 9_000,
): SessionMachineEvent => ({ type: 'session.ended', ...at(atMs), phase, reason, detail: '' });

/** All that a session of two ranks needs. */
export const READY: readonly SessionMachineEvent[] = [
  assigned(),
  prepared(),
  granted(),
  registered(0),
  registered(1),
  answered(0),
  answered(1),
];

export const sessionAfter = (...events: readonly SessionMachineEvent[]): Session =>
  foldSession([requested(), ...events]);
