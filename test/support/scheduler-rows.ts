const SEPARATOR = '\u001f';

/** One line of squeue's answer, in the fields that are asked for. Times are Unix epoch ms. */
export interface QueueFields {
  readonly id: string;
  readonly state: string;
  readonly submittedAtMs: number;
  readonly endedAtMs?: number;
  readonly nodes?: string;
  readonly reason?: string;
  /** JobName; the comment too, unless that is given. */
  readonly name: string;
  readonly comment?: string;
}

const seconds = (ms: number | undefined, none: string): string =>
  ms === undefined ? none : String(Math.floor(ms / 1000));

/** The fields of a queue row before name and comment. */
export const queueStart = (row: Omit<QueueFields, 'name' | 'comment'>): string =>
  [
    row.id,
    row.state,
    seconds(row.submittedAtMs, 'N/A'),
    seconds(row.endedAtMs, 'N/A'),
    row.nodes ?? '',
    row.reason ?? 'None',
  ].join(SEPARATOR);

export const queueText = (rows: readonly QueueFields[]): string =>
  rows.map((row) => `${[queueStart(row), row.name, row.comment ?? row.name].join(SEPARATOR)}\n`).join('');

/** One line of sacct's answer. Times are Unix epoch ms. */
export interface AccountFields {
  readonly id: string;
  readonly state: string;
  readonly exitCode?: string;
  readonly derivedExitCode?: string;
  readonly submittedAtMs: number;
  readonly startedAtMs?: number;
  readonly endedAtMs?: number;
  readonly limitMinutes?: number;
  /** What is printed for a start that never was; `Unknown` unless said otherwise. */
  readonly noTime?: string;
  readonly nodes?: string;
  readonly name: string;
  /** Most sites keep none. */
  readonly comment?: string;
}

export const accountText = (rows: readonly AccountFields[]): string =>
  rows
    .map((row) =>
      [
        row.id,
        row.state,
        row.exitCode ?? '0:0',
        row.derivedExitCode ?? '0:0',
        seconds(row.submittedAtMs, 'Unknown'),
        seconds(row.startedAtMs, row.noTime ?? 'Unknown'),
        seconds(row.endedAtMs, row.noTime ?? 'Unknown'),
        row.limitMinutes ?? 10,
        'cpu',
        row.nodes ?? 'n1',
        'lab',
        row.name,
        row.comment ?? '',
      ].join(SEPARATOR),
    )
    .map((line) => `${line}\n`)
    .join('');

/** Headers, as the self-test wants to see them. */
export const QUEUE_HEADER_TEXT = `${['JOBID', 'STATE', 'SUBMIT_TIME', 'END_TIME', 'NODELIST', 'REASON', 'NAME', 'COMMENT'].join(SEPARATOR)}\n`;
export const ACCOUNT_HEADER_TEXT = `${['JobIDRaw', 'State', 'ExitCode', 'DerivedExitCode', 'Submit', 'Start', 'End', 'TimelimitRaw', 'Partition', 'NodeList', 'Cluster', 'JobName', 'Comment'].join(SEPARATOR)}\n`;
export const CONFIG_TEXT = [
  ['AccountingStorageType', 'accounting_storage/slurmdbd'],
  ['ClusterName', 'lab'],
  ['MessageTimeout', '10 sec'],
  ['MinJobAge', '300 sec'],
]
  .map(([key = '', value = '']) => `${key.padEnd(23)} = ${value}\n`)
  .join('');
