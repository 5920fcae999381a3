import { resolve } from 'node:path';
import { z } from 'zod';
import { ImportError, type ImportReport, type ImportTarget } from './import.js';
import { readLines } from './lines.js';
import { misplaced } from './prepare.js';
import { Milliseconds, Name } from './schema-parts.js';
import { readEvent } from './schemas.js';
import type { EventStore, RecordedEvent } from './store.js';
import { parseStreamName, type StreamName } from './streams.js';

/** One line: one recorded event, its keys in this order. */
const Line = z.strictObject({
  position: z.int().positive(),
  stream: z.string(),
  version: z.int().positive(),
  recordedAtMs: Milliseconds,
  writer: Name,
  event: z.unknown(),
});

/**
 * A log as JSON Lines, each with its newline: the whole of it, or one stream. An event of an older version comes out in
 * today's shape.
 */
export async function* exportJsonl(store: EventStore, stream?: StreamName): AsyncIterable<string> {
  const records = stream === undefined ? store.readAll() : await store.readStream(stream);
  for await (const { position, stream: name, version, recordedAtMs, writer, event } of records)
    yield `${JSON.stringify({ position, stream: name, version, recordedAtMs, writer, event })}\n`;
}

/**
 * The recorded events of a JSON Lines file (or `/dev/stdin`), each validated in full; may be iterated again. Throws
 * `ImportError` that names file and line.
 */
export class JsonlFile implements Iterable<RecordedEvent> {
  /** Absolute. */
  readonly path: string;
  #line = 1;

  constructor(path: string) {
    this.path = resolve(path);
  }

  /** Where the reading is, for messages: `<path>:<line>`, lines from 1. */
  get place(): string {
    return `${this.path}:${this.#line}`;
  }

  *[Symbol.iterator](): Generator<RecordedEvent> {
    this.#line = 1;
    try {
      for (const text of readLines(this.path)) {
        yield parseLine(text);
        this.#line += 1;
      }
    } catch (cause) {
      throw new ImportError(`${this.place}: ${explain(cause)}`, { cause });
    }
  }
}

function parseLine(text: string): RecordedEvent {
  const raw: unknown = JSON.parse(text);
  const line = Line.parse(raw);
  const stream = parseStreamName(line.stream);
  const event = readEvent(line.event);
  const wrong = misplaced(stream, event);
  if (wrong !== null) throw new Error(`${stream} can not hold ${event.type}: ${wrong}`);
  return { ...line, stream, event };
}

function explain(cause: unknown): string {
  if (cause instanceof z.ZodError) return `no recorded event: ${z.prettifyError(cause)}`;
  if (cause instanceof SyntaxError) return `no JSON: ${cause.message}`;
  return cause instanceof Error ? cause.message : String(cause);
}

/**
 * Takes a JSON Lines file into a log: all of it, or nothing at the first line that is bad or does not fit. Throws
 * `ImportError` that names file and line, `StoreError`.
 */
export async function importJsonl(target: ImportTarget, path: string): Promise<ImportReport> {
  const file = new JsonlFile(path);
  try {
    return await target.importRecorded(file);
  } catch (cause) {
    if (!(cause instanceof ImportError) || cause.message.startsWith(file.path)) throw cause;
    throw new ImportError(`${file.place}: ${cause.message}`, { cause });
  }
}
