import type { Database } from 'better-sqlite3';
import { StoreError } from './errors.js';
import { asStoreError } from './sqlite-faults.js';
import { COLUMNS, validatedRecordOf, type Row } from './sqlite-rows.js';

const PROBLEMS_MAX = 100;

/**
 * Looks at everything: the pages and indexes of the file, every event in full, and that positions and versions have no
 * gaps. Returns what is wrong, in words, at most 100 lines; nothing when the log is sound. Reads the whole log at once.
 */
export function findProblems(db: Database, file: string): readonly string[] {
  const problems: string[] = [];
  const look = (what: string, work: () => Iterable<string>): void => {
    try {
      for (const problem of work()) if (problems.length < PROBLEMS_MAX) problems.push(`${what}: ${problem}`);
    } catch (cause) {
      problems.push(`${what}: ${asStoreError(cause, file, 'check').message}`);
    }
  };
  look('pages', () => pages(db));
  look('positions', () => positions(db));
  look('versions', () => versions(db));
  look('events', () => events(db, file));
  return problems;
}

function* pages(db: Database): Generator<string> {
  const lines = db.prepare<[], string>(`pragma integrity_check(${PROBLEMS_MAX})`).pluck();
  for (const line of lines.iterate()) if (line !== 'ok') yield line;
}

function* positions(db: Database): Generator<string> {
  const row = db.prepare<[], [number, number]>('select count(*), coalesce(max(position), 0) from events').raw().get();
  const [count, last] = row ?? [0, 0];
  if (count !== last) yield `${count} events, but the last one is at position ${last}`;
}

function* versions(db: Database): Generator<string> {
  const gaps = db
    .prepare<[], [string, number, number, number]>(
      `select stream, count(*), min(version), max(version) from events group by stream
       having min(version) <> 1 or max(version) <> count(*)`,
    )
    .raw();
  for (const [stream, count, first, last] of gaps.iterate())
    yield `${stream} has ${count} events with versions from ${first} to ${last}`;
}

function* events(db: Database, file: string): Generator<string> {
  for (const row of db.prepare<[], Row>(`select ${COLUMNS} from events order by position`).raw().iterate()) {
    try {
      validatedRecordOf(row, file);
    } catch (cause) {
      if (!(cause instanceof StoreError)) throw cause;
      yield cause.message;
    }
  }
}
