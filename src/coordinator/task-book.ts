import type { DomainEvent } from '../events/schemas.js';
import {
  StoreError,
  VersionConflictError,
  type Append,
  type EventStore,
  type RecordedEvent,
  type StreamName,
} from '../events/store.js';
import { evolveTask, foldTask, isTaskOver, type Task } from '../machines/task-aggregate.js';
import type { TaskEvent } from '../machines/task-events.js';
import { TaskId } from '../machines/vocabulary.js';
import type { Decision } from './commands.js';
import { KeyedLocks } from './keyed-locks.js';

/** How often a command is decided anew when somebody else wrote to its stream in between. */
const TRIES_MAX = 8;
/** Tasks that are over and were read or written lately. */
const RECENT_MAX = 1000;

export const streamOf = (taskId: TaskId): StreamName => `task/${taskId}`;

const STREAM_PREFIX = 'task/';

/** The task that a stream belongs to; null for the other streams of a log. */
export function taskIdOf(stream: StreamName): TaskId | null {
  return stream.startsWith(STREAM_PREFIX) ? TaskId.parse(stream.slice(STREAM_PREFIX.length)) : null;
}

export const isTaskEvent = (event: DomainEvent): event is TaskEvent => event.type.startsWith('task.');

export interface TaskCommand {
  readonly taskId: TaskId;
  /** null: there is no such task. */
  readonly decide: (task: Task | null) => Decision;
}

export interface Decided {
  readonly decision: Decision;
  /** As it is after the command, null when there is no such task. */
  readonly task: Task | null;
}

/** One event that has become durable, and what it made of its task. */
export interface Change {
  readonly recorded: RecordedEvent;
  readonly event: TaskEvent;
  readonly before: Task | null;
  readonly task: Task;
}

/** Somebody else keeps writing to the same stream. */
export class BusyError extends Error {
  override readonly name = 'BusyError';
}

/**
 * The tasks as their streams tell them: those that go on in memory, the others read when asked for. Every command is
 * decided on the newest state, appended with the expected version, and folded after it is durable (INV-12).
 */
export class TaskBook {
  readonly #store: EventStore;
  readonly #onChange: (change: Change) => void;
  readonly #onIdle: () => void;
  readonly #live = new Map<TaskId, Task>();
  readonly #recent = new Map<TaskId, Task>();
  readonly #locks = new KeyedLocks<TaskId>();
  #inFlight = 0;

  /** `onChange`: after each event, in the order of each stream. `onIdle`: no append is under way any more. */
  constructor(store: EventStore, onChange: (change: Change) => void, onIdle: () => void) {
    this.#store = store;
    this.#onChange = onChange;
    this.#onIdle = onIdle;
  }

  /** Tasks that are not over. */
  get live(): ReadonlyMap<TaskId, Task> {
    return this.#live;
  }

  /** Whether everything that is durable is also in memory. */
  get isIdle(): boolean {
    return this.#inFlight === 0;
  }

  /** A task from a checkpoint. */
  restore(taskId: TaskId, task: Task): void {
    this.#live.set(taskId, task);
  }

  /** Folds an event that the log holds already. Throws `IllegalEventError` on one that does not fit its task. */
  replay(recorded: RecordedEvent): void {
    this.#fold(recorded);
  }

  async get(taskId: TaskId): Promise<Task | null> {
    const known = this.#live.get(taskId) ?? this.#recent.get(taskId);
    if (known !== undefined) return known;
    const events = (await this.#store.readStream(streamOf(taskId))).map(({ event }) => event).filter(isTaskEvent);
    if (events.length === 0) return null;
    const task = this.#live.get(taskId) ?? foldTask(events);
    if (isTaskOver(task)) this.#remember(taskId, task);
    return task;
  }

  async runOne(command: TaskCommand): Promise<Decided> {
    const [decided] = await this.run([command]);
    if (decided === undefined) throw new Error('a command without a decision');
    return decided;
  }

  /**
   * Decides all commands in order and appends what they add in one transaction. `isNew`: the tasks are expected not to
   * exist, so the log is not asked. Throws `BusyError`, or the store's own errors: then nothing was added.
   */
  async run(commands: readonly TaskCommand[], isNew = false): Promise<readonly Decided[]> {
    const ids = [...new Set(commands.map(({ taskId }) => taskId))];
    const release = await this.#locks.acquire(ids);
    try {
      const loaded = isNew ? new Map<TaskId, Task>() : await this.#load(ids);
      for (let tries = 0; tries < TRIES_MAX; tries += 1) {
        const { decided, appends } = this.#decide(commands, loaded);
        if (appends.length === 0 || (await this.#append(appends, loaded))) return decided;
      }
    } finally {
      release();
    }
    throw new BusyError(`somebody else keeps writing to ${ids.slice(0, 3).join(', ')}`);
  }

  /** Those that are over; the others are in memory anyway. */
  async #load(ids: readonly TaskId[]): Promise<ReadonlyMap<TaskId, Task>> {
    const loaded = new Map<TaskId, Task>();
    for (const id of ids) {
      const task = this.#live.has(id) ? null : await this.get(id);
      if (task !== null) loaded.set(id, task);
    }
    return loaded;
  }

  #decide(
    commands: readonly TaskCommand[],
    loaded: ReadonlyMap<TaskId, Task>,
  ): { decided: Decided[]; appends: Append[] } {
    const known = (taskId: TaskId): Task | null => this.#known(taskId) ?? loaded.get(taskId) ?? null;
    const tasks = new Map<TaskId, Task | null>();
    const added = new Map<TaskId, TaskEvent[]>();
    const outcomes: { taskId: TaskId; decision: Decision }[] = [];
    for (const { taskId, decide } of commands) {
      let task = tasks.get(taskId) ?? known(taskId);
      const decision = decide(task);
      outcomes.push({ taskId, decision });
      if (decision.kind === 'append') {
        for (const event of decision.events) task = evolveTask(task, event);
        added.set(taskId, [...(added.get(taskId) ?? []), ...decision.events]);
      }
      tasks.set(taskId, task);
    }
    return {
      decided: outcomes.map(({ taskId, decision }) => ({ decision, task: tasks.get(taskId) ?? null })),
      appends: [...added].map(([taskId, events]) => ({
        stream: streamOf(taskId),
        expectedVersion: known(taskId)?.version ?? 0,
        events,
      })),
    };
  }

  #known(taskId: TaskId): Task | null {
    return this.#live.get(taskId) ?? this.#recent.get(taskId) ?? null;
  }

  /** false: somebody else wrote to one of the streams; what they wrote is taken in, nothing was added. */
  async #append(appends: readonly Append[], loaded: ReadonlyMap<TaskId, Task>): Promise<boolean> {
    this.#inFlight += 1;
    try {
      const [first] = appends;
      const recorded =
        appends.length === 1 && first !== undefined
          ? await this.#store.append(first)
          : await this.#store.appendAll(appends);
      for (const one of recorded) this.#fold(one, loaded);
      return true;
    } catch (error) {
      if (error instanceof VersionConflictError) {
        await this.#catchUp(error.stream, loaded);
        return false;
      }
      // It may come after the events were written; a task that memory lacks would wait for ever.
      const isOpen = error instanceof StoreError && error.fault === 'io';
      if (isOpen) for (const { stream } of appends) await this.#catchUp(stream, loaded);
      throw error;
    } finally {
      this.#inFlight -= 1;
      if (this.#inFlight === 0) this.#onIdle();
    }
  }

  /** Takes in what the log has of a stream and memory has not. */
  async #catchUp(stream: StreamName, loaded: ReadonlyMap<TaskId, Task>): Promise<void> {
    const taskId = taskIdOf(stream);
    if (taskId === null) throw new Error(`${stream} is not the stream of a task`);
    const known = this.#known(taskId) ?? loaded.get(taskId) ?? null;
    for (const one of await this.#store.readStream(stream, known?.version ?? 0)) this.#fold(one, loaded);
  }

  /** `loaded`: tasks that this event may be the first one of that comes by here, as the log had them before it. */
  #fold(recorded: RecordedEvent, loaded: ReadonlyMap<TaskId, Task> = new Map()): void {
    const taskId = taskIdOf(recorded.stream);
    if (taskId === null || !isTaskEvent(recorded.event)) return;
    this.#take(taskId, recorded, recorded.event, this.#known(taskId) ?? loaded.get(taskId) ?? null);
  }

  #take(taskId: TaskId, recorded: RecordedEvent, event: TaskEvent, before: Task | null): void {
    const task = evolveTask(before, event);
    if (isTaskOver(task)) {
      this.#live.delete(taskId);
      this.#remember(taskId, task);
    } else {
      this.#live.set(taskId, task);
    }
    this.#onChange({ recorded, event, before, task });
  }

  #remember(taskId: TaskId, task: Task): void {
    this.#recent.delete(taskId);
    this.#recent.set(taskId, task);
    if (this.#recent.size <= RECENT_MAX) return;
    for (const oldest of this.#recent.keys()) {
      this.#recent.delete(oldest);
      break;
    }
  }
}
