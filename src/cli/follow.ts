import type { TaskChange } from '../coordinator/api.js';
import type { CoordinatorClient, WatchItem } from '../coordinator/client.js';
import type { TaskId } from '../machines/vocabulary.js';
import { refused, valueOf } from './client.js';
import { CliError } from './errors.js';
import { EXIT } from './exit-codes.js';
import type { Io } from './io.js';
import { note, printValue, toJson } from './output.js';
import { endText, isOver, whereText, type TaskEnd } from './task-text.js';

/** The changes of a watch. Says on stderr when the connection is gone and when it is back; nothing is missed. */
export async function* changesOf(io: Io, items: AsyncIterable<WatchItem>): AsyncGenerator<TaskChange, void> {
  let isAway = false;
  for await (const item of items) {
    switch (item.kind) {
      case 'refused':
        throw refused(item);
      case 'interrupted':
        if (!isAway) await note(io, `the coordinator does not answer (${item.detail}); trying again until it does`);
        isAway = true;
        break;
      case 'change':
        if (isAway) await note(io, 'the coordinator answers again');
        isAway = false;
        yield item.change;
    }
  }
}

/**
 * Waits for a task's end, telling each new place of it on stderr, from its beginning or from after a position. null:
 * interrupted.
 */
export async function waitForEnd(
  io: Io,
  client: CoordinatorClient,
  taskId: TaskId,
  after: number | null = null,
): Promise<TaskChange | null> {
  let said = '';
  for await (const change of changesOf(io, client.watchTask(taskId, io.signal, after))) {
    const where = whereText(change);
    if (where !== said) await note(io, `${taskId}  ${where}`);
    said = where;
    if (isOver(change.phase)) return change;
  }
  return null;
}

/**
 * Prints the result of a task that is over: the JSON value itself, or with `json` an object around it. Throws a
 * `CliError` (no result) if it ended without one.
 */
export async function finish(io: Io, client: CoordinatorClient, end: TaskEnd, json: boolean): Promise<void> {
  const { taskId, phase, reason, detail } = end;
  if (phase === 'Completed') {
    const { result, warnings } = valueOf(await client.result(taskId));
    for (const warning of warnings) await note(io, `warning: ${warning}`);
    if (json) await io.stdout.write(`${toJson({ taskId, phase, reason, detail, result, warnings })}\n`);
    else await printValue(io, result);
    return;
  }
  if (json) await io.stdout.write(`${toJson({ taskId, phase, reason, detail, result: null, warnings: [] })}\n`);
  const hint = `open-compute logs ${taskId} shows its output, open-compute status ${taskId} its history`;
  throw new CliError(EXIT.noResult, `${taskId} ended without a result: ${endText(end)}`, hint);
}
