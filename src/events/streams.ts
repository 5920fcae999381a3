import { z } from 'zod';
import { JobId, SafeName, TaskId } from '../machines/vocabulary.js';

export const STREAM_KINDS = ['job', 'task', 'session', 'backend'] as const;
export type StreamKind = (typeof STREAM_KINDS)[number];

/** `job/<id>`, `task/<id>`, `session/<task id>` or `backend/<name>`. A session is a task, and has its id. */
export type StreamName = `${StreamKind}/${string}`;

export const jobStream = (id: JobId): StreamName => `job/${id}`;
export const taskStream = (id: TaskId): StreamName => `task/${id}`;
export const sessionStream = (id: TaskId): StreamName => `session/${id}`;
export const backendStream = (name: string): StreamName => `backend/${name}`;

/** A stream's name, taken apart. */
export type StreamParts =
  | { readonly kind: 'job'; readonly id: JobId }
  | { readonly kind: 'task' | 'session'; readonly id: TaskId }
  | { readonly kind: 'backend'; readonly id: string };

const Parts = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('job'), id: JobId }),
  z.strictObject({ kind: z.enum(['task', 'session']), id: TaskId }),
  z.strictObject({ kind: z.literal('backend'), id: SafeName }),
]);

/** Takes a stream's name apart. Throws an Error that quotes the text and says what a stream is called. */
export function streamParts(text: string): StreamParts {
  const slash = text.indexOf('/');
  const parsed = Parts.safeParse({ kind: text.slice(0, Math.max(0, slash)), id: text.slice(slash + 1) });
  if (parsed.success) return parsed.data;
  const shown = JSON.stringify(text.length > 100 ? `${text.slice(0, 100)}…` : text);
  throw new Error(
    `${shown} is no stream: a stream is job/<job id>, task/<task id>, session/<task id> or backend/<name>`,
  );
}

/** Parses a stream's name. Throws like `streamParts`. */
export function parseStreamName(text: string): StreamName {
  const { kind, id } = streamParts(text);
  return `${kind}/${id}`;
}

/** The job of a `job/<id>` stream, for names that a log holds: they were parsed when they were written. */
export const jobIdOf = (stream: StreamName): JobId => stream.slice('job/'.length) as JobId;

/** The kind of a name that has been parsed before. */
export const kindOf = (stream: StreamName): string => stream.slice(0, stream.indexOf('/'));
