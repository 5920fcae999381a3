import type { StepReply, StepRequest } from '../backend.js';
import type { Handle } from '../machines/vocabulary.js';
import type { Broker } from './broker.js';
import { classifyStep } from './classify.js';
import { COMMAND_ONLY_VARIABLES } from './environment.js';

/** A step may wait this long for its turn before srun gives up. */
const LAUNCH_WAIT_S = 30;
/** Of a step's output this much is kept to tell srun's own words from the command's; all of it goes to the caller. */
const KEPT_BYTES = 64 * 1024;

type StepSize = Pick<StepRequest, 'nodes' | 'tasks' | 'cpusPerTask' | 'directory' | 'environment' | 'argv'>;

/**
 * The command line of a step: always inside the job that is named (INV-4), beside whatever else runs there, its size
 * said and not inherited: releases from 22.05 to 23.02 pass nothing on from the job to its steps. Its environment is
 * srun's own, which is built, less what only the commands are to see, and the profile's variables; `env` sets them,
 * because a value in --export can not hold a comma.
 */
export function stepArgv(
  handle: Handle,
  step: StepSize,
  { overlap }: { readonly overlap: boolean },
): readonly string[] {
  return [
    `--jobid=${handle.id}`,
    ...(handle.cluster === null ? [] : [`--clusters=${handle.cluster}`]),
    ...(overlap ? ['--overlap'] : []),
    `--nodes=${String(step.nodes)}`,
    `--ntasks=${String(step.tasks)}`,
    `--cpus-per-task=${String(step.cpusPerTask)}`,
    `--immediate=${String(LAUNCH_WAIT_S)}`,
    '--input=none',
    '--export=ALL',
    `--chdir=${step.directory}`,
    'env',
    ...COMMAND_ONLY_VARIABLES.flatMap((name) => ['-u', name]),
    ...Object.entries(step.environment).map(([name, value]) => `${name}=${value}`),
    ...step.argv,
  ];
}

/** Why these words are no command, or null. */
function commandProblem([command]: readonly string[]): string | null {
  if (command === undefined || command === '' || command.startsWith('-'))
    return 'a step needs a command, and one that is not an option';
  // `env` would take it for a variable.
  return command.includes('=') ? `the name of a command has no "=": ${JSON.stringify(command)}` : null;
}

/** Runs a command in an allocation. Without a handle nothing is executed: srun alone would make an allocation. */
export async function runStep(
  request: StepRequest,
  broker: Broker,
  options: { readonly overlap: boolean },
): Promise<StepReply> {
  const { handle, timeLimitMs, onOutput, signal, nodes, tasks } = request;
  if (handle === null) return { kind: 'refused', detail: 'the job holds no allocation: a step never makes one' };
  if (!/^[1-9][0-9]*$/.test(handle.id))
    return { kind: 'refused', detail: `${JSON.stringify(handle.id)} is not a job id` };
  if (tasks < nodes)
    return { kind: 'refused', detail: `${String(tasks)} tasks do not fill ${String(nodes)} nodes: ask for more tasks` };
  const problem = commandProblem(request.argv);
  if (problem !== null) return { kind: 'refused', detail: problem };
  const ending = await broker.run({
    command: 'srun',
    argv: stepArgv(handle, request, options),
    timeLimitMs,
    outputLimitBytes: KEPT_BYTES,
    overflow: 'cut',
    onOutput,
    signal,
  });
  return classifyStep(ending);
}
