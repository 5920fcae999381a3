import type { Command } from 'commander';
import { parseTaskId, valueOf, withClient } from '../client.js';
import { CliError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import { finish, waitForEnd } from '../follow.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { isOver } from '../task-text.js';

interface Options extends ClientOptions {
  readonly wait?: true;
}

export function define(command: Command, io: Io): void {
  command
    .argument('<task>', 'a task id')
    .option('--wait', 'wait for the end, telling the progress on stderr')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Prints the result as JSON; with --json an object around it: taskId, phase, reason, detail, result, warnings.
Exit code 6 if the task ended without a result, 1 if it has not ended yet.`,
    )
    .action((task: string, options: Options) => result(io, task, options));
}

async function result(io: Io, text: string, { wait, credentials, json }: Options): Promise<void> {
  const taskId = parseTaskId(text);
  await withClient(io, credentials, async (client) => {
    const task = valueOf(await client.get(taskId));
    if (isOver(task.phase)) {
      await finish(io, client, task, json === true);
      return;
    }
    if (wait !== true) {
      throw new CliError(EXIT.failed, `${taskId} has not ended yet: it is ${task.phase}`, 'wait for it with --wait');
    }
    const end = await waitForEnd(io, client, taskId);
    if (end === null) throw new CliError(EXIT.interrupted, `stopped waiting for ${taskId}`, 'it goes on');
    await finish(io, client, end, json === true);
  });
}
