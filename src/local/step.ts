import type { StepReply, StepRequest } from '../backend.js';
import { Token } from '../machines/vocabulary.js';
import { outageOf, stepEnvironmentOf, type LocalContext } from './context.js';
import { lookAt } from './job-state.js';
import { runCommand } from './process.js';
import type { Submission } from './registry.js';

/** Which of a step's processes this is, and on which of the nodes that this machine stands for; both from 0. */
const TASK_VARIABLE = 'OPEN_COMPUTE_TASK';
const NODE_VARIABLE = 'OPEN_COMPUTE_NODE';

/** Runs a step's processes beside the job that is named, which has to run (INV-4). */
export async function runStep(
  request: StepRequest,
  context: LocalContext,
  onStart: (processes: number) => void,
): Promise<StepReply> {
  const { handle } = request;
  const [command, ...args] = request.argv;
  if (command === undefined || command === '') return refused('a step needs a command');
  if (handle === null) return refused('the job holds no allocation: a step never makes one (INV-4)');
  try {
    const { registry } = context;
    const token = Token.safeParse(handle.id);
    const found = token.success ? await registry.find(token.data) : null;
    if (found?.kind !== 'found' || found.submission.submittedAtMs !== handle.submittedAtMs) {
      return refused(`there is no job ${handle.id} (INV-4)`);
    }
    const { submission } = found;
    const state = await lookAt(submission, registry);
    if (state.kind === 'unknown') return { kind: 'unreachable', detail: state.detail };
    if (state.kind !== 'running') return refused(`the job is not running: ${state.kind} (INV-4)`);
    const problem = sizeProblem(request, submission.ranks);
    if (problem !== null) return refused(problem);
    onStart(request.tasks);
    return await runTasks([command, ...args], request, submission, context);
  } catch (error) {
    return outageOf(`running a step in ${handle.id}`, error);
  }
}

const refused = (detail: string): StepReply => ({ kind: 'refused', detail });

/** Each is a process of this machine. */
const TASKS_MAX = 1_024;

/** This machine stands for as many nodes as the job has ranks. */
function sizeProblem({ nodes, tasks }: StepRequest, ranks: number): string | null {
  if (tasks > TASKS_MAX) return `this machine runs at most ${String(TASKS_MAX)} tasks of a step`;
  if (nodes > ranks) return `the job holds ${String(ranks)} nodes, not ${String(nodes)}`;
  return tasks < nodes ? `${String(tasks)} tasks do not fill ${String(nodes)} nodes: ask for more tasks` : null;
}

/** All end with the first that could not be started or was stopped; of exit codes the highest is the step's. */
async function runTasks(
  argv: readonly [string, ...string[]],
  request: StepRequest,
  submission: Submission,
  { inherited, clock }: LocalContext,
): Promise<StepReply> {
  const { tasks, nodes, timeLimitMs, onOutput, signal } = request;
  const failed = new AbortController();
  const ending = AbortSignal.any([signal, failed.signal]);
  const replies = await Promise.all(
    Array.from({ length: tasks }, async (_, task) => {
      const environment = {
        ...stepEnvironmentOf(inherited, submission),
        ...request.environment,
        [TASK_VARIABLE]: String(task),
        [NODE_VARIABLE]: String(Math.floor((task * nodes) / tasks)),
      };
      const reply = await runCommand(
        { argv, cwd: request.directory, environment, timeLimitMs, onOutput, signal: ending },
        clock,
      );
      if (reply.kind === 'refused') failed.abort();
      return reply;
    }),
  );
  return replies.find(({ kind }) => kind === 'refused') ?? worst(replies);
}

const worst = (replies: readonly StepReply[]): StepReply =>
  replies.reduce((a, b) => (badness(b) > badness(a) ? b : a), { kind: 'ended', exitCode: 0, signal: null });

function badness(reply: StepReply): number {
  if (reply.kind !== 'ended') return 1000;
  return reply.signal === null ? (reply.exitCode ?? 0) : 500;
}
