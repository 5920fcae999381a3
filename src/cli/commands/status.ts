import { Option, type Command } from 'commander';
import type { TaskList, TaskView } from '../../coordinator/api.js';
import { TASK_PHASES, type TaskPhase } from '../../machines/task-events.js';
import type { CoordinatorClient } from '../../coordinator/client.js';
import { parseTaskId, valueOf, withClient } from '../client.js';
import type { Io } from '../io.js';
import { credentialsOption, jsonOption, wholeNumber, type ClientOptions } from '../options.js';
import { print, toDuration, toJson, toPairs, toTime } from '../output.js';
import { historyTable, jobTable, taskTable } from '../task-text.js';

interface Options extends ClientOptions {
  readonly phase?: TaskPhase;
  readonly limit: number;
}

const LIMIT = 50;
const PAGE_MAX = 1000;

export function define(command: Command, io: Io): void {
  command
    .argument('[task]', 'one task, with its jobs and its whole history')
    .addOption(new Option('--phase <phase>', 'only tasks in this phase').choices(TASK_PHASES))
    .option('--limit <n>', 'how many, newest first', wholeNumber(1, 1_000_000), LIMIT)
    .addOption(credentialsOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
PHASE says where a task is, REASON why it is there; JOB is the phase of its newest job.
With --json: {"tasks":[…]}, or {"task":…,"history":[…]} for one task.`,
    )
    .action((task: string | undefined, options: Options) =>
      task === undefined ? list(io, options) : showOne(io, task, options),
    );
}

async function list(io: Io, { phase, limit, credentials, json }: Options): Promise<void> {
  const tasks = await withClient(io, credentials, (client) => pages(client, phase, limit));
  if (json !== true && tasks.length === 0) {
    await io.stdout.write('no tasks\n');
    return;
  }
  await print(io, json === true, { tasks }, () => taskTable(tasks, io.clock.nowMs()));
}

async function pages(
  client: CoordinatorClient,
  phase: TaskPhase | undefined,
  limit: number,
): Promise<readonly TaskView[]> {
  const tasks: TaskView[] = [];
  let cursor: number | null = null;
  do {
    const page: TaskList = valueOf(
      await client.list({
        limit: Math.min(PAGE_MAX, limit - tasks.length),
        ...(phase === undefined ? {} : { phase }),
        ...(cursor === null ? {} : { cursor }),
      }),
    );
    tasks.push(...page.tasks);
    cursor = page.next;
  } while (cursor !== null && tasks.length < limit);
  return tasks;
}

async function showOne(io: Io, text: string, { credentials, json }: Options): Promise<void> {
  const taskId = parseTaskId(text);
  const [task, { changes }] = await withClient(io, credentials, async (client) => [
    valueOf(await client.get(taskId)),
    valueOf(await client.history(taskId)),
  ]);
  if (json === true) {
    await io.stdout.write(`${toJson({ task, history: changes })}\n`);
    return;
  }
  const parts = [pairsOf(task, io.clock.nowMs())];
  if (task.jobsTotal > 0) parts.push(jobTable(task));
  parts.push(historyTable(changes));
  await io.stdout.write(parts.join('\n'));
}

function pairsOf(task: TaskView, nowMs: number): string {
  const { submittedAtMs, endedAtMs, cancelRequested, abandonRequested, losses, lossesMax } = task;
  const took = endedAtMs === null ? '' : ` after ${toDuration(endedAtMs - submittedAtMs)}`;
  const listed = (items: readonly string[]): string | null => (items.length === 0 ? null : items.join(', '));
  return toPairs([
    ['task', task.taskId],
    ['kind', task.kind],
    ['profile', task.profile],
    ['phase', task.phase],
    ['reason', task.reason],
    ['detail', task.detail === '' ? null : task.detail],
    ['waiting', task.waiting],
    ['submitted', `${toTime(submittedAtMs)} by ${task.by} (${toDuration(nowMs - submittedAtMs)} ago)`],
    ['ended', endedAtMs === null ? null : `${toTime(endedAtMs)}${took}`],
    ['worker', task.worker === null ? null : `${task.worker} (epoch ${String(task.epoch)})`],
    ['lost jobs', losses === 0 ? null : `${String(losses)} of at most ${String(lossesMax)}`],
    ['cancel', cancelRequested === null ? null : `asked for by ${cancelRequested.by}, ${toTime(cancelRequested.atMs)}`],
    ['abandon', abandonRequested === null ? null : `by ${abandonRequested.by}, ${toTime(abandonRequested.atMs)}`],
    ['open jobs', listed(task.openJobs)],
    ['left behind', listed(task.forgottenJobs)],
    ['warnings', listed(task.warnings)],
  ]);
}
