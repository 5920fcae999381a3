import { runCli } from '../../../src/cli/run.js';
import type { Io, Sink } from '../../../src/cli/io.js';
import { systemClock } from '../../../src/runtime/clock.js';
import { systemRandom } from '../../../src/runtime/random.js';

export interface CliOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** As an iterable it is read as it comes. */
  readonly stdin?: string | Uint8Array | AsyncIterable<Uint8Array>;
  readonly isTerminal?: boolean;
}

/** How a command line ended. */
export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** stdout, byte for byte. */
  readonly bytes: Buffer;
}

/** A command line under way, in this process. */
export interface Running {
  readonly ended: Promise<Ended>;
  /** What it has said so far. */
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** As the first Ctrl-C. */
  readonly interrupt: () => void;
}

function sink(isTerminal: boolean): Sink & { readonly bytes: () => Buffer; readonly text: () => string } {
  const written: Buffer[] = [];
  return {
    write: async (more) => {
      written.push(Buffer.from(more));
    },
    isTerminal,
    columns: 120,
    bytes: () => Buffer.concat(written),
    text: () => Buffer.concat(written).toString(),
  };
}

export function start(argv: readonly string[], options: CliOptions = {}): Running {
  const stdout = sink(options.isTerminal ?? false);
  const stderr = sink(options.isTerminal ?? false);
  const controller = new AbortController();
  const io: Io = {
    stdout,
    stderr,
    stdin: bytesOf(options.stdin ?? ''),
    closeStdin: () => undefined,
    env: { HOME: '/nonexistent', PATH: process.env['PATH'], ...options.env },
    cwd: options.cwd ?? '/',
    clock: systemClock,
    random: systemRandom,
    signal: controller.signal,
  };
  const ended = runCli(argv, io).then((code) => ({
    ...{ code, stdout: stdout.text(), stderr: stderr.text(), bytes: stdout.bytes() },
  }));
  return { ended, stdout: stdout.text, stderr: stderr.text, interrupt: () => controller.abort() };
}

/** Runs a command line to its end. */
export const cli = (argv: readonly string[], options: CliOptions = {}): Promise<Ended> => start(argv, options).ended;

async function* bytesOf(content: string | Uint8Array | AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  if (typeof content !== 'string' && Symbol.asyncIterator in content) {
    yield* content;
    return;
  }
  if (content.length > 0) yield typeof content === 'string' ? Buffer.from(content) : content;
}

/** Each line as the JSON value that it is. */
export const jsonLines = (text: string): readonly unknown[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line): unknown => JSON.parse(line));
