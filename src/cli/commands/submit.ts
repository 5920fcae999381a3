import type { Command } from 'commander';
import { valueOf, withClient } from '../client.js';
import { CliError, usageError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import { finish, waitForEnd } from '../follow.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { note, toJson } from '../output.js';
import { checkName, quoted, readPayload } from '../payload.js';

interface Options extends ClientOptions {
  readonly kind: string;
  readonly payload: string;
  readonly key?: string;
  readonly wait?: true;
}

export function define(command: Command, io: Io): void {
  command
    .requiredOption('--kind <kind>', 'the kind of task; training runs a profile')
    .requiredOption('--payload <json|@file|->', 'what the task is about: JSON, a file with JSON, or standard input')
    .option('--wait', 'wait for the end and print the result')
    .option('--key <key>', 'your own name for this submission: sent again with it, it is the same task')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Prints the task's id, alone, on stdout. With --wait the id and the progress go to stderr, and the result as JSON to
stdout; exit code 6 if the task ends without one. Ctrl-C stops the waiting, not the task.

Example:
  open-compute submit --kind training --payload '{"profile":"smoke","parameters":{"message":"hello"}}' --wait`,
    )
    .action((options: Options) => submit(io, options));
}

async function submit(io: Io, { kind, payload, key, wait, credentials, json }: Options): Promise<void> {
  checkName('--kind', kind);
  if (key !== undefined && !/^[\x21-\x7e]{1,200}$/.test(key)) {
    throw usageError(`--key ${quoted(key)} does not fit`, 'a key has 1 to 200 printable ASCII characters and no blank');
  }
  const value = await readPayload(io, kind, payload);
  await withClient(io, credentials, async (client) => {
    // Without a key the client makes one: a request whose answer got lost is sent again, and is the same task.
    const submitted = valueOf(await client.submit({ kind, payload: value }, key));
    const { taskId } = submitted;
    if (submitted.waiting !== null) await note(io, `waits: ${submitted.waiting}`);
    if (key !== undefined && !submitted.created) await note(io, `${taskId} had been submitted before`);
    if (wait !== true) {
      await io.stdout.write(json === true ? `${toJson(submitted)}\n` : `${taskId}\n`);
      return;
    }
    await note(io, taskId);
    const end = await waitForEnd(io, client, taskId);
    if (end === null) {
      const hint = `it goes on: open-compute result ${taskId} --wait`;
      throw new CliError(EXIT.interrupted, `stopped waiting for ${taskId}`, hint);
    }
    await finish(io, client, end, json === true);
  });
}
