import type { Command } from 'commander';
import { parseTaskId, valueOf, withClient } from '../client.js';
import type { Io, Sink } from '../io.js';
import { credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { note, printableText, toDuration, toJson } from '../output.js';

export function define(command: Command, io: Io): void {
  command
    .argument('<task>', 'a task id')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Prints the newest part of the newest job's output: its stdout on stdout, its stderr on stderr. Control characters are
escaped on a terminal, and passed on as they are elsewhere. While the task runs, asking makes its worker hand over
more: ask again a few seconds later.`,
    )
    .action((task: string, options: ClientOptions) => logs(io, task, options));
}

async function logs(io: Io, text: string, { credentials, json }: ClientOptions): Promise<void> {
  const taskId = parseTaskId(text);
  const view = await withClient(io, credentials, async (client) => valueOf(await client.logs(taskId)));
  if (json === true) {
    await io.stdout.write(`${toJson(view)}\n`);
    return;
  }
  await put(io.stdout, view.stdout);
  await put(io.stderr, view.stderr);
  const age = view.updatedAtMs === null ? null : toDuration(io.clock.nowMs() - view.updatedAtMs);
  await note(io, age === null ? '(no output has been handed over yet)' : `(as of ${age} ago)`);
}

async function put(sink: Sink, text: string): Promise<void> {
  if (text === '') return;
  await sink.write(sink.isTerminal ? printableText(text) : text);
  if (!text.endsWith('\n')) await sink.write('\n');
}
