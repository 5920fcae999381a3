import { spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { StepReply } from '../backend.js';
import type { Clock } from '../runtime/clock.js';
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

export interface BoundedRequest {
  readonly argv: readonly [string, ...string[]];
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly timeLimitMs: number;
  /** Of stdout and of stderr each; more is read and dropped, so that the command never blocks. */
  readonly outputLimitBytes: number;
}

const DRAIN_MS = 250;

/** Runs a command to its end, or to the end of its time: then its whole group is killed. */
export async function runBounded(request: BoundedRequest, clock: Clock): Promise<StepReply> {
  const [command, ...args] = request.argv;
  const child = spawn(command, args, {
    cwd: request.cwd,
    env: { ...request.environment },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const stdout = collect(child.stdout, request.outputLimitBytes);
  const stderr = collect(child.stderr, request.outputLimitBytes);
  const over = new AbortController();
  const ended = new Promise<StepReply>((resolve) => {
    child.once('error', (error) => resolve({ kind: 'refused', detail: `${command}: ${messageOf(error)}` }));
    const closed = new Promise<void>((closing) => child.once('close', () => closing()));
    child.once('exit', (exitCode, signal) => {
      // What was written before is still on its way; but a child that kept the pipes would hold them open for ever.
      void Promise.race([closed, clock.sleep(DRAIN_MS, over.signal)]).then(() => {
        const truncated = stdout.truncated() || stderr.truncated();
        resolve({ kind: 'ended', exitCode, signal, stdout: stdout.text(), stderr: stderr.text(), truncated });
      });
    });
  });
  const late = clock.sleep(request.timeLimitMs, over.signal).then((): StepReply => {
    const detail = `${command} did not end in time and was killed with its children`;
    return { kind: 'timedOut', afterMs: request.timeLimitMs, detail };
  });
  const reply = await Promise.race([ended, late]);
  over.abort();
  if (child.pid !== undefined) signalProcess(-child.pid, 'SIGKILL');
  child.stdout.destroy();
  child.stderr.destroy();
  return reply;
}

function collect(
  stream: NodeJS.ReadableStream,
  limitBytes: number,
): { readonly text: () => string; readonly truncated: () => boolean } {
  const parts: Buffer[] = [];
  let kept = 0;
  let dropped = false;
  stream.on('data', (part: Buffer) => {
    const room = part.subarray(0, limitBytes - kept);
    if (room.length < part.length) dropped = true;
    parts.push(room);
    kept += room.length;
  });
  return { text: () => Buffer.concat(parts).toString('utf8'), truncated: () => dropped };
}
