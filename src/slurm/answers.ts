import type { JobAnswer, SeenAnswer, SeenState, WatchItem } from '../backend.js';
import type { Handle } from '../machines/vocabulary.js';
import type { AccountingRow } from './accounting.js';
import { failureFromExitCode, failureFromReason, stepWarnings, type Failure } from './failure.js';
import { kept } from './kept.js';
import type { QueueRow } from './queue.js';
import { waitingFor, waitingWhy } from './reasons.js';
import { meaningOf } from './states.js';

const NONE: readonly never[] = [];

/** Keeps the handle that is on record for this very job: its submit time is the first one, before any requeue. */
export function handleOf(item: WatchItem, row: Pick<QueueRow, 'id' | 'cluster' | 'submittedAtMs'>): Handle {
  if (item.handle?.id === row.id) return item.handle;
  return { id: row.id, cluster: row.cluster, submittedAtMs: row.submittedAtMs ?? item.sinceMs };
}

export const unanswered = (detail: string, queueAbsent: boolean): JobAnswer => ({
  kind: 'unanswered',
  detail,
  queueAbsent,
});

/** Cannot occur in a field of a row. */
const BETWEEN = '\n';

/** The scheduler's own words; nothing branches on them. */
const queueDiagnostics = (row: QueueRow): Readonly<Record<string, string>> =>
  rowWords([row.stateText, row.reason, row.nodes].join(BETWEEN));

const rowWords = kept((key): Readonly<Record<string, string>> => {
  const [state = '', reason = '', nodes = ''] = key.split(BETWEEN);
  return {
    state,
    ...(reason === '' || reason === 'None' ? {} : { reason }),
    ...(nodes === '' ? {} : { nodes }),
  };
});

function accountingDiagnostics(row: AccountingRow): Readonly<Record<string, string>> {
  return {
    state: row.stateText,
    ...(row.exitText === '' ? {} : { exitCode: row.exitText }),
    ...(row.derivedText === '' || row.derivedText === '0:0' ? {} : { derivedExitCode: row.derivedText }),
    ...(row.exitCode !== null && row.exitCode.code > 0 && row.exitCode.signal === 0
      ? { exitCodeNote: 'before release 25.11, codes over 127 are printed less 128' }
      : {}),
    ...(row.nodes === '' || row.nodes === 'None assigned' ? {} : { nodes: row.nodes }),
  };
}

/** What the queue alone says about a job that is not over. */
export function fromLiveRow(item: WatchItem, row: QueueRow, duplicates: readonly Handle[]): JobAnswer {
  const meaning = meaningOf(row.state);
  if (meaning.phase === 'look') return unanswered(`${row.stateText}: ${meaning.why}`, false);
  return {
    kind: 'seen',
    handle: handleOf(item, row),
    source: 'queue',
    ...queueState(meaning, row),
    warnings: NONE,
    diagnostics: queueDiagnostics(row),
    duplicates,
  };
}

const waitingState = kept((reason): { readonly state: SeenState; readonly why: string } => {
  const waiting = waitingFor(reason);
  return { state: { phase: 'Pending', waiting }, why: waitingWhy(reason, waiting) };
});

function queueState(meaning: SeenState, row: QueueRow): { readonly state: SeenState; readonly why: string } {
  if (meaning.phase === 'Pending' && (row.state === 'PENDING' || row.state === 'LAUNCH_FAILED')) {
    return waitingState(row.reason);
  }
  return { state: meaning, why: endWhy(row.state) };
}

const endWhy = kept((state) => state.toLowerCase().replaceAll('_', ' '));

/** What accounting said about a job that is over in the queue. */
export type ExitEvidence =
  | { readonly kind: 'row'; readonly row: AccountingRow }
  | { readonly kind: 'noRowYet' }
  | { readonly kind: 'notKept' }
  | { readonly kind: 'outage'; readonly detail: string };

/** So long after its end a failed job's exit code is not waited for any more, ms. Usual is 100 ms. */
export const EXIT_CODE_WAIT_MS = 120_000;

/**
 * A job that is over in the queue. Its state decides at once; only FAILED needs accounting's exit code to tell an exit
 * from a signal and from a job that could not be started.
 */
export function fromEndedRow(
  item: WatchItem,
  row: QueueRow,
  evidence: ExitEvidence,
  duplicates: readonly Handle[],
  nowMs: number,
): JobAnswer {
  const meaning = meaningOf(row.state);
  if (meaning.phase === 'look') return unanswered(`${row.stateText}: ${meaning.why}`, false);
  const account = evidence.kind === 'row' ? evidence.row : null;
  const seen = (state: SeenState, why: string): SeenAnswer => ({
    kind: 'seen',
    handle: handleOf(item, row),
    source: 'queue',
    state,
    why,
    warnings: state.phase === 'Completed' ? stepWarnings(account?.derivedExitCode ?? null) : NONE,
    diagnostics: { ...queueDiagnostics(row), ...(account === null ? {} : accountingDiagnostics(account)) },
    duplicates,
  });
  if (row.state !== 'FAILED') return seen(meaning, endWhy(row.state));
  if (evidence.kind === 'outage')
    return unanswered(`job ${row.id} failed; how is not known: ${evidence.detail}`, false);
  const failure = failureOf(row, evidence, nowMs);
  if (failure === 'wait')
    return seen({ phase: 'Running', ending: true }, 'failed; its exit code is not in the accounts yet');
  return seen(failure.state, failure.why);
}

function failureOf(
  row: QueueRow,
  evidence: Exclude<ExitEvidence, { kind: 'outage' }>,
  nowMs: number,
): Failure | 'wait' {
  switch (evidence.kind) {
    case 'row':
      return evidence.row.exitCode === null
        ? failureFromReason(row.reason)
        : failureFromExitCode(evidence.row.exitCode);
    case 'notKept':
      return failureFromReason(row.reason);
    case 'noRowYet':
      return row.endsAtMs !== null && nowMs - row.endsAtMs > EXIT_CODE_WAIT_MS ? failureFromReason(row.reason) : 'wait';
  }
}

/** What accounting alone says: the queue has forgotten the job, or a lost submission is looked up. */
export function fromAccountingRow(
  item: WatchItem,
  row: AccountingRow,
  cluster: string | null,
  duplicates: readonly Handle[],
): JobAnswer {
  const meaning = meaningOf(row.state);
  if (meaning.phase === 'look') return unanswered(`${row.stateText}: ${meaning.why}`, true);
  const failure =
    row.state === 'FAILED'
      ? failureFromExitCode(row.exitCode ?? { code: 0, signal: 0 })
      : { state: meaning, why: endWhy(row.state) };
  return {
    kind: 'seen',
    handle: handleOf(item, { id: row.id, cluster, submittedAtMs: row.submittedAtMs }),
    source: 'accounting',
    state: failure.state,
    why: failure.why,
    warnings: meaning.phase === 'Completed' ? stepWarnings(row.derivedExitCode) : NONE,
    diagnostics: accountingDiagnostics(row),
    duplicates,
  };
}
