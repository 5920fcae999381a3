import type { TokenReader } from './identity.js';
import { parseExitCode, type ExitCode } from './failure.js';
import { epochMs } from './queue.js';
import { parseState, type SlurmState } from './states.js';

const SEPARATOR = '\u001f';
/** Fields that 22.05 has too: one unknown field fails the whole call. What people write comes last. */
const FIELDS = [
  'JobIDRaw',
  'State',
  'ExitCode',
  'DerivedExitCode',
  'Submit',
  'Start',
  'End',
  'TimelimitRaw',
  'Partition',
  'NodeList',
  'Cluster',
  'JobName',
  'Comment',
] as const;
export const ACCOUNTING_HEADER = FIELDS.join(SEPARATOR);

/** Base states that every release since 22.05 knows: one unknown word fails the whole call. */
const EVERY_STATE = 'BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO';

/** The kernel allows 128 KiB for one argument. */
const ARGUMENT_LIMIT_BYTES = 100_000;

export type AccountingQuestion = { readonly ids: readonly string[] } | { readonly names: readonly string[] };

export interface AccountingQuery {
  readonly uid: number;
  readonly clusters: readonly string[];
  /** Unix epoch ms. Without a start time sacct's day begins at midnight. */
  readonly sinceMs: number;
  readonly header: boolean;
}

/** Seconds are enough, and TZ is UTC in the environment of the call. */
const isoSeconds = (ms: number): string => new Date(Math.max(0, ms)).toISOString().slice(0, 19);

/** Splits a question so that each part fits into one argument. */
export function chunks(items: readonly string[], limitBytes = ARGUMENT_LIMIT_BYTES): readonly (readonly string[])[] {
  const parts: string[][] = [];
  let part: string[] = [];
  let bytes = 0;
  for (const item of items) {
    if (part.length > 0 && bytes + item.length + 1 > limitBytes) {
      parts.push(part);
      part = [];
      bytes = 0;
    }
    part.push(item);
    bytes += item.length + 1;
  }
  if (part.length > 0) parts.push(part);
  return parts;
}

/**
 * sacct for jobs (`-X`: no steps), every run of a requeued one (`-D`), in columns that nobody's settings change.
 * Measured on 22.05: a question by name leaves out jobs that never became eligible, such as one that was cancelled
 * while it was held, unless states and an end time are given (`argv/sacct-names-no-states.json`); one by id does not.
 */
export function accountingArgv(question: AccountingQuestion, query: AccountingQuery): readonly string[] {
  return [
    '--allocations',
    '--parsable2',
    ...(query.header ? [] : ['--noheader']),
    '--duplicates',
    `--delimiter=${SEPARATOR}`,
    `--user=${String(query.uid)}`,
    ...(query.clusters.length === 0 ? [] : [`--clusters=${query.clusters.join(',')}`]),
    `--starttime=${isoSeconds(query.sinceMs)}`,
    `--format=${FIELDS.join(',')}`,
    ...('ids' in question
      ? [`--jobs=${question.ids.join(',')}`]
      : [`--state=${EVERY_STATE}`, '--endtime=now+1hour', `--name=${question.names.join(',')}`]),
  ];
}

/** One run of one job in the accounts. */
export interface AccountingRow {
  readonly id: string;
  readonly cluster: string;
  readonly state: SlurmState;
  readonly stateText: string;
  readonly exitCode: ExitCode | null;
  readonly exitText: string;
  readonly derivedExitCode: ExitCode | null;
  readonly derivedText: string;
  readonly submittedAtMs: number | null;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
  readonly limitMs: number | null;
  readonly nodes: string;
  readonly token: string;
}

export interface AccountingSnapshot {
  readonly byToken: ReadonlyMap<string, readonly AccountingRow[]>;
  /** Ids whose row is still half made (22.05: JobName `allocation`, no partition): it proves nothing yet. */
  readonly halfMade: ReadonlySet<string>;
  readonly garbled: ReadonlySet<string>;
  readonly oddities: readonly string[];
}

/** Reads sacct's answer. Any bytes may be in it: never throws; a row that cannot be read spoils no other one. */
export function readAccounting(stdout: string, tokens: TokenReader): AccountingSnapshot {
  const byToken = new Map<string, AccountingRow[]>();
  const halfMade = new Set<string>();
  const garbled = new Set<string>();
  const oddities: string[] = [];
  const spoil = (text: string, what: string): void => {
    for (const token of tokens.within(text)) garbled.add(token);
    oddities.push(`${what}: ${JSON.stringify(text.slice(0, 200))}`);
  };
  for (const text of stdout.split('\n')) {
    if (text === '') continue;
    const fields = text.split(SEPARATOR);
    if (fields.length !== FIELDS.length) {
      spoil(text, `an accounting row with ${String(fields.length)} instead of ${String(FIELDS.length)} fields`);
      continue;
    }
    const [id = '', stateText = '', exitText = '', derivedText = '', submitted = '', started = ''] = fields;
    const [ended = '', limit = '', partition = '', nodes = '', cluster = '', name = '', comment = ''] = fields.slice(6);
    if (name === 'allocation' && partition === '') {
      halfMade.add(id);
      continue;
    }
    const token = tokens.of(name, comment);
    if (token === null) continue;
    const state = parseState(stateText);
    if (!/^[1-9][0-9]{0,9}$/.test(id) || state === undefined) {
      spoil(text, state === undefined ? `job ${id} has the unknown state ${stateText}` : `our name on the id ${id}`);
      continue;
    }
    const row: AccountingRow = {
      id,
      cluster,
      state,
      stateText,
      exitCode: parseExitCode(exitText),
      exitText,
      derivedExitCode: parseExitCode(derivedText),
      derivedText,
      submittedAtMs: epochMs(submitted),
      startedAtMs: epochMs(started),
      endedAtMs: epochMs(ended),
      limitMs: /^[0-9]{1,9}$/.test(limit) ? Number(limit) * 60_000 : null,
      nodes,
      token,
    };
    const others = byToken.get(token);
    if (others === undefined) byToken.set(token, [row]);
    else others.push(row);
  }
  return { byToken, halfMade, garbled, oddities };
}

/** Of several runs the newest decides: the latest submission, then the latest start, then the last one listed. */
export function newestRun(rows: readonly AccountingRow[]): AccountingRow | undefined {
  let newest: AccountingRow | undefined;
  for (const row of rows) {
    if (newest === undefined || order(row, newest) >= 0) newest = row;
  }
  return newest;
}

function order(a: AccountingRow, b: AccountingRow): number {
  const bySubmit = (a.submittedAtMs ?? 0) - (b.submittedAtMs ?? 0);
  return bySubmit !== 0 ? bySubmit : (a.startedAtMs ?? 0) - (b.startedAtMs ?? 0);
}
