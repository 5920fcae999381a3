import type { DomainEvent } from './schemas.js';
import type { StreamName } from './streams.js';

export { InvalidEventError, StoreError, VersionConflictError, type StoreFault } from './errors.js';
export type { StreamName } from './streams.js';

/** One event as the log keeps it. */
export interface RecordedEvent {
  /** Global, from 1, without gaps within one store. */
  readonly position: number;
  readonly stream: StreamName;
  /** In the stream, from 1. */
  readonly version: number;
  /** Unix epoch ms, when it was recorded. */
  readonly recordedAtMs: number;
  readonly writer: string;
  readonly event: DomainEvent;
}

/** Events for one stream; `expectedVersion` is that of the last event the writer knows (0: the stream is new). */
export interface Append {
  readonly stream: StreamName;
  readonly expectedVersion: number;
  readonly events: readonly DomainEvent[];
}

/** A saved projection: what it holds, and up to which position of the log. */
export interface Checkpoint {
  readonly position: number;
  readonly data: unknown;
}

/**
 * The log. `append` returns after its events are durable (INV-12). Errors: `VersionConflictError` when the stream is
 * not at the expected version (nothing of that append is written); `InvalidEventError` for an event that its schema
 * refuses; `StoreError` for everything that the storage refuses, naming the file and what to do.
 */
export interface EventStore {
  append(append: Append): Promise<readonly RecordedEvent[]>;
  /** Several streams in one transaction: all or nothing. */
  appendAll(appends: readonly Append[]): Promise<readonly RecordedEvent[]>;
  readStream(stream: StreamName, afterVersion?: number): Promise<readonly RecordedEvent[]>;
  /** In the order of position, from after `afterPosition`. Does not hold the whole log in memory. */
  readAll(afterPosition?: number): AsyncIterable<RecordedEvent>;
  lastPosition(): Promise<number>;
  saveCheckpoint(name: string, checkpoint: Checkpoint): Promise<void>;
  loadCheckpoint(name: string): Promise<Checkpoint | null>;
  close(): Promise<void>;
}
