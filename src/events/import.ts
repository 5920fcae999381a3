import { isDeepStrictEqual } from 'node:util';
import type { RecordedEvent } from './store.js';
import type { StreamName } from './streams.js';

export interface ImportReport {
  readonly imported: number;
  /** Identical events that the log held before. */
  readonly alreadyThere: number;
}

/** A store that takes recorded events as they are: with their time and writer, at positions of its own. */
export interface ImportTarget {
  /**
   * All or nothing. Whole streams, each from its first version, in order; a stream that the log holds already has to be
   * identical, and is left alone. Throws `ImportError`. `records` may be iterated more than once.
   */
  importRecorded(records: Iterable<RecordedEvent>): Promise<ImportReport>;
}

/** The import does not fit the log, or a line is no recorded event. Nothing was written. */
export class ImportError extends Error {
  override readonly name = 'ImportError';
}

/** What an import needs of a store, inside one transaction. */
export interface ImportAccess {
  readonly versionOf: (stream: StreamName) => number;
  readonly read: (stream: StreamName, version: number) => RecordedEvent | undefined;
  readonly put: (record: RecordedEvent) => void;
}

export function importInto(log: ImportAccess, records: Iterable<RecordedEvent>): ImportReport {
  /** By stream: its version before the import, and the last one imported. */
  const streams = new Map<StreamName, { readonly before: number; last: number }>();
  let imported = 0;
  let alreadyThere = 0;
  for (const record of records) {
    const { stream, version } = record;
    const progress = streams.get(stream) ?? { before: log.versionOf(stream), last: 0 };
    streams.set(stream, progress);
    if (version !== progress.last + 1)
      throw new ImportError(
        `${stream} goes from version ${progress.last} to ${version}: events are missing or repeated`,
      );
    progress.last = version;
    if (progress.before === 0) {
      log.put(record);
      imported += 1;
      continue;
    }
    if (version > progress.before) throw elsewhere(stream, progress.before, `version ${version}`);
    if (!isSame(log.read(stream, version), record))
      throw new ImportError(`version ${version} of ${stream} is another event than the one in this log`);
    alreadyThere += 1;
  }
  for (const [stream, { before, last }] of streams)
    if (before !== 0 && last !== before) throw elsewhere(stream, before, `ends at version ${last}`);
  return { imported, alreadyThere };
}

const elsewhere = (stream: StreamName, before: number, what: string): ImportError =>
  new ImportError(`this log holds ${stream} at version ${before}, the import has it at other versions (${what})`);

const isSame = (held: RecordedEvent | undefined, record: RecordedEvent): boolean =>
  held?.recordedAtMs === record.recordedAtMs &&
  held.writer === record.writer &&
  isDeepStrictEqual(held.event, record.event);
