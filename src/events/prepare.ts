import { z } from 'zod';
import { InvalidEventError } from './errors.js';
import { parseEvent, streamKindOf, type DomainEvent } from './schemas.js';
import type { Append } from './store.js';
import { jobStream, kindOf, parseStreamName, taskStream, type StreamName } from './streams.js';

/** An event that may be written: validated, and as the text that the log keeps. */
export interface PreparedEvent {
  readonly event: DomainEvent;
  readonly json: string;
}

export interface PreparedAppend {
  readonly stream: StreamName;
  readonly expectedVersion: number;
  readonly events: readonly PreparedEvent[];
}

/** Validates in full what a writer hands over. Throws `InvalidEventError` that names stream, event and field. */
export function prepare({ stream, expectedVersion, events }: Append): PreparedAppend {
  if (!Number.isSafeInteger(expectedVersion) || expectedVersion < 0)
    throw new InvalidEventError(`${stream}: expected version ${String(expectedVersion)} is no version`);
  try {
    parseStreamName(stream);
  } catch (cause) {
    throw new InvalidEventError(cause instanceof Error ? cause.message : String(cause), { cause });
  }
  return { stream, expectedVersion, events: events.map((event) => prepareEvent(stream, event)) };
}

function prepareEvent(stream: StreamName, raw: DomainEvent): PreparedEvent {
  const refuse = (why: string, cause?: unknown): never => {
    throw new InvalidEventError(`${stream} can not take ${JSON.stringify(raw.type)}: ${why}`, { cause });
  };
  const parsed = parseEvent(raw);
  if (!parsed.success) return refuse(z.prettifyError(parsed.error), parsed.error);
  const event = parsed.data;
  const wrong = misplaced(stream, event);
  if (wrong !== null) return refuse(wrong);
  try {
    return { event, json: JSON.stringify(event) };
  } catch (cause) {
    return refuse('it holds something that is not JSON', cause);
  }
}

/** What is wrong with an event in this stream; null if nothing. */
export function misplaced(stream: StreamName, event: DomainEvent): string | null {
  if (streamKindOf(event.type) !== kindOf(stream)) return 'that event belongs to another kind of stream';
  const named = ownStream(event);
  return named === null || named === stream ? null : `that event begins ${named}`;
}

/** The stream that a first event names itself, null for all others. */
function ownStream(event: DomainEvent): StreamName | null {
  if (event.type === 'job.created') return jobStream(event.jobId);
  return event.type === 'task.submitted' ? taskStream(event.taskId) : null;
}
