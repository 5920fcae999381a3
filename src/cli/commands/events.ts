import { access, constants } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { ImportError, type ImportReport } from '../../events/import.js';
import { exportJsonl, importJsonl, JsonlFile } from '../../events/jsonl.js';
import type { SqliteEventStore } from '../../events/sqlite-store.js';
import { openStateDirectory } from '../../events/state-directory.js';
import type { RecordedEvent } from '../../events/store.js';
import { parseStreamName, type StreamName } from '../../events/streams.js';
import { CliError, messageOf, usageError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import type { Io } from '../io.js';
import { jsonOption, type JsonOption } from '../options.js';
import { LineBuffer, print } from '../output.js';
import { quoted } from '../payload.js';

interface Options extends JsonOption {
  readonly stateDir: string;
  readonly stream?: string;
}

const STATE_DIR = ['--state-dir <dir>', 'a state directory of a worker or of the coordinator'] as const;
const STREAM = ['--stream <name>', 'one stream only, such as job/ID or task/ID'] as const;

export function define(command: Command, io: Io): void {
  command.addHelpText('after', '\nThe format is JSON Lines: one recorded event per line, as the log keeps it.');
  command
    .command('export')
    .description('print the log, also while its owner writes to it')
    .requiredOption(...STATE_DIR)
    .option(...STREAM)
    .addOption(jsonOption())
    .addHelpText('after', '\nPrints JSON Lines, with or without --json.')
    .action((options: Options) => exportLog(io, options));
  command
    .command('import')
    .description('take an export into a state directory: all of it, or nothing')
    .argument('<file>', 'an export, or - for standard input')
    .requiredOption(...STATE_DIR)
    .option(...STREAM)
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
The directory is made if it is missing; it must not be in use. Streams that it holds already have to be the same.
Events keep their time and writer, and get positions of their own.`,
    )
    .action((file: string, options: Options) => importLog(io, file, options));
}

async function exportLog(io: Io, { stateDir, stream }: Options): Promise<void> {
  const name = streamOf(stream);
  const path = resolve(io.cwd, stateDir);
  const state = await openStateDirectory(path, { mode: 'read', writer: 'reader', nowMs: () => io.clock.nowMs() });
  try {
    const lines = new LineBuffer(io.stdout);
    let count = 0;
    for await (const line of exportJsonl(state.store, name)) {
      if (io.signal.aborted) throw new CliError(EXIT.interrupted, 'the export was interrupted; it is not whole');
      await lines.add(line);
      count += 1;
    }
    await lines.flush();
    if (count === 0 && name !== undefined) throw new CliError(EXIT.notFound, `there is no ${name} in ${path}`);
  } finally {
    await state.close();
  }
}

async function importLog(io: Io, file: string, { stateDir, stream, json }: Options): Promise<void> {
  const name = streamOf(stream);
  const source = file === '-' ? '/dev/stdin' : resolve(io.cwd, file);
  await access(source, constants.R_OK).catch((error: unknown) => {
    throw usageError(`${quoted(file)} can not be read: ${messageOf(error)}`);
  });
  const state = await openStateDirectory(resolve(io.cwd, stateDir), {
    mode: 'write',
    create: true,
    writer: 'import',
    nowMs: () => io.clock.nowMs(),
  });
  try {
    const report =
      name === undefined ? await importJsonl(state.store, source) : await importStream(state.store, source, name);
    await print(io, json === true, report, () => {
      const there = report.alreadyThere === 0 ? '' : `, ${String(report.alreadyThere)} were there already`;
      return `${String(report.imported)} events imported${there}\n`;
    });
  } finally {
    await state.close();
  }
}

async function importStream(store: SqliteEventStore, source: string, name: StreamName): Promise<ImportReport> {
  const file = new JsonlFile(source);
  const records = {
    *[Symbol.iterator](): Generator<RecordedEvent> {
      for (const record of file) if (record.stream === name) yield record;
    },
  };
  try {
    return await store.importRecorded(records);
  } catch (cause) {
    if (!(cause instanceof ImportError) || cause.message.startsWith(file.path)) throw cause;
    throw new ImportError(`${file.place}: ${cause.message}`, { cause });
  }
}

function streamOf(text: string | undefined): StreamName | undefined {
  try {
    return text === undefined ? undefined : parseStreamName(text);
  } catch (error) {
    throw usageError(messageOf(error));
  }
}
