import { Argument, type Command } from 'commander';
import type { AnyStateMachine } from 'xstate';
import { machineGraph, toDot, toMermaid } from '../../machines/draw.js';
import { jobMachine } from '../../machines/job.js';
import { sessionMachine } from '../../machines/session.js';
import { taskMachine } from '../../machines/task.js';
import type { Io } from '../io.js';
import { formatOption, jsonOption, type JsonOption } from '../options.js';
import { toJson } from '../output.js';

const MACHINES = { job: jobMachine, task: taskMachine, session: sessionMachine } as const;
const NAMES = ['job', 'task', 'session'] as const;
const FORMATS = ['json', 'mermaid', 'svg'] as const;

interface Options extends JsonOption {
  readonly format: (typeof FORMATS)[number];
}

export function define(command: Command, io: Io): void {
  command
    .addArgument(new Argument('<machine>', 'which one').choices(NAMES))
    .addOption(formatOption(FORMATS, 'json'))
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
json     the machine's config: paste it as createMachine(…) into the XState visualizer
mermaid  a stateDiagram-v2, for a Markdown page
svg      a picture, drawn here

--json is the same as --format json.`,
    )
    .action(async (name: (typeof NAMES)[number], { format, json }: Options) => {
      await io.stdout.write(await draw(MACHINES[name], json === true ? 'json' : format));
    });
}

async function draw(machine: AnyStateMachine, format: Options['format']): Promise<string> {
  switch (format) {
    case 'json':
      return `${toJson(machine.config, 2)}\n`;
    case 'mermaid':
      return toMermaid(machineGraph(machine));
    case 'svg': {
      // Graphviz as WebAssembly, 5 MB: only a picture needs it.
      const { instance } = await import('@viz-js/viz');
      return (await instance()).renderString(toDot(machineGraph(machine)), { format: 'svg', engine: 'dot' });
    }
  }
}
