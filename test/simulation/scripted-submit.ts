import type { Call, Ending } from '../../src/slurm/index.js';
import { Argv } from './argv.js';
import type { Chance } from './chance.js';
import type { Swarm } from './faults.js';
import type { HostProcesses, SubmitProcess } from './host-processes.js';
import type { ScriptedController } from './scripted-controller.js';
import type { Submission } from './scripted-job.js';
import type { SharedFiles } from './shared-files.js';
import type { VirtualTime } from './virtual-time.js';

export interface SubmitParts {
  readonly time: VirtualTime;
  readonly chance: Chance;
  readonly swarm: Swarm;
  readonly files: SharedFiles;
  readonly processes: HostProcesses;
  /** By the name in `--clusters`; null: home. */
  readonly controller: (cluster: string | null) => ScriptedController;
  readonly uid: number;
  readonly tokenOf: (name: string) => string | null;
}

/** A request may still be on its way for this long after its process has ended, ms. */
export const IN_FLIGHT_MAX_MS = 14_000;
const UNKILLABLE_MAX_MS = 40_000;

export const exited = (exitCode: number, stdout: string, stderr: string): Ending => ({
  kind: 'exited',
  exitCode,
  stdout,
  stderr,
  truncated: false,
});
const killed = (stdout: string): Ending => ({
  kind: 'killed',
  signal: 'SIGKILL',
  stdout,
  stderr: '',
  truncated: false,
});
const failed = (text: string): Ending => exited(1, '', `sbatch: error: Batch job submission failed: ${text}\n`);

const SOCKET_TIMEOUT = 'Socket timed out on send/recv operation';
export const NO_CONTROLLER = 'Unable to contact slurm controller (connect failure)';
const POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";

interface Request {
  readonly submission: Submission;
  readonly cluster: string | null;
}

function parseSubmission(argv: readonly string[], { files, uid }: SubmitParts): Request {
  const words = new Argv('sbatch', argv);
  words.needFlag('--parsable');
  const name = words.need('--job-name');
  const comment = words.need('--comment');
  const singleton = words.need('--dependency') === 'singleton';
  const directory = words.need('--chdir');
  for (const option of ['--output', '--error', '--open-mode']) words.need(option);
  if (words.need('--export') !== 'ALL') throw new Error('sbatch: the script knows --export=ALL only');
  const cluster = words.option('--clusters');
  const limitMinutes = Number(words.option('--time') ?? 1);
  for (const option of ['--partition', '--nodes', '--cpus-per-task', '--mem']) words.option(option);
  const requeue = words.flag('--requeue') || !words.flag('--no-requeue');
  const [script, ...more] = words.rest();
  if (script === undefined || more.length > 0) throw new Error(`sbatch: one script, not ${argv.join(' ')}`);
  if (!files.hasScript(script)) throw new Error(`sbatch: ${script} was not prepared`);
  return {
    cluster,
    submission: { uid, name, comment, directory, singleton, limitMs: limitMinutes * 60_000, requeue, isOutside: false },
  };
}

/** One sbatch, with everything that may become of it. The process outlives the worker that started it. */
export async function runSubmit(call: Call, parts: SubmitParts): Promise<Ending> {
  const { time, processes, tokenOf } = parts;
  const request = parseSubmission(call.argv, parts);
  const process = processes.start(tokenOf(request.submission.name) ?? '');
  const { timeLimitMs } = call;
  if (timeLimitMs === null) throw new Error('a submission without a time limit');
  const deadline = time.wait(timeLimitMs).then((): Ending => {
    if (parts.swarm.strikes('submitUnkillable')) {
      process.unkillableUntilMs = time.nowMs + parts.chance.int(1, UNKILLABLE_MAX_MS);
      time.after(process.unkillableUntilMs - time.nowMs, () => {
        processes.end(process);
      });
    } else {
      processes.end(process);
    }
    return { kind: 'timedOut', afterMs: timeLimitMs, stdout: '', stderr: '' };
  });
  const talk = converse(request, process, parts).then((ending) => {
    processes.end(process);
    return ending;
  });
  return Promise.race([talk, deadline]);
}

const never = (): Promise<Ending> => new Promise(() => undefined);

async function converse({ submission, cluster }: Request, process: SubmitProcess, parts: SubmitParts): Promise<Ending> {
  const { time, chance, swarm, processes } = parts;
  const controller = parts.controller(cluster);
  const timeoutMs = controller.settings.messageTimeoutMs;
  const land = (): number => controller.land(submission).id;
  await time.wait(chance.int(1, 200));
  if (!processes.has(process)) return never();

  if (swarm.strikes('submitLimit')) {
    return exited(
      1,
      '',
      `sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: ${POLICY}\n`,
    );
  }
  if (swarm.strikes('landsLate')) {
    // The request leaves; the client ends before it arrives.
    await time.wait(chance.int(0, timeoutMs));
    time.after(chance.int(0, IN_FLIGHT_MAX_MS), () => {
      controller.arrive(land);
    });
    return chance.chance(0.5) ? failed(SOCKET_TIMEOUT) : killed('');
  }
  if (swarm.strikes('submitHangs')) {
    const willLand = chance.chance(0.6);
    await time.wait(chance.int(0, 30_000));
    if (willLand && processes.has(process)) await controller.reach(land);
    return never();
  }
  if (swarm.strikes('answerLostBeforeLanding')) {
    await time.wait(timeoutMs);
    return failed(SOCKET_TIMEOUT);
  }
  if (swarm.strikes('unknownRefusal')) {
    if (chance.chance(0.5)) await controller.reach(land);
    return failed('Communication layer said something that nobody knows');
  }

  const reached = await controller.reach(land);
  if (reached.kind !== 'answered') return failed(reached.kind === 'timedOut' ? SOCKET_TIMEOUT : NO_CONTROLLER);
  const line = cluster === null ? String(reached.value) : `${String(reached.value)};${cluster}`;
  if (swarm.strikes('answerLostAfterLanding')) {
    await time.wait(timeoutMs);
    return failed(SOCKET_TIMEOUT);
  }
  if (swarm.strikes('submitKilled')) return killed(chance.chance(0.5) ? '' : `${line}\n`);
  if (swarm.strikes('partialAnswer')) {
    switch (chance.int(0, 4)) {
      case 0:
        return exited(0, `${line}\n17`, '');
      case 1:
        return exited(0, line.slice(0, Math.max(1, line.length - 1)), '');
      case 2:
        return exited(0, '', 'sbatch: error: write: No space left on device\n');
      case 3:
        return killed(line.slice(0, 2));
      default:
        return exited(0, `Your project has 17 node hours left.\n\n${line}\nHave a nice day\n`, 'sbatch: lua: advice\n');
    }
  }
  await time.wait(chance.int(0, 60));
  return exited(0, `${line}\n`, '');
}
