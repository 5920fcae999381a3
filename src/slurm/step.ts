import type { StepReply, StepRequest } from '../backend.js';
import type { Handle } from '../machines/vocabulary.js';
import type { Broker } from './broker.js';
import { classifyStep } from './classify.js';

/** A step may wait this long for its turn before srun gives up. */
const LAUNCH_WAIT_S = 30;

/**
 * The command line of a step: always inside the job that is named (INV-4), beside whatever else runs there, its size
 * said and not inherited: releases from 22.05 to 23.02 pass nothing on from the job to its steps.
 */
export function stepArgv(handle: Handle, argv: readonly string[]): readonly string[] {
  return [
    `--jobid=${handle.id}`,
    ...(handle.cluster === null ? [] : [`--clusters=${handle.cluster}`]),
    '--overlap',
    '--nodes=1',
    '--ntasks=1',
    '--cpus-per-task=1',
    `--immediate=${String(LAUNCH_WAIT_S)}`,
    '--input=none',
    '--export=ALL',
    ...argv,
  ];
}

/** Runs a command in an allocation. Without a handle nothing is executed: srun alone would make an allocation. */
export async function runStep(request: StepRequest, broker: Broker): Promise<StepReply> {
  const { handle, argv, timeLimitMs, outputLimitBytes } = request;
  if (handle === null) return { kind: 'refused', detail: 'the job holds no allocation: a step never makes one' };
  if (!/^[1-9][0-9]*$/.test(handle.id))
    return { kind: 'refused', detail: `${JSON.stringify(handle.id)} is not a job id` };
  const [command] = argv;
  if (command === undefined || command === '' || command.startsWith('-')) {
    return { kind: 'refused', detail: 'a step needs a command, and one that is not an option' };
  }
  const ending = await broker.run({
    command: 'srun',
    argv: stepArgv(handle, argv),
    timeLimitMs,
    outputLimitBytes,
    overflow: 'cut',
  });
  return classifyStep(ending);
}
