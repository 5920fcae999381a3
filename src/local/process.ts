import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { LEAVE_RUNNING, type StepReply } from '../backend.js';
import { whenAborted, type Clock } from '../runtime/clock.js';
import { errnoOf, messageOf } from '../workdir/io-error.js';

export interface DetachedRequest {
  readonly argv: readonly [string, ...string[]];
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly stdoutPath: string;
  readonly stderrPath: string;
}

export type Detached =
  /** `exit` resolves when the process ends, if this process still lives then; its status, or null after a signal. */
  | { readonly kind: 'started'; readonly pid: number; readonly exit: Promise<number | null> }
  | { readonly kind: 'failed'; readonly detail: string };

const OUTPUT_FLAGS = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW;

/** Starts a process in a session of its own, which outlives this one. Its output goes to files, its input is closed. */
export async function startDetached(request: DetachedRequest): Promise<Detached> {
  const [command, ...args] = request.argv;
  const handles = [];
  try {
    for (const path of [request.stdoutPath, request.stderrPath]) handles.push(await open(path, OUTPUT_FLAGS, 0o600));
    const [stdout, stderr] = handles;
    const child = spawn(command, args, {
      cwd: request.cwd,
      env: { ...request.environment },
      detached: true,
      stdio: ['ignore', stdout?.fd, stderr?.fd],
    });
    const exit = new Promise<number | null>((resolve) => child.once('exit', resolve));
    const failed = new Promise<Detached>((resolve) =>
      child.once('error', (error) => resolve({ kind: 'failed', detail: messageOf(error) })),
    );
    const { pid } = child;
    if (pid === undefined) return await failed;
    child.unref();
    return { kind: 'started', pid, exit };
  } catch (error) {
    if (errnoOf(error) === null) throw error;
    return { kind: 'failed', detail: messageOf(error) };
  } finally {
    await Promise.all(handles.map((handle) => handle.close()));
  }
}

/** Signals a process, or with a negative number a whole group. False: there is none. Throws if it is not ours. */
export function signalProcess(pid: number, signal: 'SIGTERM' | 'SIGKILL'): boolean {
  try {
    process.kill(pid, signal);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ESRCH') return false;
    throw error;
  }
}

export interface CommandRequest {
  readonly argv: readonly [string, ...string[]];
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  /** null: none. */
  readonly timeLimitMs: number | null;
  readonly onOutput: (stream: 'stdout' | 'stderr', bytes: Buffer) => void;
  /** Aborted: its whole group is killed, or with the reason `LEAVE_RUNNING` let go. */
  readonly signal: AbortSignal;
}

const DRAIN_MS = 250;

/** Runs a command to its end, or until it is stopped: then its whole group is killed. */
export async function runCommand(request: CommandRequest, clock: Clock): Promise<StepReply> {
  const { argv, cwd, environment, timeLimitMs, onOutput, signal } = request;
  if (signal.aborted) return { kind: 'stopped', by: 'cancel' };
  const [command, ...args] = argv;
  const over = new AbortController();
  let child;
  try {
    child = spawn(command, args, { cwd, env: { ...environment }, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  } catch (error) {
    // A NUL in a word, or more words than the system takes.
    return { kind: 'refused', detail: `${command}: ${messageOf(error)}` };
  }
  child.stdout.on('data', (bytes: Buffer) => onOutput('stdout', bytes));
  child.stderr.on('data', (bytes: Buffer) => onOutput('stderr', bytes));
  const started = child;
  const ended = new Promise<StepReply>((resolve) => {
    started.once('error', (error) => resolve({ kind: 'refused', detail: `${command}: ${messageOf(error)}` }));
    const closed = new Promise<void>((closing) => started.once('close', () => closing()));
    started.once('exit', (exitCode, bySignal) => {
      // What was written before is still on its way; but a child that kept the pipes would hold them open for ever.
      void Promise.race([closed, clock.sleep(DRAIN_MS, over.signal)]).then(() => {
        resolve({ kind: 'ended', exitCode, signal: bySignal });
      });
    });
  });
  const stops = [whenAborted(signal, over.signal).then((): StepReply => ({ kind: 'stopped', by: 'cancel' }))];
  if (timeLimitMs !== null)
    stops.push(clock.sleep(timeLimitMs, over.signal).then((): StepReply => ({ kind: 'stopped', by: 'timeLimit' })));
  const reply = await Promise.race([ended, ...stops]);
  over.abort();
  if (signal.reason === LEAVE_RUNNING) started.unref();
  else if (started.pid !== undefined) signalProcess(-started.pid, 'SIGKILL');
  started.stdout.destroy();
  started.stderr.destroy();
  return reply;
}
