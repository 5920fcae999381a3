import type { IncomingMessage } from 'node:http';
import type { Clock } from '../runtime/clock.js';
import { TaskChange } from './api.js';
import { errorMessage } from './error-facts.js';
import type { Transport } from './transport.js';
import { readAnswer, type ClientAnswer } from './wire-answer.js';
import { z } from 'zod';

/** The server says something at least every 15 s. */
const SILENCE_MAX_MS = 45_000;
const RETRY_MS = 500;
const RETRY_MAX_MS = 10_000;
const EVENT_MAX_CHARS = 1024 * 1024;

/** The position where the stream starts, or a change. */
const WatchData = z.union([TaskChange, z.strictObject({ position: z.number().int() })]);

/** `interrupted`: the connection is gone, it is being made again; nothing will be missing. `refused` is the last one. */
export type WatchItem =
  | { readonly kind: 'change'; readonly change: TaskChange }
  | { readonly kind: 'interrupted'; readonly detail: string }
  | Extract<ClientAnswer<never>, { kind: 'refused' }>;

/** The `data` of each event, as text arrives in pieces of any size. Throws on an event without end. */
export async function* eventData(pieces: AsyncIterable<string>): AsyncGenerator<string, void> {
  let buffer = '';
  for await (const piece of pieces) {
    buffer += piece;
    for (let end = buffer.indexOf('\n\n'); end >= 0; end = buffer.indexOf('\n\n')) {
      const lines = buffer.slice(0, end).split('\n');
      buffer = buffer.slice(end + 2);
      const data = lines.filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trimStart());
      if (data.length > 0) yield data.join('\n');
    }
    if (buffer.length > EVENT_MAX_CHARS) throw new Error('an event without end');
  }
}

/** Follows a stream of changes over broken connections, each change once. Ends when the signal aborts. */
export async function* followChanges(
  transport: Transport,
  clock: Clock,
  path: string,
  after: number | null,
  signal: AbortSignal,
): AsyncGenerator<WatchItem, void> {
  let position = after;
  let failures = 0;
  while (!signal.aborted) {
    const connection = new AbortController();
    const stop = (): void => {
      connection.abort();
    };
    signal.addEventListener('abort', stop, { once: true });
    try {
      const headers: Record<string, string> = position === null ? {} : { 'last-event-id': String(position) };
      const opened = await transport.stream({ method: 'GET', path, headers, timeoutMs: 0, signal: connection.signal });
      if (opened.kind !== 'open') {
        const answer = readAnswer(opened, z.never());
        if (answer.kind === 'refused') {
          yield answer;
          return;
        }
        failures += 1;
        if (!isAborted(signal)) yield { kind: 'interrupted', detail: detailOf(answer) };
      } else {
        try {
          for await (const data of eventData(watched(opened.response, clock, stop))) {
            const change = WatchData.parse(JSON.parse(data));
            failures = 0;
            if (position !== null && change.position <= position) continue;
            position = change.position;
            if ('event' in change) yield { kind: 'change', change };
          }
          failures += 1;
          if (!isAborted(signal)) yield { kind: 'interrupted', detail: 'the stream ended' };
        } catch (error) {
          failures += 1;
          if (!isAborted(signal)) yield { kind: 'interrupted', detail: errorMessage(error) };
        } finally {
          opened.response.destroy();
        }
      }
    } finally {
      signal.removeEventListener('abort', stop);
    }
    await clock.sleep(Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** Math.min(failures - 1, 10)), signal);
  }
}

/** The signal may have been aborted while somebody else had the turn. */
const isAborted = (signal: AbortSignal): boolean => signal.aborted;

const detailOf = (answer: ClientAnswer<never>): string => (answer.kind === 'unreachable' ? answer.detail : 'refused');

/** The text of a response; one that falls silent is ended. */
async function* watched(response: IncomingMessage, clock: Clock, stop: () => void): AsyncGenerator<string, void> {
  response.setEncoding('utf8');
  let heardAtMs = clock.monotonicMs();
  const over = new AbortController();
  const guard = async (): Promise<void> => {
    while (!over.signal.aborted) {
      await clock.sleep(SILENCE_MAX_MS / 3, over.signal);
      if (!isAborted(over.signal) && clock.monotonicMs() - heardAtMs > SILENCE_MAX_MS) stop();
    }
  };
  const guarding = guard();
  try {
    for await (const piece of response) {
      heardAtMs = clock.monotonicMs();
      if (typeof piece === 'string') yield piece;
    }
  } finally {
    over.abort();
    await guarding;
  }
}
