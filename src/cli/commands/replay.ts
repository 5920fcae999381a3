import type { Command } from 'commander';
import type { RecordedEvent } from '../../events/store.js';
import { jobStream } from '../../events/streams.js';
import type { JobId } from '../../machines/vocabulary.js';
import { CliError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import type { Io } from '../io.js';
import { openLog, parseJobId, type LogReader } from '../log-source.js';
import { jsonOption, wholeNumber, type JsonOption } from '../options.js';
import { LineBuffer, printableLine, toExactTime, toJson } from '../output.js';
import { Replay, type ReplayStep } from '../replay-states.js';

interface Options extends JsonOption {
  readonly job?: string;
  readonly until?: number;
}

export function define(command: Command, io: Io): void {
  command
    .argument('<file|dir>', 'a JSON Lines export, or a state directory (only read, also while a worker runs)')
    .option('--job <id>', 'one job only')
    .option('--until <n>', 'stop after the nth event: of the job with --job, else of the log', wholeNumber(1))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Prints one line per event: position, time, stream@version, event, and the state after it.
With --json each line is an object that holds the whole state.`,
    )
    .action((source: string, options: Options) => replay(io, source, options));
}

async function replay(io: Io, source: string, { job, until, json }: Options): Promise<void> {
  const jobId = job === undefined ? null : parseJobId(job);
  const log = await openLog(io, source);
  try {
    const events = jobId === null ? log.readAll() : await readKnownJob(log, jobId);
    await printStates(io, events, until ?? Infinity, json === true);
  } finally {
    await log.close();
  }
}

async function printStates(
  io: Io,
  events: AsyncIterable<RecordedEvent> | Iterable<RecordedEvent>,
  until: number,
  json: boolean,
): Promise<void> {
  const replay = new Replay();
  const lines = new LineBuffer(io.stdout);
  let count = 0;
  try {
    for await (const recorded of events) {
      if (io.signal.aborted) throw new CliError(EXIT.interrupted, 'the replay was interrupted');
      count += 1;
      const step = replay.step(recorded);
      await lines.add(json ? `${toJson(objectOf(step))}\n` : lineOf(step));
      if (count >= until) return;
    }
  } finally {
    // Before an error is told: what could be replayed comes first.
    await lines.flush();
  }
}

async function readKnownJob(log: LogReader, jobId: JobId): Promise<readonly RecordedEvent[]> {
  const events = await log.readStream(jobStream(jobId));
  if (events.length === 0) throw new CliError(EXIT.notFound, `there is no ${jobId} in ${log.path}`);
  return events;
}

function objectOf({ recorded, state }: ReplayStep): object {
  const { position, stream, version, recordedAtMs, event } = recorded;
  const head = { position, stream, version, recordedAtMs, event: event.type };
  return state.kind === 'facts' ? { ...head, state: null } : { ...head, state: state.stored };
}

function lineOf({ recorded, state, phaseBefore }: ReplayStep): string {
  const { position, stream, version, event } = recorded;
  const after = state.kind === 'facts' ? '' : stateText(state.stored.phase, reasonOf(state), phaseBefore);
  const cells = [
    String(position).padStart(6),
    toExactTime(event.atMs),
    `${stream}@${String(version)}`,
    event.type,
    after,
  ];
  return `${printableLine(cells.join('  ').trimEnd())}\n`;
}

const reasonOf = (state: Exclude<ReplayStep['state'], { kind: 'facts' }>): string | null =>
  state.kind === 'session'
    ? (state.stored.context.end?.reason ?? state.stored.context.ending?.reason ?? null)
    : state.stored.context.reason;

function stateText(phase: string, reason: string | null, before: string | null): string {
  const now = reason === null ? phase : `${phase} (${reason})`;
  return before === null || before === phase ? now : `${before} -> ${now}`;
}
