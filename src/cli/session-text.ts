import type { TaskView } from '../coordinator/api.js';
import type { SessionInfo, SessionView, StepView } from '../coordinator/session-api.js';
import { cut, toDuration, toPairs, toTable, toTime } from './output.js';
import { endText, isOver } from './task-text.js';

/** How sessions read for people. */

const WORDS_MAX = 60;
const COMMAND_MAX = 50;

/** Where a session is: its own state, or that of its task while no worker has spoken of it. */
export const stateOf = ({ task, session }: SessionInfo): string => session?.state ?? task.phase;

/** `3 of 4 ranks; waiting for rank 2`: where a session is, and what it waits for, in one line. */
export function whereOf({ task, session }: SessionInfo): string {
  if (isOver(task.phase)) return `ended: ${endText(task)}`;
  if (task.cancelRequested !== null && session === null) return `being ended, as ${task.cancelRequested.by} asked`;
  if (task.phase === 'Queued') return task.waiting ?? 'waits for a worker';
  if (session !== null) return session.words;
  const job = task.jobs.at(-1);
  const on = task.worker === null ? '' : ` on ${task.worker}`;
  return job === undefined ? `being set up${on}` : `job ${job.phase}${on}${job.detail === '' ? '' : `: ${job.detail}`}`;
}

export function sessionTable(sessions: readonly SessionInfo[], nowMs: number): string {
  const rows = sessions.map((info) => {
    const { task, session } = info;
    return [
      task.taskId,
      task.profile ?? '',
      stateOf(info),
      task.reason ?? '',
      session === null ? '' : `${String(session.ranksIn.length)}/${String(session.ranks)}`,
      session === null ? '' : String(session.steps.filter(({ end }) => end === null).length),
      task.worker ?? '',
      toDuration(nowMs - task.submittedAtMs),
      cut(whereOf(info), WORDS_MAX),
    ];
  });
  return toTable(['SESSION', 'PROFILE', 'STATE', 'REASON', 'RANKS', 'STEPS', 'WORKER', 'AGE', 'DETAIL'], rows);
}

/** One session: what it has and what is missing, when it ends, its ranks, its steps. */
export function sessionText(info: SessionInfo, nowMs: number): string {
  const { task, session } = info;
  const parts = [toPairs([...taskPairs(info, nowMs), ...(session === null ? [] : sessionPairs(task, session, nowMs))])];
  if (session !== null && session.ranksIn.length > 0) parts.push(rankTable(session));
  if (session !== null && session.steps.length > 0) parts.push(stepTable(session.steps, nowMs));
  return parts.join('\n');
}

type Pair = readonly [name: string, value: string | null];

function taskPairs(info: SessionInfo, nowMs: number): readonly Pair[] {
  const { task } = info;
  const { submittedAtMs, endedAtMs, cancelRequested } = task;
  return [
    ['session', task.taskId],
    ['profile', task.profile],
    ['state', stateOf(info)],
    ['reason', task.reason],
    ['now', whereOf(info)],
    ['started', `${toTime(submittedAtMs)} by ${task.by} (${toDuration(nowMs - submittedAtMs)} ago)`],
    ['ended', endedAtMs === null ? null : `${toTime(endedAtMs)} after ${toDuration(endedAtMs - submittedAtMs)}`],
    ['worker', task.worker === null ? null : `${task.worker} (epoch ${String(task.epoch)})`],
    ['stop', cancelRequested === null ? null : `asked for by ${cancelRequested.by}, ${toTime(cancelRequested.atMs)}`],
    ['recoveries', recoveriesOf(info)],
  ];
}

/** Also while no worker has spoken of the session yet: the task knows how many of its jobs were lost. */
function recoveriesOf({ task, session }: SessionInfo): string | null {
  const times = session?.recoveries ?? task.losses;
  if (times === 0) return null;
  const loss = session?.lastLoss ?? null;
  const why = loss === null ? '' : ` (${loss})`;
  return `came back as a new job ${String(times)} ${times === 1 ? 'time' : 'times'}${why}; what its processes had in memory is gone`;
}

function sessionPairs(task: TaskView, session: SessionView, nowMs: number): readonly Pair[] {
  if (isOver(task.phase)) return [];
  const { readiness, grantedAtMs, ranks, ranksIn, idleEndsAtMs, lifetimeEndsAtMs, steps } = session;
  const missing = Object.entries(readiness).flatMap(([name, isThere]) => (isThere ? [] : [name]));
  const since = grantedAtMs === null ? '' : ` since ${toTime(grantedAtMs)}`;
  const left = (ms: number): string => `in ${toDuration(ms - nowMs)} (${toTime(ms)})`;
  const running = steps.some(({ end }) => end === null);
  return [
    ['missing', missing.length === 0 ? 'nothing: it is ready' : missing.join(', ')],
    ['allocation', readiness.allocation ? `held${since}` : 'not granted yet'],
    ['workspace', readiness.workspace ? 'is there' : 'is not there yet'],
    ['ranks', `${String(ranksIn.length)} of ${String(ranks)}${absentOf(session)}`],
    ['agent', readiness.agent ? 'answers' : 'does not answer yet'],
    [
      'idle end',
      idleEndsAtMs === null
        ? running
          ? 'not while a step runs'
          : null
        : `${left(idleEndsAtMs)}, unless somebody uses it before`,
    ],
    ['last end', lifetimeEndsAtMs === null ? null : `${left(lifetimeEndsAtMs)}, whatever happens`],
  ];
}

/** `; waiting for rank 2`, at most ten of them. */
function absentOf({ ranks, ranksIn }: SessionView): string {
  const present = new Set(ranksIn.map(({ rank }) => rank));
  const absent = Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => !present.has(rank));
  if (absent.length === 0) return '';
  const shown = absent.slice(0, 10).join(', ');
  return `; waiting for rank${absent.length === 1 ? '' : 's'} ${shown}${absent.length > 10 ? ', …' : ''}`;
}

const rankTable = ({ ranksIn }: SessionView): string =>
  toTable(
    ['RANK', 'NODE'],
    [...ranksIn].sort((a, b) => a.rank - b.rank).map(({ rank, node }) => [String(rank), node]),
  );

function stepTable(steps: readonly StepView[], nowMs: number): string {
  const rows = steps.map((step) => {
    const { stepId, mode, rank, by, requestedAtMs, endedAtMs, end, argv } = step;
    const where = rank === null ? mode : `${mode} on rank ${String(rank)}`;
    return [
      stepId,
      where,
      end === null ? 'running' : end.how,
      exitText(step),
      by,
      toDuration((endedAtMs ?? nowMs) - requestedAtMs),
      cut(argv.join(' '), COMMAND_MAX),
    ];
  });
  return toTable(['STEP', 'HOW', 'STATE', 'EXIT', 'BY', 'TOOK', 'COMMAND'], rows);
}

const exitText = ({ end }: StepView): string => (end?.exitCode ?? end?.signal ?? '').toString();
