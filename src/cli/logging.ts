import { pino } from 'pino';
import type { Log } from '../runtime/log.js';
import type { Io } from './io.js';
import { cut, printableLine, toExactTime } from './output.js';

/**
 * The log of a service, on stderr: JSON lines (pino) with `--json` or when stderr is no terminal, short lines for people
 * on a terminal.
 */
export function serviceLog(io: Io, json: boolean): Log {
  return json || !io.stderr.isTerminal ? jsonLog(io) : peopleLog(io);
}

function jsonLog(io: Io): Log {
  return pino(
    {
      base: null,
      timestamp: () => `,"time":"${toExactTime(io.clock.nowMs())}"`,
      formatters: { level: (level) => ({ level }) },
      messageKey: 'message',
      redact: ['secret', '*.secret', 'authorization', '*.authorization'],
    },
    { write: (line: string) => void io.stderr.write(line).catch(() => undefined) },
  );
}

const FIELD_MAX = 200;

/** `16:13:22 warning  the backend does not answer  detail="…" retryInMs=1000`. */
function peopleLog(io: Io): Log {
  const write = (level: string, fields: object, message: string): void => {
    const time = toExactTime(io.clock.nowMs()).slice(11, 19);
    const shown = Object.entries(fields).map(([key, value]) => `${key}=${fieldText(value)}`);
    const line = [time, level.padEnd(7), message, ...shown].join(' ');
    // Nobody is left to tell when stderr is gone; the service goes on.
    void io.stderr.write(`${printableLine(line)}\n`).catch(() => undefined);
  };
  return {
    info: (fields, message) => write('info', fields, message),
    warn: (fields, message) => write('warning', fields, message),
    error: (fields, message) => write('error', fields, message),
  };
}

function fieldText(value: unknown): string {
  if (value instanceof Error) return fieldText(value.message);
  if (typeof value === 'string') return /^[\w./:@+-]+$/.test(value) ? value : cut(JSON.stringify(value), FIELD_MAX);
  return value === undefined ? 'undefined' : cut(JSON.stringify(value), FIELD_MAX);
}
