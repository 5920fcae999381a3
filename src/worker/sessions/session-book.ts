import { isSessionEvent } from '../../events/schemas.js';
import { VersionConflictError, type EventStore } from '../../events/store.js';
import { canSessionTake, evolveSession, sessionContextOf, type Session } from '../../machines/session-aggregate.js';
import type { SessionEvent, SessionMachineEvent, SessionRequested, StepEnd } from '../../machines/session-events.js';
import type { StepId, TaskId } from '../../machines/vocabulary.js';

/** How often an append is decided anew when the stream turned out to be further than memory. */
const TRIES_MAX = 3;

/**
 * The sessions that this worker has jobs for, as their streams tell them. Events are folded after they are durable
 * (INV-12); those of one session are recorded one after the other, each decided on what the one before has left.
 */
export class SessionBook {
  readonly #store: EventStore;
  readonly #onChange: (taskId: TaskId) => void;
  readonly #sessions = new Map<TaskId, Session>();
  /** Every step that a session's stream knows of: a context remembers the newest ones only. */
  readonly #steps = new Map<TaskId, Set<StepId>>();
  readonly #turns = new Map<TaskId, Promise<unknown>>();

  constructor(store: EventStore, onChange: (taskId: TaskId) => void) {
    this.#store = store;
    this.#onChange = onChange;
  }

  get(taskId: TaskId): Session | null {
    return this.#sessions.get(taskId) ?? null;
  }

  all(): IterableIterator<[TaskId, Session]> {
    return this.#sessions.entries();
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Reads the stream, if this is the first that is asked of it. null: there is none. Throws `StoreError`. */
  async load(taskId: TaskId): Promise<Session | null> {
    return this.get(taskId) ?? (await this.#read(taskId));
  }

  /** The session, made if its stream does not exist yet. */
  async open(requested: SessionRequested): Promise<Session> {
    const { taskId } = requested;
    return this.#inTurn(taskId, async () => {
      const known = await this.load(taskId);
      if (known !== null) return known;
      await this.#store.append({ stream: `session/${taskId}`, expectedVersion: 0, events: [requested] });
      return this.#keep(taskId, evolveSession(null, requested));
    });
  }

  /**
   * Records what `decide` makes of the newest state, as far as that state takes it: a rank that leaves a session that
   * has ended is no news. Resolves with what was recorded.
   */
  async record(
    taskId: TaskId,
    decide: (session: Session) => readonly SessionMachineEvent[],
  ): Promise<readonly SessionMachineEvent[]> {
    return this.#inTurn(taskId, async () => {
      for (let tries = 1; ; tries += 1) {
        const session = await this.load(taskId);
        if (session === null) return [];
        let next = session;
        const events: SessionMachineEvent[] = [];
        for (const event of decide(session)) {
          if (!canSessionTake(next, event)) continue;
          next = evolveSession(next, event);
          events.push(event);
        }
        if (events.length === 0) return [];
        try {
          await this.#store.append({ stream: `session/${taskId}`, expectedVersion: session.version, events });
        } catch (error) {
          // An append that seemed to fail had landed: memory is behind the log.
          if (!(error instanceof VersionConflictError) || tries >= TRIES_MAX) throw error;
          await this.#read(taskId);
          continue;
        }
        this.#noteSteps(taskId, events);
        this.#keep(taskId, next);
        return events;
      }
    });
  }

  /** Whether the session's stream knows of this step; the session has been loaded. */
  knowsStep(taskId: TaskId, stepId: StepId): boolean {
    return this.#steps.get(taskId)?.has(stepId) === true;
  }

  /** How a step ended, as the stream tells it; null: it does not know of such an end. */
  async endOf(taskId: TaskId, stepId: StepId): Promise<StepEnd | null> {
    for (const { event } of await this.#store.readStream(`session/${taskId}`)) {
      if (event.type !== 'step.ended' || event.stepId !== stepId) continue;
      const { how, exitCode, signal, detail, droppedBytes } = event;
      return { how, exitCode, signal, detail, droppedBytes };
    }
    return null;
  }

  /** Leaves memory; the stream says what it was. */
  drop(taskId: TaskId): void {
    this.#sessions.delete(taskId);
    this.#steps.delete(taskId);
  }

  #noteSteps(taskId: TaskId, events: readonly SessionEvent[]): void {
    const known = this.#steps.get(taskId) ?? new Set<StepId>();
    for (const event of events) if (event.type === 'step.requested') known.add(event.stepId);
    this.#steps.set(taskId, known);
  }

  #keep(taskId: TaskId, session: Session): Session {
    this.#sessions.set(taskId, session);
    this.#onChange(taskId);
    return session;
  }

  async #read(taskId: TaskId): Promise<Session | null> {
    const events = (await this.#store.readStream(`session/${taskId}`)).map(({ event }) => event).filter(isSessionEvent);
    const session = events.reduce<Session | null>(evolveSession, null);
    this.#noteSteps(taskId, events);
    return session === null ? null : this.#keep(sessionContextOf(session).taskId, session);
  }

  async #inTurn<T>(taskId: TaskId, run: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(taskId) ?? Promise.resolve();
    const mine = before.then(run);
    const settled = mine.catch(() => undefined);
    this.#turns.set(taskId, settled);
    try {
      return await mine;
    } finally {
      if (this.#turns.get(taskId) === settled) this.#turns.delete(taskId);
    }
  }
}
