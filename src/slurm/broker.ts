import type { ChildProcess } from 'node:child_process';
import { execa } from 'execa';
import { LEAVE_RUNNING } from '../backend.js';
import { whenAborted, type Clock } from '../runtime/clock.js';
import { errnoOf } from '../workdir/io-error.js';

/** The commands that this backend runs; nothing else is ever started. */
export const COMMANDS = ['sbatch', 'squeue', 'sacct', 'scancel', 'srun', 'scontrol'] as const;
export type Command = (typeof COMMANDS)[number];

/** One command line, complete. `argv` is handed over as it is: no shell reads it (INV-9). */
export interface Call {
  readonly command: Command;
  readonly argv: readonly string[];
  /** null: none, for a step that may last as long as its job. */
  readonly timeLimitMs: number | null;
  readonly outputLimitBytes: number;
  /** What too much output means: a control command's answer is worthless then; a step's output is cut. */
  readonly overflow: 'refuse' | 'cut';
  /** Gets all output as it comes, whatever the limit keeps of it. */
  readonly onOutput?: (stream: 'stdout' | 'stderr', bytes: Buffer) => void;
  /** Aborted: the process group is ended like at the time limit, or with the reason `LEAVE_RUNNING` let go. */
  readonly signal?: AbortSignal;
}

/** How one process ended. stdout and stderr are never merged; bytes that are not UTF-8 read as U+FFFD. */
export type Ending =
  | {
      readonly kind: 'exited';
      readonly exitCode: number;
      readonly stdout: string;
      readonly stderr: string;
      readonly truncated: boolean;
    }
  | {
      readonly kind: 'killed';
      readonly signal: string;
      readonly stdout: string;
      readonly stderr: string;
      readonly truncated: boolean;
    }
  | { readonly kind: 'timedOut'; readonly afterMs: number; readonly stdout: string; readonly stderr: string }
  /** By the call's own signal. */
  | { readonly kind: 'cancelled'; readonly stdout: string; readonly stderr: string }
  /** It was not started, or its answer was over the limit. */
  | { readonly kind: 'unreachable'; readonly detail: string; readonly stdout: string };

/** Starts a process. The one way to the outside: tests replay recordings through it. Never throws. */
export type Run = (call: Call) => Promise<Ending>;

/** After a process has ended, whoever still holds its pipes (a child left behind) gets this long. */
const DRAIN_MS = 100;
/** After TERM a step's launcher may tidy up in the allocation for this long. */
const TERM_GRACE_MS = 3_000;
/** A process that survives SIGKILL for this long hangs in the kernel; we stop waiting for it. */
const KILL_GRACE_MS = 5_000;

/** Bytes of one stream, up to a limit; what comes after it is drained and dropped. */
class Collector {
  readonly #chunks: Buffer[] = [];
  readonly #limitBytes: number;
  #bytes = 0;
  overflowed = false;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  add(chunk: Buffer): void {
    const room = this.#limitBytes - this.#bytes;
    if (chunk.length > room) this.overflowed = true;
    if (room <= 0) return;
    const kept = chunk.length > room ? chunk.subarray(0, room) : chunk;
    this.#chunks.push(kept);
    this.#bytes += kept.length;
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString('utf8');
  }
}

/** Ends a whole process group. One that is gone is fine; one that has become somebody else's is not waited for long. */
function killGroup(pid: number | undefined, signal: 'SIGTERM' | 'SIGKILL'): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno !== 'ESRCH' && errno !== 'EPERM') throw error;
  }
}

/**
 * Runs real processes: stdin closed, own process group, ended as a group at the time limit. `environment` is all that
 * they see (INV-9): nothing of our own environment gets through.
 */
export function createProcessRun(environment: Readonly<Record<string, string>>, clock: Clock): Run {
  return async ({ command, argv, timeLimitMs, outputLimitBytes, overflow, onOutput, signal }) => {
    if (signal?.aborted === true) return { kind: 'cancelled', stdout: '', stderr: '' };
    const startedMs = clock.monotonicMs();
    const out = new Collector(outputLimitBytes);
    const err = new Collector(outputLimitBytes);
    let child;
    try {
      child = execa(command, argv, {
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'pipe',
        buffer: false,
        encoding: 'buffer',
        detached: true,
        cleanup: false,
        reject: false,
        extendEnv: false,
        env: environment,
      });
    } catch (error) {
      // A NUL in an argument throws at once, before anything is started.
      return { kind: 'unreachable', detail: `${command}: ${String(error)}`, stdout: '' };
    }
    const started = child;
    const ended = new AbortController();
    const stopped: { by: 'timeLimit' | 'cancel' | null } = { by: null };
    const end = async (): Promise<void> => {
      if (command === 'srun') {
        killGroup(started.pid, 'SIGTERM');
        await clock.sleep(TERM_GRACE_MS, ended.signal);
      }
      killGroup(started.pid, 'SIGKILL');
      await clock.sleep(KILL_GRACE_MS, ended.signal);
    };
    const drain = async (): Promise<void> => {
      await clock.sleep(DRAIN_MS, ended.signal);
      started.stdout.destroy();
      started.stderr.destroy();
    };
    started.once('exit', () => void drain());
    for (const [name, collector] of [
      ['stdout', out],
      ['stderr', err],
    ] as const) {
      started[name].on('data', (chunk: Buffer) => {
        collector.add(chunk);
        onOutput?.(name, chunk);
        if (collector.overflowed && overflow === 'refuse') killGroup(started.pid, 'SIGKILL');
      });
    }
    const stop = async (by: 'timeLimit' | 'cancel'): Promise<null> => {
      if (!ended.signal.aborted) {
        stopped.by ??= by;
        if (by === 'cancel' && signal?.reason === LEAVE_RUNNING) letGo(started);
        else await end();
      }
      return null;
    };
    const stops: Promise<null>[] = [];
    if (timeLimitMs !== null) stops.push(clock.sleep(timeLimitMs, ended.signal).then(() => stop('timeLimit')));
    if (signal !== undefined) stops.push(whenAborted(signal, ended.signal).then(() => stop('cancel')));
    const result = await Promise.race([started, ...stops]);
    // A reason of our own: without one, Node makes an exception with a stack for every call.
    ended.abort('ended');
    const stdout = out.text();
    const stderr = err.text();
    const truncated = out.overflowed || err.overflowed;
    if (stopped.by === 'cancel') return { kind: 'cancelled', stdout, stderr };
    if (stopped.by === 'timeLimit' || result === null) {
      return { kind: 'timedOut', afterMs: Math.round(clock.monotonicMs() - startedMs), stdout, stderr };
    }
    if (truncated && overflow === 'refuse') {
      return {
        kind: 'unreachable',
        detail: `${command} wrote more than ${String(outputLimitBytes)} bytes`,
        stdout: '',
      };
    }
    if (result.exitCode !== undefined) return { kind: 'exited', exitCode: result.exitCode, stdout, stderr, truncated };
    if (result.signal !== undefined) return { kind: 'killed', signal: result.signal, stdout, stderr, truncated };
    return { kind: 'unreachable', detail: `${command}: ${startFailure(result.code)}`, stdout };
  };
}

/** It goes on without us: a launcher whose pipes are closed does not end its step (seen with srun of 22.05.8). */
function letGo(child: Pick<ChildProcess, 'unref' | 'stdout' | 'stderr'>): void {
  child.unref();
  child.stdout?.destroy();
  child.stderr?.destroy();
}

function startFailure(code: string | undefined): string {
  if (code === 'ENOENT') return 'not found on PATH (ENOENT)';
  if (code === 'E2BIG') return 'the command line is too long (E2BIG)';
  return `could not be started (${code ?? 'unknown'})`;
}

/** Runs commands and counts them. */
export interface Broker {
  readonly run: Run;
  counts(): Readonly<Record<Command, number>>;
}

export function createBroker(run: Run): Broker {
  const counts: Record<Command, number> = { sbatch: 0, squeue: 0, sacct: 0, scancel: 0, srun: 0, scontrol: 0 };
  return {
    run: (call) => {
      counts[call.command] += 1;
      return run(call);
    },
    counts: () => ({ ...counts }),
  };
}
