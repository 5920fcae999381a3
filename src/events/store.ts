import type { DomainEvent } from './schemas.js';

/** `job/<id>`, `task/<id>`, `session/<id>` or `backend/<name>`. */
export type StreamName = `${'job' | 'task' | 'session' | 'backend'}/${string}`;

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
 * not at the expected version (nothing of that append is written); `StoreError` for everything that the storage
 * refuses, naming the file and what to do.
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

export class VersionConflictError extends Error {
  override readonly name = 'VersionConflictError';
  constructor(
    readonly stream: StreamName,
    readonly expectedVersion: number,
    readonly actualVersion: number,
  ) {
    super(
      `${stream} is at version ${String(actualVersion)}, not at ${String(expectedVersion)}: somebody else wrote to it`,
    );
  }
}

export type StoreFault = 'locked' | 'networkFileSystem' | 'readOnly' | 'full' | 'corrupt' | 'io' | 'newerVersion';

/** The storage refused. `message` names the file and what to do. */
export class StoreError extends Error {
  override readonly name = 'StoreError';
  constructor(
    readonly fault: StoreFault,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
