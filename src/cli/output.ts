import type { Io, Sink } from './io.js';

/**
 * Control characters and the ones that turn writing around: what a job or a scheduler wrote must not steer a terminal.
 * Tab and newline are told apart by the caller.
 */
const STEERING = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

const escaped = (char: string): string => {
  const code = char.codePointAt(0) ?? 0;
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
};

/** One line for a terminal: every control character is shown as `\xNN`. */
export const printableLine = (text: string): string => text.replace(STEERING, escaped);

/** Several lines for a terminal: tabs and newlines stay. */
export const printableText = (text: string): string =>
  text.replace(STEERING, (char) => (char === '\n' || char === '\t' ? char : escaped(char)));

/** JSON on one line (or indented) that is safe on a terminal as well: JSON itself leaves DEL and C1 controls alone. */
export const toJson = (value: unknown, indent = 0): string =>
  JSON.stringify(value, null, indent).replace(
    /[\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

/** Columns aligned with blanks, two apart; the last one is not padded. Cells are made printable. */
export function toTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, ...rows].map((row) => row.map((cell) => (cell === '' ? '-' : printableLine(cell))));
  const widths = head.map((_, column) => Math.max(...lines.map((line) => Array.from(line[column] ?? '').length)));
  return lines
    .map((line) =>
      line
        .map((cell, column) =>
          column === line.length - 1 ? cell : cell + ' '.repeat((widths[column] ?? 0) - Array.from(cell).length),
        )
        .join('  ')
        .concat('\n'),
    )
    .join('');
}

/** Names and values, one pair per line. Pairs whose value is null are left out. */
export function toPairs(pairs: readonly (readonly [name: string, value: string | null])[]): string {
  const present = pairs.filter((pair): pair is readonly [string, string] => pair[1] !== null);
  const width = Math.max(0, ...present.map(([name]) => name.length));
  return present.map(([name, value]) => `${name.padEnd(width)}  ${printableLine(value)}\n`).join('');
}

/** At most `max` characters, cut with an ellipsis. */
export const cut = (text: string, max: number): string => {
  const chars = Array.from(text);
  return chars.length <= max ? text : `${chars.slice(0, Math.max(0, max - 1)).join('')}…`;
};

/** `2026-11-29T16:13:22Z` of Unix epoch ms. */
export const toTime = (ms: number): string => new Date(ms).toISOString().replace(/\.\d{3}Z$/, 'Z');

/** `2026-11-29T16:13:22.123Z` of Unix epoch ms. */
export const toExactTime = (ms: number): string => new Date(ms).toISOString();

/** A length of time in its two largest units: `45s`, `3m10s`, `2h05m`, `4d03h`. */
export function toDuration(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (value: number): string => String(value).padStart(2, '0');
  if (s < 60) return `${String(s)}s`;
  if (s < 3600) return `${String(Math.floor(s / 60))}m${two(s % 60)}s`;
  if (s < 86_400) return `${String(Math.floor(s / 3600))}h${two(Math.floor((s % 3600) / 60))}m`;
  return `${String(Math.floor(s / 86_400))}d${two(Math.floor((s % 86_400) / 3600))}h`;
}

/** What a command found out: JSON with `--json`, else text for people, both on stdout. */
export async function print(io: Io, json: boolean, value: unknown, text: () => string): Promise<void> {
  await io.stdout.write(json ? `${toJson(value)}\n` : text());
}

/** A JSON value that is itself the answer: indented on a terminal, one line elsewhere. */
export async function printValue(io: Io, value: unknown): Promise<void> {
  await io.stdout.write(`${toJson(value, io.stdout.isTerminal ? 2 : 0)}\n`);
}

/** Writes many lines in few calls; memory stays flat. `flush` at the end, also after an error. */
export class LineBuffer {
  static readonly #CHARS = 64 * 1024;
  readonly #sink: Sink;
  #waiting = '';

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  /** `text` with its newline. */
  async add(text: string): Promise<void> {
    this.#waiting += text;
    if (this.#waiting.length >= LineBuffer.#CHARS) await this.flush();
  }

  async flush(): Promise<void> {
    const text = this.#waiting;
    this.#waiting = '';
    if (text !== '') await this.#sink.write(text);
  }
}

/** Progress for people, on stderr. */
export async function note(io: Io, text: string): Promise<void> {
  await io.stderr.write(`${printableText(text)}\n`);
}
