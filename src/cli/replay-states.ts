import type { RecordedEvent, StreamName } from '../events/store.js';
import { evolveJob, isTerminal, phaseOf, storeJob, type Job, type StoredJob } from '../machines/job-aggregate.js';
import {
  evolveSession,
  sessionStateOf,
  storeSession,
  type Session,
  type StoredSession,
} from '../machines/session-aggregate.js';
import type { SessionEvent } from '../machines/session-events.js';
import type { BackendEvent } from '../machines/backend-events.js';
import type { JobEvent } from '../machines/job-events.js';
import {
  evolveTask,
  isTaskOver,
  storeTask,
  taskPhaseOf,
  type StoredTask,
  type Task,
} from '../machines/task-aggregate.js';
import type { TaskEvent } from '../machines/task-events.js';
import { CliError, messageOf } from './errors.js';
import { EXIT } from './exit-codes.js';

/** What a stream's events make of it, up to and with one of them. */
export type StreamState =
  | { readonly kind: 'job'; readonly stored: StoredJob; readonly over: boolean }
  | { readonly kind: 'task'; readonly stored: StoredTask; readonly over: boolean }
  | { readonly kind: 'session'; readonly stored: StoredSession; readonly over: boolean }
  /** A stream without a machine: its events are facts about a backend. */
  | { readonly kind: 'facts' };

export interface ReplayStep {
  readonly recorded: RecordedEvent;
  readonly state: StreamState;
  /** null: no machine, or the stream's first event. */
  readonly phaseBefore: string | null;
}

interface Recorded<E> extends RecordedEvent {
  readonly event: RecordedEvent['event'] & E;
}

/** Which events a stream holds is said by its name: the store accepts no others. */
export const hasJobEvent = (recorded: RecordedEvent): recorded is Recorded<JobEvent> =>
  recorded.stream.startsWith('job/');

const hasTaskEvent = (recorded: RecordedEvent): recorded is Recorded<TaskEvent> => recorded.stream.startsWith('task/');

export const hasSessionEvent = (recorded: RecordedEvent): recorded is Recorded<SessionEvent> =>
  recorded.stream.startsWith('session/');

/** What a backend's stream tells about its health. */
export const hasBackendEvent = (recorded: RecordedEvent): recorded is Recorded<BackendEvent> =>
  recorded.stream.startsWith('backend/');

/** Folds the streams of a log side by side, in the order of its positions. */
export class Replay {
  readonly #jobs = new Map<StreamName, Job>();
  readonly #tasks = new Map<StreamName, Task>();
  readonly #sessions = new Map<StreamName, Session>();

  /** Throws a `CliError` that names the place when the log says something that its state can not take. */
  step(recorded: RecordedEvent): ReplayStep {
    try {
      return this.#step(recorded);
    } catch (cause) {
      const { stream, version, position } = recorded;
      const place = `${stream}, version ${String(version)}, position ${String(position)}`;
      const hint = 'keep this log: it is damaged, or a program wrote to it that must not';
      throw new CliError(EXIT.storage, `the log can not be replayed at ${place}: ${messageOf(cause)}`, hint, { cause });
    }
  }

  #step(recorded: RecordedEvent): ReplayStep {
    const { stream } = recorded;
    if (hasJobEvent(recorded)) {
      const before = this.#jobs.get(stream) ?? null;
      const job = evolveJob(before, recorded.event);
      this.#jobs.set(stream, job);
      const state = { kind: 'job', stored: storeJob(job), over: isTerminal(job) } as const;
      return { recorded, state, phaseBefore: before === null ? null : phaseOf(before) };
    }
    if (hasTaskEvent(recorded)) {
      const before = this.#tasks.get(stream) ?? null;
      const task = evolveTask(before, recorded.event);
      this.#tasks.set(stream, task);
      const state = { kind: 'task', stored: storeTask(task), over: isTaskOver(task) } as const;
      return { recorded, state, phaseBefore: before === null ? null : taskPhaseOf(before) };
    }
    if (hasSessionEvent(recorded)) {
      const before = this.#sessions.get(stream) ?? null;
      const session = evolveSession(before, recorded.event);
      this.#sessions.set(stream, session);
      const over = sessionStateOf(session) === 'Ended';
      const state = { kind: 'session', stored: storeSession(session), over } as const;
      return { recorded, state, phaseBefore: before === null ? null : sessionStateOf(before) };
    }
    return { recorded, state: { kind: 'facts' }, phaseBefore: null };
  }
}
