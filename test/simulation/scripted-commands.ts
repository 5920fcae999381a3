import type { Call, Ending, Run } from '../../src/slurm/index.js';
import { Argv } from './argv.js';
import type { ScriptedAccounting } from './scripted-accounting.js';
import type { ScriptedJob } from './scripted-job.js';
import { accountingAnswer, clusterOption, configAnswer, queueAnswer } from './scripted-queries.js';
import { exited, NO_CONTROLLER, runSubmit, type SubmitParts } from './scripted-submit.js';

export interface CommandParts extends SubmitParts {
  readonly accounting: ScriptedAccounting;
  /** A cancel is about to end this job. */
  readonly onCancel: (job: ScriptedJob) => void;
  /** Called when a submission is started, with its token. */
  readonly onSubmit: (token: string) => void;
  /** A form that the script does not know is a mistake of the test. */
  readonly onMistake: (error: unknown) => void;
}

const SOCKET_TIMEOUT = 'Socket timed out on send/recv operation';

/** The scheduler's commands as one gateway host runs them: argv in, how the process ended out. */
export function scriptedRun(parts: CommandParts): Run {
  const answer = async (call: Call): Promise<Ending> => {
    switch (call.command) {
      case 'sbatch':
        if (call.argv[0] === '--version') return version(parts);
        parts.onSubmit(parts.tokenOf(new Argv('sbatch', call.argv).need('--job-name')) ?? '');
        return runSubmit(call, parts);
      case 'squeue':
        return limited(call, parts, runQueue(call, parts));
      case 'sacct':
        return limited(call, parts, runAccounting(call, parts));
      case 'scancel':
        return limited(call, parts, runCancel(call, parts));
      case 'scontrol':
        if (call.argv.join(' ') !== 'show config') throw new Error(`scontrol ${call.argv.join(' ')}`);
        return limited(call, parts, runConfig(parts));
      case 'srun':
        if (call.argv[0] === '--version') return version(parts);
        throw new Error(`srun ${call.argv.join(' ')}`);
    }
  };
  return async (call) => {
    try {
      return await answer(call);
    } catch (error) {
      parts.onMistake(error);
      throw error;
    }
  };
}

async function version({ time, chance }: CommandParts): Promise<Ending> {
  await time.wait(chance.int(1, 50));
  return exited(0, 'slurm-wlm 22.05.8\n', '');
}

function limited(call: Call, { time }: CommandParts, ending: Promise<Ending>): Promise<Ending> {
  const { timeLimitMs } = call;
  if (timeLimitMs === null) return ending;
  return Promise.race([
    ending,
    time.wait(timeLimitMs).then((): Ending => ({ kind: 'timedOut', afterMs: timeLimitMs, stdout: '', stderr: '' })),
  ]);
}

/** What may go wrong with any query, whatever its server says. */
async function query(stdout: () => Ending, { chance, swarm }: CommandParts): Promise<Ending> {
  const good = stdout();
  if (good.kind !== 'exited' || good.exitCode !== 0 || !swarm.strikes('queryFails')) return good;
  switch (chance.int(0, 5)) {
    case 0:
      return exited(1, '', `slurm_load_jobs error: ${SOCKET_TIMEOUT}\n`);
    case 1:
      return exited(0, '', 'error: Unable to establish a connection\n');
    case 2:
      return exited(0, good.stdout.slice(0, Math.floor(good.stdout.length * 0.6)).replace(/\n$/, ''), 'error: cut\n');
    case 3:
      return { kind: 'killed', signal: 'SIGKILL', stdout: good.stdout, stderr: '', truncated: false };
    case 4:
      return { kind: 'unreachable', detail: 'squeue: could not be started (EAGAIN)', stdout: '' };
    default:
      return new Promise(() => undefined);
  }
}

async function runQueue(call: Call, parts: CommandParts): Promise<Ending> {
  const controller = parts.controller(clusterOption('squeue', call.argv));
  const reached = await controller.reach(() => queueAnswer(call.argv, controller));
  if (reached.kind === 'answered') return query(() => exited(0, reached.value, ''), parts);
  const why = reached.kind === 'timedOut' ? SOCKET_TIMEOUT : NO_CONTROLLER;
  return exited(1, '', `slurm_load_jobs error: ${why}\n`);
}

async function runConfig(parts: CommandParts): Promise<Ending> {
  const controller = parts.controller(null);
  const reached = await controller.reach(() => configAnswer(controller.settings));
  if (reached.kind === 'answered') return exited(0, reached.value, '');
  const why = reached.kind === 'timedOut' ? SOCKET_TIMEOUT : NO_CONTROLLER;
  return exited(1, '', `slurm_load_ctl_conf error: ${why}\n`);
}

async function runAccounting(call: Call, parts: CommandParts): Promise<Ending> {
  const { time, chance, accounting } = parts;
  const cluster = clusterOption('sacct', call.argv) ?? parts.controller(null).settings.cluster;
  await time.wait(chance.int(20, 400));
  if (accounting.condition === 'down')
    return exited(1, '', 'sacct: error: Problem talking to the database: Connection refused\n');
  if (accounting.condition === 'frozen') return new Promise(() => undefined);
  return query(() => exited(0, accountingAnswer(call.argv, accounting, cluster), ''), parts);
}

async function runCancel(call: Call, parts: CommandParts): Promise<Ending> {
  const { time, chance, swarm, uid } = parts;
  const words = new Argv('scancel', call.argv);
  const controller = parts.controller(words.option('--clusters'));
  const ids = words.rest().map(Number);
  const cancelAll = (): string =>
    ids
      .map((id) => {
        const job = controller.find(id);
        if (job !== null && job.uid === uid) parts.onCancel(job);
        return controller.cancel(id, uid) === 'denied'
          ? `scancel: error: Kill job error on job id ${String(id)}: Access/permission denied\n`
          : '';
      })
      .join('');
  if (swarm.strikes('cancelLost')) {
    if (chance.chance(0.5)) await controller.reach(cancelAll);
    await time.wait(controller.settings.messageTimeoutMs);
    return exited(140, '', `scancel: error: Kill job error: ${SOCKET_TIMEOUT}\n`);
  }
  const reached = await controller.reach(cancelAll);
  if (reached.kind === 'answered') return exited(reached.value === '' ? 0 : 210, '', reached.value);
  return exited(8, '', `scancel: error: ${reached.kind === 'timedOut' ? SOCKET_TIMEOUT : NO_CONTROLLER}\n`);
}
