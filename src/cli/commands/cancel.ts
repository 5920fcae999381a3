import type { Command } from 'commander';
import { parseTaskId, valueOf, withClient } from '../client.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { print } from '../output.js';
import { isOver } from '../task-text.js';

export function define(command: Command, io: Io): void {
  command
    .argument('<task>', 'a task id')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
A wish: the task keeps its phase until its job has been seen to end, and the wish is repeated until then. A completion
that comes first wins. Follow it with open-compute watch TASK.`,
    )
    .action((task: string, options: ClientOptions) => cancel(io, task, options));
}

async function cancel(io: Io, text: string, { credentials, json }: ClientOptions): Promise<void> {
  const taskId = parseTaskId(text);
  const task = await withClient(io, credentials, async (client) => valueOf(await client.cancel(taskId)));
  await print(io, json === true, { task }, () =>
    isOver(task.phase)
      ? `${task.taskId} is ${task.phase}\n`
      : `${task.taskId} is asked to end; it is ${task.phase} until its job has ended\n`,
  );
}
