import type { SubmitReply, SubmitRequest } from '../backend.js';
import type { Clock } from '../runtime/clock.js';
import { batchScript, filesOf, type BatchScript } from './batch-script.js';
import type { Broker } from './broker.js';
import { classifySubmission } from './classify.js';
import type { Host } from './host.js';
import { jobName } from './identity.js';

/** The settings of a profile that only this backend knows, by their key in cluster.toml. */
export const PLACEMENT_OPTIONS = {
  partition: '--partition',
  qos: '--qos',
  account: '--account',
  constraint: '--constraint',
  reservation: '--reservation',
  cluster: '--clusters',
} as const;

/**
 * The command line of one submission. Every option is one word, `--name=value`, so that no value is read as an option;
 * what a profile does not set is left to its script and to the site. The name is unique, and with the dependency
 * `singleton` a second job of that name and user waits until the first is over (INV-8).
 */
export function submitArgv(request: SubmitRequest, prefix: string): readonly string[] {
  const { profile, token } = request;
  const files = filesOf(request);
  const name = jobName(prefix, token);
  const resources = {
    '--nodes': profile.nodes,
    '--cpus-per-task': profile.cpus,
    '--mem': profile.memoryMiB === null ? null : `${String(profile.memoryMiB)}M`,
    // A job that asks for no GPU must not ask for "0 of them": sites without GPUs refuse that too.
    '--gpus': profile.gpus === 0 ? null : profile.gpus,
    '--time': profile.walltimeS === null ? null : Math.ceil(profile.walltimeS / 60),
  };
  return [
    '--parsable',
    `--job-name=${name}`,
    `--comment=${name}`,
    '--dependency=singleton',
    `--chdir=${files.directory}`,
    `--output=${escapePattern(files.stdout)}`,
    `--error=${escapePattern(files.stderr)}`,
    '--open-mode=append',
    '--export=ALL',
    ...Object.entries(PLACEMENT_OPTIONS).flatMap(([key, option]) => {
      const value = profile.placement[key];
      return value === undefined ? [] : [`${option}=${value}`];
    }),
    ...Object.entries(resources).flatMap(([option, value]) => (value === null ? [] : [`${option}=${String(value)}`])),
    ...requeueOption(profile.placement['requeue']),
    files.script,
  ];
}

const requeueOption = (requeue: string | undefined): readonly string[] =>
  requeue === undefined ? [] : [requeue === 'true' ? '--requeue' : '--no-requeue'];

/** `%` starts a pattern in the name of an output file; doubled it is itself (sbatch(1)). */
const escapePattern = (path: string): string => path.replaceAll('%', '%%');

export interface SubmitOptions {
  readonly broker: Broker;
  readonly clock: Clock;
  readonly host: Pick<Host, 'readText'>;
  /** What was prepared for this very request; null: it has to be read again. */
  readonly script: BatchScript | null;
  readonly jobNamePrefix: string;
  readonly timeLimitMs: number;
}

/** Sends one submission. Its handle's submit time is ours, from before it was sent. */
export async function submit(request: SubmitRequest, options: SubmitOptions): Promise<SubmitReply> {
  let script;
  try {
    script = options.script ?? (await batchScript(request, options.host));
  } catch (error) {
    // Nothing was sent, but that is for the look-up to say: a disk that fails now may have failed before.
    return { kind: 'unreachable', detail: `the job's files cannot be read: ${String(error)}`, hint: null };
  }
  if (script.kind === 'invalidSpec') return { kind: 'refused', reason: 'INVALID_SPEC', detail: script.detail };
  const sentAtMs = options.clock.nowMs();
  const ending = await options.broker.run({
    command: 'sbatch',
    argv: submitArgv(request, options.jobNamePrefix),
    timeLimitMs: options.timeLimitMs,
    outputLimitBytes: 1024 * 1024,
    overflow: 'cut',
  });
  const submission = classifySubmission(ending);
  if (submission.kind !== 'accepted') return submission;
  const { id, cluster, notes } = submission;
  return { kind: 'accepted', handle: { id, cluster, submittedAtMs: sentAtMs }, notes };
}
