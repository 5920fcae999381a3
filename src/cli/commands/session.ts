import type { Command } from 'commander';
import { OUTPUT_LIMIT_DEFAULT_BYTES, OUTPUT_LIMIT_MAX_BYTES } from '../../coordinator/session-api.js';
import { StepId } from '../../machines/vocabulary.js';
import { valueOf, withClient } from '../client.js';
import { usageError } from '../errors.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, positiveNumber, wholeNumber, type ClientOptions } from '../options.js';
import { print } from '../output.js';
import { quoted } from '../payload.js';
import { parseSessionId, startSession, stopSession, type StartOptions, type StopOptions } from '../session-life.js';
import { JSON_OUTPUT_BYTES_MAX, runStep } from '../session-step.js';
import { sessionTable, sessionText } from '../session-text.js';

interface ListOptions extends ClientOptions {
  readonly all?: true;
  readonly limit: number;
}

interface StepOptions extends ClientOptions {
  readonly timeLimit?: number;
  readonly outputLimit: number;
}

interface RunOptions extends StepOptions {
  readonly nodes?: number;
  readonly tasks?: number;
  readonly cpusPerTask?: number;
}

interface ExecOptions extends StepOptions {
  readonly rank: number;
  readonly stdin?: true;
}

const COUNT_MAX = 65_536;
const RANK_MAX = 65_535;
const DAY_S = 86_400;
const LIST_LIMIT = 100;

export function define(command: Command, io: Io): void {
  // Else a parent takes the `--` for itself, and the command's own options for ours.
  command.parent?.enablePositionalOptions();
  command.enablePositionalOptions();
  command.addHelpText('after', HELP);
  command
    .command('start')
    .description('ask for a session')
    .requiredOption('--profile <profile>', 'what to ask for; open-compute profiles shows what there is')
    .option('--wait', 'wait until it is ready')
    .option(
      '--wait-limit <seconds>',
      'give up waiting after this time; the session goes on',
      positiveNumber(366 * DAY_S),
    )
    .option('--key <key>', 'your own name for this session: asked for again with it, it is the same one')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText('after', START_HELP)
    .action((options: StartOptions) => startSession(io, options));
  command
    .command('list')
    .description('show sessions that go on, newest first')
    .option('--all', 'also those that have ended')
    .option('--limit <n>', 'how many at most', wholeNumber(1, 1000), LIST_LIMIT)
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .action((options: ListOptions) => list(io, options));
  command
    .command('status')
    .description('show one session: what it has and what is missing, when it ends, its ranks, its steps')
    .argument('<session>', 'its id')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .action((session: string, options: ClientOptions) => status(io, session, options));
  stepCommand(command, 'run', 'run a command on the nodes that the session holds')
    .option('--nodes <n>', 'on how many nodes (default: 1)', wholeNumber(1, COUNT_MAX))
    .option('--tasks <n>', 'how many processes in all (default: one on each node)', wholeNumber(1, COUNT_MAX))
    .option('--cpus-per-task <n>', 'processors for each of them (default: 1)', wholeNumber(1, COUNT_MAX))
    .action((session: string, argv: string[], options: RunOptions) => run(io, session, argv, options));
  stepCommand(command, 'exec', 'run a command through the agent of one rank')
    .option('--rank <r>', 'which one', wholeNumber(0, RANK_MAX), 0)
    .option('-i, --stdin', 'forward standard input')
    .action((session: string, argv: string[], options: ExecOptions) => exec(io, session, argv, options));
  command
    .command('cancel-step')
    .description('ask for the end of one step; the session stays')
    .argument('<session>', 'its id')
    .argument('<step>', 'the id of the step, as in status')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .action((session: string, step: string, options: ClientOptions) => cancelStep(io, session, step, options));
  command
    .command('stop')
    .description('end a session: no new steps, then its steps, then what it holds')
    .argument('<session>', 'its id')
    .option('--wait', 'wait until it has ended')
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .action((session: string, options: StopOptions) => stopSession(io, session, options));
}

function stepCommand(parent: Command, name: string, description: string): Command {
  return parent
    .command(name)
    .description(description)
    .argument('<session>', 'its id')
    .argument('<command...>', 'the command and its arguments, behind --')
    .option('--time-limit <seconds>', 'end it after this time (exit code 124)', positiveNumber(366 * DAY_S))
    .option(
      '--output-limit <bytes>',
      'output beyond this is dropped, and said',
      wholeNumber(1, OUTPUT_LIMIT_MAX_BYTES),
      OUTPUT_LIMIT_DEFAULT_BYTES,
    )
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText('after', STEP_HELP);
}

async function list(io: Io, { all, limit, credentials, json }: ListOptions): Promise<void> {
  const query = { all: all === true ? 'true' : 'false', limit } as const;
  const found = await withClient(io, credentials, async (client) => valueOf(await client.sessions(query)));
  await print(io, json === true, found, () =>
    found.sessions.length === 0 ? 'no sessions\n' : sessionTable(found.sessions, io.clock.nowMs()),
  );
}

async function status(io: Io, text: string, { credentials, json }: ClientOptions): Promise<void> {
  const taskId = parseSessionId(text);
  const info = await withClient(io, credentials, async (client) => valueOf(await client.session(taskId)));
  await print(io, json === true, info, () => sessionText(info, io.clock.nowMs()));
}

const limitsOf = ({ timeLimit, outputLimit }: StepOptions) => ({
  timeLimitS: timeLimit ?? null,
  outputLimitBytes: outputLimit,
});

async function run(io: Io, session: string, argv: string[], options: RunOptions): Promise<void> {
  const { nodes = null, tasks = null, cpusPerTask = null } = options;
  const wanted = { mode: 'run', argv, ...limitsOf(options), nodes, tasks, cpusPerTask } as const;
  await runStep(io, parseSessionId(session), wanted, options);
}

async function exec(io: Io, session: string, argv: string[], options: ExecOptions): Promise<void> {
  const wanted = {
    mode: 'exec',
    argv,
    ...limitsOf(options),
    rank: options.rank,
    stdin: options.stdin === true,
  } as const;
  await runStep(io, parseSessionId(session), wanted, options);
}

async function cancelStep(io: Io, session: string, step: string, options: ClientOptions): Promise<void> {
  const taskId = parseSessionId(session);
  const parsed = StepId.safeParse(step);
  if (!parsed.success) {
    throw usageError(`${quoted(step)} is no step`, `open-compute session status ${taskId} shows its steps`);
  }
  const answer = await withClient(io, options.credentials, async (client) =>
    valueOf(await client.cancelStep(taskId, parsed.data)),
  );
  await print(io, options.json === true, answer, () =>
    answer.ended ? `${parsed.data} has ended already\n` : `${parsed.data} is asked to end; the session stays\n`,
  );
}

const HELP = `
A session holds nodes for a while, and runs commands inside: no command ever makes an allocation of its own. It ends
when you stop it, when nobody has used it for its idle limit (a step that runs and keys that are typed are use; a healthy
agent is not), or at its longest lifetime; both limits are the profile's.

Example:
  id=$(open-compute session start --profile gpu-multi --wait)
  open-compute session run "$id" --nodes 4 --tasks 4 -- hostname
  open-compute session exec "$id" --rank 2 -i -- bash
  open-compute session stop "$id"`;

const START_HELP = `
Prints the session's id, alone, on stdout. With --wait it says on stderr what is missing, and returns when the session is
ready: its nodes are granted, its workspace is there, every rank is in, and the agents answer. Exit code 6 if it ends
before, 1 if it is not ready within --wait-limit. Ctrl-C stops the waiting, not the session.
With --json: {"taskId",…}; with --wait, when it is ready, with "task" and "session" as in status --json.`;

const STEP_HELP = `
What the command writes comes out as it is, its stdout on stdout, its stderr on stderr; what open-compute has to say
itself comes on stderr behind "open-compute:". The exit code is the command's; 128 + n if signal n ended it; 124 at its
time limit. 1: it was refused, and nothing was started; 6: it was cancelled, or nobody can say what became of it.
Ctrl-C asks the command to end and waits for its end; a second one stops the waiting.
With --json one object at the end: {"stepId","taskId","end","stdout","stderr","cutBytes"}; the output is text, of each
stream the first ${String(JSON_OUTPUT_BYTES_MAX)} bytes, and "cutBytes" says how many more there were.`;
