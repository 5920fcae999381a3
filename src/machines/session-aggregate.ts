import { createFold } from './fold.js';
import { IllegalEventError } from './job-aggregate.js';
import type { SessionContext } from './session-context.js';
import type { SessionEvent, SessionMachineEvent, SessionRequested, SessionState } from './session-events.js';
import { sessionMachine, type SessionSnapshot } from './session.js';
import type { TaskId } from './vocabulary.js';

/** A session as its stream tells it. `version` is that of the last folded event. */
export interface Session {
  readonly snapshot: SessionSnapshot;
  readonly version: number;
}

const SAMPLE_INPUT: SessionRequested = {
  type: 'session.requested',
  v: 1,
  atMs: 0,
  taskId: 'task_00000000000000000000000000' as TaskId,
  profile: 'sample',
  ranks: 1,
  idleLimitMs: 1,
  maxLifetimeMs: 1,
};

const fold = createFold(sessionMachine, SAMPLE_INPUT);

export const sessionStateOf = (session: Session): SessionState => session.snapshot.value;
export const sessionContextOf = (session: Session): SessionContext => session.snapshot.context;

/**
 * Folds one stored event. Throws `IllegalEventError` if the state cannot take it: the log is corrupt, or a writer is
 * wrong (INV-12).
 */
export function evolveSession(session: Session | null, event: SessionEvent): Session {
  if (event.type === 'session.requested') {
    if (session !== null) throw illegal(session, event);
    return { snapshot: fold.initial(event), version: 1 };
  }
  if (session === null) throw new IllegalEventError(`${event.type} before session.requested`);
  const snapshot = fold.next(session.snapshot, event);
  if (snapshot === session.snapshot) throw illegal(session, event);
  return { snapshot, version: session.version + 1 };
}

/** Whether the session's state has a transition for the event; what `evolveSession` would refuse answers false. */
export const canSessionTake = (session: Session, event: SessionMachineEvent): boolean =>
  fold.next(session.snapshot, event) !== session.snapshot;

const illegal = (session: Session, event: SessionEvent): IllegalEventError =>
  new IllegalEventError(
    `${event.type} is illegal in ${session.snapshot.value} (session ${session.snapshot.context.taskId}, after version ${String(session.version)})`,
  );

/** Replays a whole stream. Throws on an empty one. */
export function foldSession(events: Iterable<SessionEvent>): Session {
  let session: Session | null = null;
  for (const event of events) session = evolveSession(session, event);
  if (session === null) throw new IllegalEventError('a session stream without events');
  return session;
}

/** A session's state as plain JSON, for people and programs that look. */
export interface StoredSession {
  readonly phase: SessionState;
  readonly context: SessionContext;
  readonly version: number;
}

export const storeSession = (session: Session): StoredSession => ({
  phase: session.snapshot.value,
  context: session.snapshot.context,
  version: session.version,
});
