import type { Database, Statement } from 'better-sqlite3';
import { afterThisTurn } from '../runtime/turn.js';
import { VersionConflictError, type StoreError } from './errors.js';
import { GroupCommit } from './group-commit.js';
import { prepare, type PreparedAppend } from './prepare.js';
import { importInto, type ImportAccess, type ImportReport, type ImportTarget } from './import.js';
import { findProblems } from './integrity.js';
import { asStoreError, storeError } from './sqlite-faults.js';
import { COLUMNS, recordOf, type Row } from './sqlite-rows.js';
import type { Append, Checkpoint, EventStore, RecordedEvent } from './store.js';
import type { StreamName } from './streams.js';

export interface SqliteStoreOptions {
  /** Absolute path, for messages. */
  readonly file: string;
  /** Who appends, for the record. */
  readonly writer: string;
  /** Unix epoch ms. */
  readonly nowMs: () => number;
  /** Told once, when a fault has made an end of all writes until the log is opened again. */
  readonly onBroken?: (error: StoreError) => void;
}

/** Rows of one query of `readAll`: memory stays flat, and other work gets its turn in between. */
const CHUNK = 256;

/**
 * The log in one SQLite file (see sqlite-schema.ts), for one writing process at a time (see state-directory.ts). Every
 * fault of the storage is a `StoreError` that names the file. A closed store refuses everything.
 */
export class SqliteEventStore implements EventStore, ImportTarget {
  readonly #db: Database;
  readonly #options: SqliteStoreOptions;
  readonly #commits: GroupCommit;
  readonly #versionOf: Statement<[stream: string], number>;
  readonly #insert: Statement<[stream: string, version: number, data: string, recordedAt: number, writer: string]>;
  readonly #stream: Statement<[stream: string, afterVersion: number], Row>;
  readonly #chunk: Statement<[afterPosition: number], Row>;
  readonly #last: Statement<[], number>;
  readonly #saveCheckpoint: Statement<[name: string, position: number, data: string]>;
  readonly #loadCheckpoint: Statement<[name: string], [position: number, data: string]>;

  /** Takes over the connection; `close` closes it. */
  constructor(db: Database, options: SqliteStoreOptions) {
    this.#db = db;
    this.#options = options;
    this.#commits = new GroupCommit(db, options.file, afterThisTurn, (error) => options.onBroken?.(error));
    this.#versionOf = db.prepare<[string], number>('select max(version) from events where stream = ?').pluck();
    this.#insert = db.prepare('insert into events(stream, version, data, recorded_at, writer) values (?, ?, ?, ?, ?)');
    this.#stream = db
      .prepare<[string, number], Row>(`select ${COLUMNS} from events where stream = ? and version > ? order by version`)
      .raw();
    this.#chunk = db
      .prepare<[number], Row>(`select ${COLUMNS} from events where position > ? order by position limit ${CHUNK}`)
      .raw();
    this.#last = db.prepare<[], number>('select coalesce(max(position), 0) from events').pluck();
    this.#saveCheckpoint = db.prepare('insert or replace into checkpoints(name, position, data) values (?, ?, ?)');
    this.#loadCheckpoint = db
      .prepare<[string], [number, string]>('select position, data from checkpoints where name = ?')
      .raw();
  }

  append(append: Append): Promise<readonly RecordedEvent[]> {
    return this.appendAll([append]);
  }

  async appendAll(appends: readonly Append[]): Promise<readonly RecordedEvent[]> {
    const prepared = appends.map(prepare);
    return this.#commits.submit(() => this.#write(prepared));
  }

  /** Inside a transaction. Throws `VersionConflictError` before it writes anything. */
  #write(appends: readonly PreparedAppend[]): readonly RecordedEvent[] {
    const versions = new Map<StreamName, number>();
    for (const { stream, expectedVersion, events } of appends) {
      const version = versions.get(stream) ?? this.#versionOf.get(stream) ?? 0;
      if (version !== expectedVersion) throw new VersionConflictError(stream, expectedVersion, version);
      versions.set(stream, version + events.length);
    }
    const { writer } = this.#options;
    const recordedAtMs = this.#options.nowMs();
    return appends.flatMap(({ stream, expectedVersion, events }) =>
      events.map(({ event, json }, index) => {
        const version = expectedVersion + index + 1;
        const { lastInsertRowid } = this.#insert.run(stream, version, json, recordedAtMs, writer);
        return { position: Number(lastInsertRowid), stream, version, recordedAtMs, writer, event };
      }),
    );
  }

  importRecorded(records: Iterable<RecordedEvent>): Promise<ImportReport> {
    const access: ImportAccess = {
      versionOf: (stream) => this.#versionOf.get(stream) ?? 0,
      read: (stream, version) => {
        const row = this.#stream.get(stream, version - 1);
        return row === undefined ? undefined : recordOf(row, this.#options.file);
      },
      put: ({ stream, version, recordedAtMs, writer, event }) => {
        this.#insert.run(stream, version, JSON.stringify(event), recordedAtMs, writer);
      },
    };
    return this.#commits.submit(() => importInto(access, records));
  }

  readStream(stream: StreamName, afterVersion = 0): Promise<readonly RecordedEvent[]> {
    return this.#read(`read ${stream} from`, () =>
      this.#stream.all(stream, afterVersion).map((row) => recordOf(row, this.#options.file)),
    );
  }

  async *readAll(afterPosition = 0): AsyncIterable<RecordedEvent> {
    let position = afterPosition;
    for (;;) {
      const rows = await this.#read('read', () => this.#chunk.all(position));
      for (const row of rows) {
        const record = recordOf(row, this.#options.file);
        position = record.position;
        yield record;
      }
      if (rows.length < CHUNK) return;
      await new Promise<void>(afterThisTurn);
    }
  }

  lastPosition(): Promise<number> {
    return this.#read('read', () => this.#last.get() ?? 0);
  }

  async saveCheckpoint(name: string, { position, data }: Checkpoint): Promise<void> {
    const json = JSON.stringify(data);
    await this.#commits.submit(() => this.#saveCheckpoint.run(name, position, json));
  }

  loadCheckpoint(name: string): Promise<Checkpoint | null> {
    return this.#read(`read checkpoint ${name} of`, () => {
      const row = this.#loadCheckpoint.get(name);
      if (row === undefined) return null;
      const data: unknown = JSON.parse(row[1]);
      return { position: row[0], data };
    });
  }

  /** For an explicit check of the whole log, not for a start: see integrity.ts. */
  checkIntegrity(): Promise<readonly string[]> {
    return this.#read('check', () => findProblems(this.#db, this.#options.file));
  }

  /** Commits what is waiting, then closes. May be repeated. */
  close(): Promise<void> {
    if (!this.#db.open) return Promise.resolve();
    this.#commits.flush();
    return this.#read('close', () => {
      this.#db.close();
    });
  }

  #read<T>(doing: string, read: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const { file } = this.#options;
      try {
        if (!this.#db.open) throw storeError('closed', file, doing, 'the log is not open');
        resolve(read());
      } catch (cause) {
        reject(asStoreError(cause, file, doing));
      }
    });
  }
}
