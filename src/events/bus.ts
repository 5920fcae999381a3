import { EventEmitter } from 'eventemitter3';
import type { DomainEvent } from './schemas.js';
import type { Append, EventStore, RecordedEvent } from './store.js';

type TypeName = DomainEvent['type'];

/** A recorded event of one type. */
export type RecordedOf<T extends TypeName> = RecordedEvent & { readonly event: Extract<DomainEvent, { type: T }> };

/** What it throws, or rejects with, goes to the bus's `onError` and to nobody else. */
export type Listener<R> = (recorded: R) => void | Promise<void>;

export type BusErrorHandler = (error: unknown, recorded: RecordedEvent) => void;

const EVERY = '*';

type Channels = { [T in TypeName]: [RecordedEvent] } & { [EVERY]: [RecordedEvent] };

/**
 * In-process subscribers, told of events after they are durable, in the order of the log. A subscriber that throws hurts
 * neither the writer nor other subscribers.
 */
export class EventBus {
  readonly #emitter = new EventEmitter<Channels>();
  readonly #onError: BusErrorHandler;

  constructor(onError: BusErrorHandler) {
    this.#onError = onError;
  }

  /** Tells `listener` of every event. Returns what ends that. */
  onEvery(listener: Listener<RecordedEvent>): () => void {
    return this.#on(EVERY, listener);
  }

  /** Tells `listener` of events of one type. Returns what ends that. */
  on<T extends TypeName>(type: T, listener: Listener<RecordedOf<T>>): () => void {
    return this.#on(type, (recorded) => (isOfType(recorded, type) ? listener(recorded) : undefined));
  }

  publish(events: readonly RecordedEvent[]): void {
    for (const recorded of events) {
      this.#emitter.emit(recorded.event.type, recorded);
      this.#emitter.emit(EVERY, recorded);
    }
  }

  #on(channel: TypeName | typeof EVERY, listener: Listener<RecordedEvent>): () => void {
    const guarded = (recorded: RecordedEvent): void => {
      const fail = (error: unknown): void => this.#onError(error, recorded);
      try {
        Promise.resolve(listener(recorded)).catch(fail);
      } catch (error) {
        fail(error);
      }
    };
    this.#emitter.on(channel, guarded);
    return () => {
      this.#emitter.off(channel, guarded);
    };
  }
}

const isOfType = <T extends TypeName>(recorded: RecordedEvent, type: T): recorded is RecordedOf<T> =>
  recorded.event.type === type;

/** The same store; what it appends is published once it is durable, before the append returns. */
export function withBus(store: EventStore, bus: EventBus): EventStore {
  const published = async (append: Promise<readonly RecordedEvent[]>): Promise<readonly RecordedEvent[]> => {
    const recorded = await append;
    bus.publish(recorded);
    return recorded;
  };
  return {
    append: (append: Append) => published(store.append(append)),
    appendAll: (appends: readonly Append[]) => published(store.appendAll(appends)),
    readStream: (stream, afterVersion) => store.readStream(stream, afterVersion),
    readAll: (afterPosition) => store.readAll(afterPosition),
    lastPosition: () => store.lastPosition(),
    saveCheckpoint: (name, checkpoint) => store.saveCheckpoint(name, checkpoint),
    loadCheckpoint: (name) => store.loadCheckpoint(name),
    close: () => store.close(),
  };
}
