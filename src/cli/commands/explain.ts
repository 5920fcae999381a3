import type { Command } from 'commander';
import type { RecordedEvent } from '../../events/store.js';
import { explainJob, type Chapter } from '../explain-job.js';
import type { Io } from '../io.js';
import { findJob, stateDirOption, type LogReader } from '../log-source.js';
import { jsonOption, type JsonOption } from '../options.js';
import { printableLine, toExactTime, toJson } from '../output.js';

interface Options extends JsonOption {
  readonly stateDir?: string;
}

export function define(command: Command, io: Io): void {
  command
    .argument('<job>', 'a job id (`open-compute status TASK` shows them)')
    .addOption(stateDirOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Tells what a worker's log knows about one job: each question, when it was asked, what the answer was, and why this
was or was not enough to go on. While a submission is in doubt, the conditions for sending it again are shown with
[x] met and [ ] not met. Outages of the backend are shown where they fell.`,
    )
    .action((jobId: string, options: Options) => explain(io, jobId, options));
}

async function explain(io: Io, jobText: string, { stateDir, json }: Options): Promise<void> {
  const { jobId, events, log } = await findJob(io, jobText, stateDir);
  try {
    const chapters = explainJob(await storyOf(log, events));
    if (json === true) await io.stdout.write(`${toJson({ jobId, chapters })}\n`);
    else for (const chapter of chapters) await io.stdout.write(textOf(chapter));
  } finally {
    await log.close();
  }
}

/** The job's own events, and those of backends between its first and its last one (or now, while it goes on). */
async function storyOf(log: LogReader, events: readonly RecordedEvent[]): Promise<readonly RecordedEvent[]> {
  const first = events[0]?.position ?? 0;
  const last = events.at(-1);
  const end = last?.event.type === 'directory.removed' ? last.position : Infinity;
  const story: RecordedEvent[] = [];
  for await (const recorded of log.readAll(first - 1)) {
    if (recorded.position > end) break;
    if (recorded.stream === events[0]?.stream || recorded.stream.startsWith('backend/')) story.push(recorded);
  }
  return story;
}

function textOf({ atMs, text, details, phase, evidence, verdict }: Chapter): string {
  const lines = [
    `${toExactTime(atMs)}  ${text}`,
    ...details.map((detail) => `    ${detail}`),
    ...evidence.map(({ what, met }) => `    [${met ? 'x' : ' '}] ${what}`),
    ...(verdict === null ? [] : [`    => ${verdict}`]),
    ...(phase === null ? [] : [`    => ${phase}`]),
  ];
  return lines.map((line) => `${printableLine(line)}\n`).join('');
}
