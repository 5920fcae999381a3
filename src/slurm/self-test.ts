import type { BackendTiming, NoAnswer, SelfTest } from '../backend.js';
import type { Clock } from '../runtime/clock.js';
import { ACCOUNTING_HEADER, accountingArgv } from './accounting.js';
import type { Broker, Command, Ending } from './broker.js';
import { cancelArgv } from './cancel.js';
import { classifyCancel, classifyQuery, lastLine, printable } from './classify.js';
import type { Limits } from './config.js';
import { epochMs, QUEUE_HEADER, queueArgv } from './queue.js';

/** Larger than any id that a cluster gives out (they stay below 2^26); every release takes it for an unknown one. */
const IMPOSSIBLE_ID = '99999999';
/** A name that no job has: it is not of the shape that ours have. */
const IMPOSSIBLE_NAME = 'open-compute-self-test';

export interface SelfTestOptions {
  readonly broker: Broker;
  readonly uid: number;
  readonly clock: Clock;
  readonly limits: Limits;
  /** The name that cluster.toml gives the cluster, to be compared with its own. */
  readonly clusterName: string | null;
}

/** What the test found out about the site, for the polls that follow. */
export interface Findings {
  readonly result: SelfTest;
  readonly homeCluster: string | null;
  readonly accountingKept: boolean;
  readonly timing: BackendTiming;
  /** How far our clock is ahead of the controller's, ms; negative: behind; 0 also if it does not say. */
  readonly clockAheadMs: number;
}

/** Clocks that are further apart are told. A call takes 70 s at most, so a slow answer alone does not look like it. */
const CLOCKS_APART_MS = 5 * 60_000;

/** For MessageTimeout=10, Slurm's default. */
export const DEFAULT_TIMING: BackendTiming = timingFor(10);

/**
 * Settling time: a request may have been on its way when its process ended, and the controller may answer as late as
 * MessageTimeout; twice that and a margin, never under 30 s. Losing a job takes longer: accounting may lag.
 */
export function timingFor(messageTimeoutS: number): BackendTiming {
  const settleMs = Math.max(30_000, 2 * messageTimeoutS * 1000 + 10_000);
  return { settleMs, looks: 3, lossGraceMs: Math.max(60_000, 2 * settleMs), lossLooks: 3 };
}

/** `scontrol show config` as a map; unknown lines are left out. */
export function parseConfig(stdout: string): ReadonlyMap<string, string> {
  const pairs = stdout.split('\n').flatMap((line): [string, string][] => {
    const match = /^([A-Za-z_]+) += (.*)$/.exec(line);
    return match?.[1] === undefined || match[2] === undefined ? [] : [[match[1], match[2].trim()]];
  });
  return new Map(pairs);
}

/**
 * The controller's time in the first line of `scontrol show config`, Unix epoch ms: it is the time of the answer, in
 * seconds, as `SLURM_TIME_FORMAT` in the environment of the call wants it. null: it says something else.
 */
export const controllerTimeMs = (stdout: string): number | null =>
  epochMs(/^Configuration data as of (\S+)$/m.exec(stdout)?.[1] ?? '');

function clockWarning(aheadMs: number): readonly string[] {
  if (Math.abs(aheadMs) <= CLOCKS_APART_MS) return [];
  const how = `${String(Math.round(Math.abs(aheadMs) / 60_000))} min ${aheadMs > 0 ? 'ahead of' : 'behind'}`;
  return [
    `the clock of this host is ${how} the cluster's: set it right before tasks are taken; ` +
      'of a job that seems to have been submitted long before it was made nothing is concluded',
  ];
}

/** Runs every command in the form that is used later and checks what comes back. Starts no job and ends none. */
export async function selfTest(options: SelfTestOptions): Promise<Findings> {
  const { broker, uid, clock, limits } = options;
  const problems: string[] = [];
  const warnings: string[] = [];
  let outage: NoAnswer | null = null;
  const ask = async (command: Command, argv: readonly string[]): Promise<Ending> => {
    const ending = await broker.run({
      command,
      argv,
      timeLimitMs: limits.queryTimeLimitMs,
      outputLimitBytes: limits.queryOutputBytes,
      overflow: 'refuse',
    });
    const problem = misfit(command, ending);
    if (problem !== null) problems.push(problem);
    return ending;
  };
  /** The output of a query that answered; otherwise the outage is noted, unless the problem is on the list already. */
  const output = (command: Command, ending: Ending): string | null => {
    const reply = classifyQuery(command, ending);
    if (reply.kind === 'answered') return reply.stdout;
    outage ??= reply;
    return null;
  };

  const version = output('sbatch', await ask('sbatch', ['--version']));
  output('srun', await ask('srun', ['--version']));
  const configText = output('scontrol', await ask('scontrol', ['show', 'config'])) ?? '';
  const answeredAtMs = clock.nowMs();
  const clockAheadMs = answeredAtMs - (controllerTimeMs(configText) ?? answeredAtMs);
  warnings.push(...clockWarning(clockAheadMs));
  const config = parseConfig(configText);
  const queue = output('squeue', await ask('squeue', queueArgv({ uid, cluster: null, header: true })));
  if (queue !== null && !queue.startsWith(`${QUEUE_HEADER}\n`)) {
    problems.push(`squeue does not print the columns it was asked for: ${printable(queue.split('\n', 1)[0] ?? '')}`);
  }
  const accountingKept = !/^(?:accounting_storage\/none|\(null\)|none)$/.test(
    config.get('AccountingStorageType') ?? '',
  );
  if (accountingKept) {
    const query = { uid, clusters: [], sinceMs: clock.nowMs(), header: true };
    for (const question of [{ ids: [IMPOSSIBLE_ID] }, { names: [IMPOSSIBLE_NAME] }]) {
      const ending = await ask('sacct', accountingArgv(question, query));
      const accounts = output('sacct', ending);
      if (accounts !== null && !accounts.startsWith(`${ACCOUNTING_HEADER}\n`)) {
        problems.push(
          `sacct does not print the columns it was asked for: ${printable(accounts.split('\n', 1)[0] ?? '')}`,
        );
      }
    }
  }
  const cancelled = classifyCancel(await ask('scancel', cancelArgv([IMPOSSIBLE_ID], null)));
  if (cancelled.kind !== 'asked') outage ??= cancelled;

  const homeCluster = config.get('ClusterName') ?? null;
  const minJobAge = seconds(config.get('MinJobAge'));
  if (!accountingKept) {
    warnings.push(
      'accounting is switched off here: a job that the queue has forgotten ' +
        `(${minJobAge === null ? 'MinJobAge' : `${String(minJobAge)} s`} after its end) counts as lost, ` +
        'and a lost submission is looked up in the queue alone',
    );
  }
  if (options.clusterName !== null && homeCluster !== null && options.clusterName !== homeCluster) {
    warnings.push(`cluster.toml calls the cluster ${options.clusterName}; it calls itself ${homeCluster}`);
  }
  const report: Record<string, string> = { version: version?.trim() ?? '' };
  for (const key of REPORTED) {
    const value = config.get(key);
    if (value !== undefined) report[key] = value;
  }
  return {
    result: verdict(problems, outage, report, warnings),
    homeCluster,
    accountingKept,
    timing: timingFor(seconds(config.get('MessageTimeout')) ?? 10),
    clockAheadMs,
  };
}

const REPORTED = [
  'ClusterName',
  'SLURM_VERSION',
  'MessageTimeout',
  'MinJobAge',
  'AccountingStorageType',
  'AccountingStoreFlags',
  'JobRequeue',
  'KillWait',
  'MaxJobCount',
] as const;

function verdict(
  problems: readonly string[],
  outage: NoAnswer | null,
  report: Readonly<Record<string, string>>,
  warnings: readonly string[],
): SelfTest {
  if (problems.length > 0) return { kind: 'unfit', problems };
  return outage ?? { kind: 'fit', report, warnings };
}

/** An answer that no waiting will mend: the command is missing, or does not know what it is asked. */
function misfit(command: Command, ending: Ending): string | null {
  if (ending.kind === 'unreachable' && ending.detail.includes('(ENOENT)')) {
    return `${command} is not on PATH: install the client commands, or name their folder`;
  }
  if (ending.kind !== 'exited') return null;
  const last = lastLine(ending.stderr);
  const wrong =
    /Invalid (?:job format specification|field requested)|unrecognized option|invalid option|Try "\w+ --help"/;
  return wrong.test(ending.stderr) ? `${command} does not know what it is asked: ${printable(last)}` : null;
}

function seconds(text: string | undefined): number | null {
  const match = /^([0-9]+)(?: sec)?$/.exec(text ?? '');
  return match?.[1] === undefined ? null : Number(match[1]);
}
