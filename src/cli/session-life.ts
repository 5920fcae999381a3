import type { CoordinatorClient } from '../coordinator/client.js';
import type { SessionInfo } from '../coordinator/session-api.js';
import { TaskId } from '../machines/vocabulary.js';
import { refused, valueOf, withClient } from './client.js';
import { CliError, usageError } from './errors.js';
import { EXIT } from './exit-codes.js';
import { waitForEnd } from './follow.js';
import type { Io } from './io.js';
import type { ClientOptions } from './options.js';
import { note, print, toJson } from './output.js';
import { checkName, quoted } from './payload.js';
import { whereOf } from './session-text.js';
import { endText, isOver } from './task-text.js';

export interface StartOptions extends ClientOptions {
  readonly profile: string;
  readonly wait?: true;
  /** Seconds. */
  readonly waitLimit?: number;
  readonly key?: string;
}

export interface StopOptions extends ClientOptions {
  readonly wait?: true;
}

const POLL_MS = 500;

/** Throws a usage error. */
export function parseSessionId(text: string): TaskId {
  const parsed = TaskId.safeParse(text);
  if (parsed.success) return parsed.data;
  throw usageError(
    `${quoted(text)} is no session`,
    'a session is task_ and 26 characters, as session start prints it and session list shows it',
  );
}

export async function startSession(io: Io, options: StartOptions): Promise<void> {
  const { profile, key, credentials } = options;
  checkName('--profile', profile);
  if (key !== undefined && !/^[\x21-\x7e]{1,200}$/.test(key)) {
    throw usageError(`--key ${quoted(key)} does not fit`, 'a key has 1 to 200 printable ASCII characters and no blank');
  }
  if (options.waitLimit !== undefined && options.wait !== true) {
    throw usageError('--wait-limit is for --wait', 'give both, or neither');
  }
  const json = options.json === true;
  await withClient(io, credentials, async (client) => {
    const submitted = valueOf(await client.submit({ kind: 'session', payload: { profile } }, key));
    const { taskId } = submitted;
    if (submitted.waiting !== null) await note(io, `waits: ${submitted.waiting}`);
    if (key !== undefined && !submitted.created) await note(io, `${taskId} had been started before`);
    if (!json) await io.stdout.write(`${taskId}\n`);
    else if (options.wait !== true) await io.stdout.write(`${toJson(submitted)}\n`);
    if (options.wait !== true) return;
    const info = await waitUntilReady(io, client, taskId, options.waitLimit ?? null);
    if (json) await io.stdout.write(`${toJson({ ...submitted, ...info })}\n`);
    if (!isOver(info.task.phase)) return;
    const hint = `open-compute status ${taskId} shows its history, open-compute logs ${taskId} what it wrote`;
    throw new CliError(EXIT.noResult, `${taskId} ended before it was ready: ${endText(info.task)}`, hint);
  });
}

/** Ready, or over; each new place of the session is told on stderr. Throws when interrupted, or when time is up. */
async function waitUntilReady(
  io: Io,
  client: CoordinatorClient,
  taskId: TaskId,
  limitS: number | null,
): Promise<SessionInfo> {
  const untilMs = limitS === null ? Infinity : io.clock.monotonicMs() + limitS * 1000;
  const goesOn = `it goes on: open-compute session status ${taskId}; session stop ${taskId} ends it`;
  let said = '';
  for (;;) {
    const answer = await client.session(taskId);
    if (answer.kind === 'refused') throw refused(answer);
    const where =
      answer.kind === 'unreachable'
        ? `the coordinator does not answer (${answer.detail}); trying again until it does`
        : whereOf(answer.value);
    if (where !== said) await note(io, where);
    said = where;
    if (answer.kind === 'answered') {
      const { task, session } = answer.value;
      if (session?.state === 'Ready' || isOver(task.phase)) return answer.value;
    }
    if (io.signal.aborted) throw new CliError(EXIT.interrupted, `stopped waiting for ${taskId}`, goesOn);
    const leftMs = untilMs - io.clock.monotonicMs();
    if (leftMs <= 0)
      throw new CliError(EXIT.failed, `${taskId} is not ready after ${String(limitS)} s: ${said}`, goesOn);
    await io.clock.sleep(Math.min(POLL_MS, leftMs), io.signal);
  }
}

export async function stopSession(io: Io, text: string, { wait, credentials, json }: StopOptions): Promise<void> {
  const taskId = parseSessionId(text);
  await withClient(io, credentials, async (client) => {
    // A task of another kind has its own command for this, and is not ended by a slip of the hand.
    valueOf(await client.session(taskId));
    const { changes } = valueOf(await client.history(taskId));
    const task = valueOf(await client.cancel(taskId));
    if (isOver(task.phase)) {
      await print(io, json === true, { task }, () => `${taskId} has ended: ${endText(task)}\n`);
      return;
    }
    if (wait !== true) {
      await print(
        io,
        json === true,
        { task },
        () => `${taskId} is asked to end: no new steps, then its steps, then its job\n`,
      );
      return;
    }
    const end = await waitForEnd(io, client, taskId, changes.at(-1)?.position ?? null);
    if (end === null)
      throw new CliError(EXIT.interrupted, `stopped waiting for ${taskId}`, 'it is asked to end all the same');
    const ended = valueOf(await client.get(taskId));
    await print(io, json === true, { task: ended }, () => `${taskId} has ended: ${endText(end)}\n`);
  });
}
