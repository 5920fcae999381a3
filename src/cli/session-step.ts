import { constants } from 'node:os';
import { StepRequest, type OutputStream, type StepEnd } from '../coordinator/session-api.js';
import { StepId, type TaskId } from '../machines/vocabulary.js';
import { uniquePart } from '../runtime/random.js';
import { withClient } from './client.js';
import { CliError, ExitWith, usageError } from './errors.js';
import { EXIT } from './exit-codes.js';
import type { Io } from './io.js';
import type { ClientOptions } from './options.js';
import { toJson } from './output.js';
import { quoted } from './payload.js';
import { aside, followStep, type StepSink } from './session-follow.js';
import { forwardStdin } from './session-stdin.js';

/** Of each stream, with --json. */
export const JSON_OUTPUT_BYTES_MAX = 1024 * 1024;
/** As `timeout` has it. */
const TIME_LIMIT_EXIT = 124;

type Wanted<R = StepRequest> = R extends unknown ? Omit<R, 'stepId'> : never;

/**
 * Runs one step to its end. Its bytes go to stdout and stderr as they are; the exit code is the command's. Throws a usage
 * error for what can not be a step, before anything is sent.
 */
export async function runStep(io: Io, taskId: TaskId, wanted: Wanted, options: ClientOptions): Promise<void> {
  // The system's bytes reach us decoded with replacement: what was not UTF-8 can not be told apart any more.
  const spoilt = wanted.argv.find((word) => word.includes('\ufffd'));
  if (spoilt !== undefined)
    throw usageError(`${quoted(spoilt)} is not UTF-8`, 'a command has words of UTF-8; put other bytes into a file');
  const stepId = StepId.parse(`step_${uniquePart(io.clock.nowMs(), io.random)}`);
  const parsed = StepRequest.safeParse({ ...wanted, stepId });
  if (!parsed.success) {
    throw usageError(parsed.error.issues[0]?.message ?? 'this can not be a step', 'see open-compute session --help');
  }
  const request = parsed.data;
  const json = options.json === true;
  const kept = new KeptOutput();
  const sink: StepSink = json ? kept.add : (stream, bytes) => io[stream].write(bytes);
  const end = await withClient(io, options.credentials, async (client) => {
    const step = { io, client, taskId, request };
    const over = new AbortController();
    const sendsInput = request.mode === 'exec' && request.stdin;
    try {
      return await followStep(step, sink, () => {
        if (sendsInput) void forwardStdin(step, over.signal);
      });
    } finally {
      over.abort();
      if (sendsInput) io.closeStdin();
    }
  });
  if (json) await io.stdout.write(`${toJson({ stepId, taskId, end, ...kept.shown() })}\n`);
  await conclude(io, request, end);
}

/** Says what is not in the output, and ends with the command's exit code; 0 returns. */
async function conclude(io: Io, { stepId, outputLimitBytes }: StepRequest, end: StepEnd): Promise<void> {
  if (end.droppedBytes > 0) {
    const limit = `the output limit of ${String(outputLimitBytes)} bytes`;
    await aside(io, `${String(end.droppedBytes)} bytes of output beyond ${limit} were dropped (--output-limit)`);
  }
  const detail = end.detail === '' ? '' : `: ${end.detail}`;
  switch (end.how) {
    case 'exited': {
      const code = exitCodeOf(end);
      if (code === EXIT.ok) return;
      if (end.exitCode === null) await aside(io, `the command was ended by ${signalText(end.signal)}${detail}`);
      throw new ExitWith(code);
    }
    case 'timeLimit':
      await aside(io, `the command was ended at its time limit${detail}`);
      throw new ExitWith(TIME_LIMIT_EXIT);
    case 'cancelled': {
      const exitCode = io.signal.aborted ? EXIT.interrupted : EXIT.noResult;
      throw new CliError(exitCode, `${stepId} was cancelled${detail}`, 'the session goes on, unless it was stopped');
    }
    case 'refused':
      throw new CliError(EXIT.failed, `the step was refused, and nothing was started${detail}`, REFUSED_HINT);
    case 'unknown':
      throw new CliError(EXIT.noResult, `what became of ${stepId} nobody can say${detail}`, UNKNOWN_HINT);
  }
}

const REFUSED_HINT = 'open-compute session status SESSION says what the session holds';
const UNKNOWN_HINT = 'the command may have run to its end, or in part, or not at all: look before you run it again';

/** 128 + n for signal n, as shells have it. A signal that is not known by name, or no word at all, is 1. */
export function exitCodeOf({ exitCode, signal }: Pick<StepEnd, 'exitCode' | 'signal'>): number {
  if (exitCode !== null) return exitCode & 0xff;
  const number = /^\d{1,2}$/.test(signal ?? '') ? Number(signal) : SIGNALS.get(signal ?? '');
  return number === undefined ? EXIT.failed : 128 + number;
}

const SIGNALS: ReadonlyMap<string, number> = new Map(Object.entries(constants.signals));
const signalText = (signal: string | null): string =>
  signal === null ? 'something that left no exit code' : /^\d/.test(signal) ? `signal ${signal}` : signal;

/** The first part of what was written, for --json. */
class KeptOutput {
  readonly #parts: Record<OutputStream, Buffer[]> = { stdout: [], stderr: [] };
  readonly #bytes: Record<OutputStream, number> = { stdout: 0, stderr: 0 };
  #cutBytes = 0;

  readonly add: StepSink = (stream, bytes) => {
    const room = Math.max(0, JSON_OUTPUT_BYTES_MAX - this.#bytes[stream]);
    const kept = bytes.subarray(0, room);
    this.#parts[stream].push(kept);
    this.#bytes[stream] += kept.length;
    this.#cutBytes += bytes.length - kept.length;
    return Promise.resolve();
  };

  /** What is not UTF-8 is replaced by U+FFFD. */
  shown(): { readonly stdout: string; readonly stderr: string; readonly cutBytes: number } {
    const text = (stream: OutputStream): string => Buffer.concat(this.#parts[stream]).toString('utf8');
    return { stdout: text('stdout'), stderr: text('stderr'), cutBytes: this.#cutBytes };
  }
}
