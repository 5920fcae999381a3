import { Argv } from './argv.js';
import type { AccountingEntry, ScriptedAccounting } from './scripted-accounting.js';
import type { ScriptedController } from './scripted-controller.js';
import type { ScriptedJob } from './scripted-job.js';
import { EPOCH_MS } from './virtual-time.js';

const SEPARATOR = '\u001f';
const QUEUE_FORMAT = ['%i', '%T', '%V', '%e', '%N', '%r', '%j', '%k'].join(SEPARATOR);
const QUEUE_HEADER = ['JOBID', 'STATE', 'SUBMIT_TIME', 'END_TIME', 'NODELIST', 'REASON', 'NAME', 'COMMENT'].join(
  SEPARATOR,
);
const ACCOUNTING_FORMAT =
  'JobIDRaw,State,ExitCode,DerivedExitCode,Submit,Start,End,TimelimitRaw,Partition,NodeList,Cluster,JobName,Comment';

const seconds = (ms: number | null, none: string): string =>
  ms === null ? none : String(Math.floor((EPOCH_MS + ms) / 1000));

/** What squeue prints for its command line. Throws on a form that the script does not know. */
export function queueAnswer(argv: readonly string[], controller: ScriptedController): string {
  const words = new Argv('squeue', argv);
  const noHeader = words.flag('--noheader');
  words.needFlag('--all');
  if (words.need('--states') !== 'all') throw new Error('squeue: the script knows --states=all only');
  const uid = Number(words.need('--user'));
  words.option('--clusters');
  if (words.need('--format') !== QUEUE_FORMAT) throw new Error('squeue: a format that the script does not know');
  if (words.rest().length > 0) throw new Error(`squeue: what is ${words.rest().join(' ')}?`);
  const rows = controller.visible(uid).map(queueRow);
  return [...(noHeader ? [] : [QUEUE_HEADER]), ...rows].map((line) => `${line}\n`).join('');
}

function queueRow(job: ScriptedJob): string {
  const endsAtMs = job.endedAtMs ?? (job.startedAtMs === null ? null : job.startedAtMs + job.limitMs);
  return [
    String(job.id),
    job.state,
    seconds(job.submittedAtMs, 'N/A'),
    seconds(endsAtMs, 'N/A'),
    job.startedAtMs === null ? '' : 'n1',
    job.reason,
    job.name,
    job.comment === '' ? '(null)' : job.comment,
  ].join(SEPARATOR);
}

/** The cluster that a command line names, or null for the one that the commands ask by themselves. */
export function clusterOption(command: string, argv: readonly string[]): string | null {
  return new Argv(command, argv).option('--clusters');
}

export function accountingAnswer(argv: readonly string[], accounting: ScriptedAccounting, cluster: string): string {
  const words = new Argv('sacct', argv);
  for (const flag of ['--allocations', '--parsable2', '--duplicates']) words.needFlag(flag);
  const noHeader = words.flag('--noheader');
  if (words.need('--delimiter') !== SEPARATOR) throw new Error('sacct: a delimiter that the script does not know');
  if (words.need('--format') !== ACCOUNTING_FORMAT) throw new Error('sacct: a format that the script does not know');
  const uid = Number(words.need('--user'));
  words.option('--clusters');
  // Every job of a world is younger than any start time that is asked for.
  const sinceMs = Date.parse(`${words.need('--starttime')}Z`);
  if (!noHeader ? Number.isNaN(sinceMs) : sinceMs > EPOCH_MS)
    throw new Error('sacct: a start time that hides jobs of ours');
  const ids = words.option('--jobs');
  const names = ids === null ? words.need('--name') : null;
  // Without states and an end a question by name leaves out what never became eligible.
  const isWhole = words.option('--state') !== null && words.option('--endtime') !== null;
  if (words.rest().length > 0) throw new Error(`sacct: what is ${words.rest().join(' ')}?`);
  const question =
    ids === null ? { names: new Set((names ?? '').split(',')), isWhole } : { ids: new Set(ids.split(',')) };
  const rows = accounting
    .find({ cluster, uid, ...question })
    .map((entry) => accountingRow(entry, accounting.isHalfMade(entry)));
  const header = ACCOUNTING_FORMAT.replaceAll(',', SEPARATOR);
  return [...(noHeader ? [] : [header]), ...rows].map((line) => `${line}\n`).join('');
}

function accountingRow(entry: AccountingEntry, half: boolean): string {
  return [
    String(entry.id),
    half ? 'PENDING' : entry.state,
    entry.exit,
    '0:0',
    seconds(entry.submittedAtMs, 'Unknown'),
    seconds(entry.startedAtMs, 'Unknown'),
    seconds(entry.endedAtMs, 'Unknown'),
    half ? '' : String(Math.ceil(entry.limitMs / 60_000)),
    half ? '' : 'cpu',
    entry.startedAtMs === null ? 'None assigned' : 'n1',
    entry.cluster,
    half ? 'allocation' : entry.name,
    half ? '' : entry.comment,
  ].join(SEPARATOR);
}

export function configAnswer(settings: ScriptedController['settings']): string {
  return [
    'Configuration data as of 2027-01-15T08:00:00',
    'AccountingStorageType   = accounting_storage/slurmdbd',
    'AccountingStoreFlags    = job_comment',
    `ClusterName             = ${settings.cluster}`,
    'JobRequeue              = 1',
    'KillWait                = 2 sec',
    'MaxJobCount             = 10000',
    `MessageTimeout          = ${String(Math.round(settings.messageTimeoutMs / 1000))} sec`,
    `MinJobAge               = ${String(Math.round(settings.minJobAgeMs / 1000))} sec`,
    'SLURM_VERSION           = 22.05.8',
    '',
  ].join('\n');
}
