import type { Command } from 'commander';
import { parseTaskId, valueOf, withClient } from '../client.js';
import { CliError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import { changesOf } from '../follow.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { toJson } from '../output.js';
import { changeLine, endText, isOver } from '../task-text.js';

export function define(command: Command, io: Io): void {
  command
    .argument('[task]', 'one task, from its beginning to its end; without it all tasks, from now on')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
One line per change (with --json one object). With a task it ends with the task: exit code 0 when it completed, 6 when
it ended without a result. Without one it goes on until Ctrl-C. A broken connection is taken up where it ended.`,
    )
    .action((task: string | undefined, options: ClientOptions) => watch(io, task, options));
}

async function watch(io: Io, text: string | undefined, { credentials, json }: ClientOptions): Promise<void> {
  const taskId = text === undefined ? null : parseTaskId(text);
  await withClient(io, credentials, async (client) => {
    // The first answer has to come: else somebody would watch a coordinator that is not there.
    valueOf(await client.whoami());
    const items = taskId === null ? client.watchAll(io.signal) : client.watchTask(taskId, io.signal);
    for await (const change of changesOf(io, items)) {
      await io.stdout.write(json === true ? `${toJson(change)}\n` : `${changeLine(change, taskId === null)}\n`);
      if (taskId === null || !isOver(change.phase)) continue;
      if (change.phase === 'Completed') return;
      throw new CliError(EXIT.noResult, `${taskId} ended without a result: ${endText(change)}`);
    }
    if (taskId !== null) throw new CliError(EXIT.interrupted, `stopped watching ${taskId}`, 'it goes on');
  });
}
