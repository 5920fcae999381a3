import { StoreError, VersionConflictError } from './errors.js';
import { importInto, type ImportReport, type ImportTarget } from './import.js';
import { prepare } from './prepare.js';
import { storedEvent } from './schemas.js';
import type { Append, Checkpoint, EventStore, RecordedEvent } from './store.js';
import type { StreamName } from './streams.js';

/** Called around each append; what it throws is what the writer gets. After `after` the events are in the log. */
export type FaultHook = (when: 'before' | 'after', appends: readonly Append[]) => void;

export interface MemoryStoreOptions {
  readonly writer: string;
  /** Unix epoch ms. */
  readonly nowMs: () => number;
  readonly onAppend?: FaultHook;
}

/** What outlives the process that writes it. */
interface Log {
  readonly events: RecordedEvent[];
  readonly streams: Map<StreamName, RecordedEvent[]>;
  readonly checkpoints: Map<string, { readonly position: number; readonly json: string }>;
}

const emptyLog = (): Log => ({ events: [], streams: new Map(), checkpoints: new Map() });

/**
 * The log in memory, for tests and the simulation: it keeps what JSON keeps, and gives out frozen events, so that nobody
 * shares anything with anybody. `reopen` is the crash of its user: the log stays, the old store refuses everything.
 */
export class MemoryEventStore implements EventStore, ImportTarget {
  readonly #options: MemoryStoreOptions;
  readonly #log: Log;
  #open = true;

  constructor(options: MemoryStoreOptions, log: Log = emptyLog()) {
    this.#options = options;
    this.#log = log;
  }

  append(append: Append): Promise<readonly RecordedEvent[]> {
    return this.appendAll([append]);
  }

  appendAll(appends: readonly Append[]): Promise<readonly RecordedEvent[]> {
    return this.#answer(() => {
      const prepared = appends.map(prepare);
      this.#options.onAppend?.('before', appends);
      const ends = new Map<StreamName, number>();
      for (const { stream, expectedVersion, events } of prepared) {
        const version = ends.get(stream) ?? this.#log.streams.get(stream)?.length ?? 0;
        if (version !== expectedVersion) throw new VersionConflictError(stream, expectedVersion, version);
        ends.set(stream, version + events.length);
      }
      const recordedAtMs = this.#options.nowMs();
      const recorded = prepared.flatMap(({ stream, events }) =>
        events.map(({ json }) =>
          this.#put({ stream, recordedAtMs, writer: this.#options.writer, event: storedEvent(json) }),
        ),
      );
      this.#options.onAppend?.('after', appends);
      return recorded;
    });
  }

  importRecorded(records: Iterable<RecordedEvent>): Promise<ImportReport> {
    return this.#answer(() => {
      const incoming: RecordedEvent[] = [];
      const report = importInto(
        {
          versionOf: (stream) => this.#log.streams.get(stream)?.length ?? 0,
          read: (stream, version) => this.#log.streams.get(stream)?.[version - 1],
          put: (record) => incoming.push(record),
        },
        records,
      );
      for (const { stream, recordedAtMs, writer, event } of incoming)
        this.#put({ stream, recordedAtMs, writer, event: storedEvent(JSON.stringify(event)) });
      return report;
    });
  }

  readStream(stream: StreamName, afterVersion = 0): Promise<readonly RecordedEvent[]> {
    return this.#answer(() => this.#log.streams.get(stream)?.slice(afterVersion) ?? []);
  }

  async *readAll(afterPosition = 0): AsyncIterable<RecordedEvent> {
    for (let index = afterPosition; ; index += 1) {
      const record = await this.#answer(() => this.#log.events[index]);
      if (record === undefined) return;
      yield record;
    }
  }

  lastPosition(): Promise<number> {
    return this.#answer(() => this.#log.events.length);
  }

  saveCheckpoint(name: string, { position, data }: Checkpoint): Promise<void> {
    return this.#answer(() => {
      this.#log.checkpoints.set(name, { position, json: JSON.stringify(data) });
    });
  }

  loadCheckpoint(name: string): Promise<Checkpoint | null> {
    return this.#answer(() => {
      const saved = this.#log.checkpoints.get(name);
      if (saved === undefined) return null;
      const data: unknown = JSON.parse(saved.json);
      return { position: saved.position, data };
    });
  }

  close(): Promise<void> {
    this.#open = false;
    return Promise.resolve();
  }

  /** The same log for the next incarnation of its user; this store refuses everything from now on. */
  reopen(options: Partial<MemoryStoreOptions> = {}): MemoryEventStore {
    this.#open = false;
    return new MemoryEventStore({ ...this.#options, ...options }, this.#log);
  }

  /** A log of its own that ends after `position`: what a crash at that moment would have left. */
  cutAfter(position: number): MemoryEventStore {
    const cut = new MemoryEventStore(this.#options);
    for (const { stream, recordedAtMs, writer, event } of this.#log.events.slice(0, position))
      cut.#put({ stream, recordedAtMs, writer, event });
    for (const [name, saved] of this.#log.checkpoints)
      if (saved.position <= position) cut.#log.checkpoints.set(name, saved);
    return cut;
  }

  #put(entry: Omit<RecordedEvent, 'position' | 'version'>): RecordedEvent {
    const { events, streams } = this.#log;
    const stream = streams.get(entry.stream) ?? [];
    streams.set(entry.stream, stream);
    const record = deepFreeze({ position: events.length + 1, version: stream.length + 1, ...entry });
    events.push(record);
    stream.push(record);
    return record;
  }

  #answer<T>(work: () => T): Promise<T> {
    return new Promise((resolve) => {
      if (!this.#open) throw new StoreError('closed', 'the log in memory was closed, or opened again by another user');
      resolve(work());
    });
  }
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  Object.freeze(value);
  for (const part of Object.values(value)) deepFreeze(part);
  return value;
}
