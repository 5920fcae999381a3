import type { StepRequest } from '../../coordinator/session-api.js';
import type { AgentStepControl } from '../../gateway/agent-port.js';
import type { StepEnd } from '../../machines/session-events.js';
import type { StepId, TaskId } from '../../machines/vocabulary.js';
import { StepInput } from './step-input.js';
import { StepOutput, type OutputBudget } from './step-output.js';

/** A step that somebody asked this process for. Times are monotonic ms. */
export interface RunningStep {
  readonly taskId: TaskId;
  readonly stepId: StepId;
  readonly output: StepOutput;
  /** This process ran it, and knows all that it wrote. */
  isOurs: boolean;
  readonly input: StepInput;
  /** How many bytes of what the command has taken of its input the coordinator knows of. */
  stdinTold: number;
  notice: string | null;
  end: StepEnd | null;
  endedAtMs: number | null;
  /** The coordinator knows of it and wants what it writes. */
  wanted: boolean;
  /** How often it was asked for. */
  asked: number;
  /** Aborted when it is to end. */
  readonly stop: AbortController;
  /** Of one that an agent runs. */
  control: AgentStepControl | null;
  /** It had no room for more: offered again at this time, and later each time. */
  offer: { readonly atMs: number; readonly waitMs: number };
}

/** As it is when it has just been asked for. */
export function runningStep(
  taskId: TaskId,
  { stepId, outputLimitBytes }: Pick<StepRequest, 'stepId' | 'outputLimitBytes'>,
  budget: OutputBudget,
): RunningStep {
  return {
    taskId,
    stepId,
    output: new StepOutput(outputLimitBytes, budget),
    isOurs: false,
    input: new StepInput(),
    stdinTold: 0,
    notice: null,
    end: null,
    endedAtMs: null,
    wanted: true,
    asked: 1,
    offer: { atMs: 0, waitMs: 0 },
    stop: new AbortController(),
    control: null,
  };
}
