import type { Command } from 'commander';
import { parseTaskId, valueOf, withClient } from '../client.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { note, print } from '../output.js';
import { isOver } from '../task-text.js';

export function define(command: Command, io: Io): void {
  command
    .argument('<task>', 'a task id')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Ends a task without waiting for its job: what runs for it is not watched any more and MAY LIVE ON. For a task whose
cluster will not come back. To end the job as well, use open-compute cancel.`,
    )
    .action((task: string, options: ClientOptions) => abandon(io, task, options));
}

async function abandon(io: Io, text: string, { credentials, json }: ClientOptions): Promise<void> {
  const taskId = parseTaskId(text);
  const task = await withClient(io, credentials, async (client) => valueOf(await client.abandon(taskId)));
  await print(io, json === true, { task }, () =>
    isOver(task.phase)
      ? `${task.taskId} is ${task.phase}${task.reason === null ? '' : ` (${task.reason})`}\n`
      : `${task.taskId} is ${task.phase} until its worker has let go of it\n`,
  );
  const left = [...task.forgottenJobs, ...task.openJobs];
  if (task.abandonRequested !== null && left.length > 0) {
    await note(io, `WARNING: may live on at the backend: ${left.join(', ')}`);
  }
}
