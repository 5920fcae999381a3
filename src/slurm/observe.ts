import type { JobAnswer, NoAnswer, WatchItem } from '../backend.js';
import type { Handle, JobId } from '../machines/vocabulary.js';
import { newestRun, type AccountingRow, type AccountingSnapshot } from './accounting.js';
import { fromAccountingRow, fromEndedRow, fromLiveRow, handleOf, unanswered, type ExitEvidence } from './answers.js';
import { doubtOf, isSubmittedSince } from './identity.js';
import type { QueueRow, QueueSnapshot } from './queue.js';
import { isLive } from './states.js';

/** One cluster's queue, or why it did not answer. `cluster` null: the one that the commands ask by themselves. */
export type QueueView = { readonly cluster: string | null } & (
  | { readonly kind: 'answered'; readonly snapshot: QueueSnapshot }
  | { readonly kind: 'outage'; readonly outage: NoAnswer }
);

/** One cluster's accounts about the jobs that were asked for. */
export type AccountingView =
  | { readonly kind: 'answered'; readonly snapshot: AccountingSnapshot }
  | { readonly kind: 'outage'; readonly outage: NoAnswer }
  | { readonly kind: 'notKept' };

/** A job that the queue alone does not settle. */
export interface Open {
  readonly item: WatchItem;
  /** Its row, if the queue still shows how it ended; null: not in the queue. */
  readonly ended: QueueRow | null;
  /** Other live jobs with its token, oldest first. */
  readonly others: readonly QueueRow[];
}

/** What all jobs of one poll have in common. */
export interface Look {
  readonly homeCluster: string | null;
  readonly nowMs: number;
  /** What is strange is added here, in few texts however many jobs there are. */
  readonly oddities: Set<string>;
}

export interface FirstLook {
  readonly answers: Map<JobId, JobAnswer>;
  readonly open: readonly Open[];
}

/** After KillWait, the epilog and UnkillableStepTimeout a job is gone, unless a process hangs in its node's kernel. */
const STUCK_MS = 15 * 60_000;

const NO_ROWS: readonly QueueRow[] = [];
const NO_HANDLES: readonly Handle[] = [];

/** Names the cluster of a handle as the views do: the home cluster's own name is null. */
export const clusterOf = (handle: Handle, homeCluster: string | null): string | null =>
  handle.cluster === homeCluster ? null : handle.cluster;

/** What the queues settle by themselves: every job that is present and live, and every outage. */
export function firstLook(items: readonly WatchItem[], views: readonly QueueView[], look: Look): FirstLook {
  const answers = new Map<JobId, JobAnswer>();
  const open: Open[] = [];
  const [only] = views;
  const single = views.length === 1 && only?.kind === 'answered' ? only.snapshot : null;
  for (const item of items) {
    const rows = single === null ? rowsOf(item, views) : (single.byToken.get(item.token) ?? NO_ROWS);
    const place = settleInQueue(item, rows, look);
    if ('kind' in place) {
      answers.set(item.jobId, place);
      continue;
    }
    const missing = silence(item, views, look.homeCluster, place.ended === null);
    if (missing === null) open.push(place);
    else answers.set(item.jobId, missing);
  }
  return { answers, open };
}

function rowsOf(item: WatchItem, views: readonly QueueView[]): readonly QueueRow[] {
  return views.flatMap((view) =>
    view.kind === 'answered' ? (view.snapshot.byToken.get(item.token) ?? NO_ROWS) : NO_ROWS,
  );
}

/** Why nothing can be said about a job that was not found: its queue did not answer, or its row could not be read. */
function silence(
  item: WatchItem,
  views: readonly QueueView[],
  homeCluster: string | null,
  absent: boolean,
): JobAnswer | null {
  const wanted = item.handle === null ? undefined : clusterOf(item.handle, homeCluster);
  for (const view of views) {
    if (view.kind === 'answered') {
      if (view.snapshot.garbled.has(item.token)) return unanswered('its row in the queue could not be read', false);
    } else if (absent && (wanted === undefined || wanted === view.cluster)) {
      return unanswered(view.outage.detail, false);
    }
  }
  return null;
}

/** The answer for a job with a row that has its token and cannot be its own by its submit time: not known (INV-11). */
function doubted(
  row: QueueRow | AccountingRow,
  source: 'the queue' | 'accounting',
  item: WatchItem,
  look: Look,
): Extract<JobAnswer, { kind: 'unanswered' }> {
  const { detail, oddity } = doubtOf(row, source, item);
  look.oddities.add(oddity);
  return { kind: 'unanswered', detail, queueAbsent: source === 'accounting' };
}

/** The answer of the queue about one job, or what has to be asked further. */
function settleInQueue(item: WatchItem, rows: readonly QueueRow[], look: Look): JobAnswer | Open {
  const { homeCluster, nowMs } = look;
  const [first] = rows;
  if (first === undefined) return { item, ended: null, others: NO_ROWS };
  const { handle } = item;
  const isOwn = (row: QueueRow): boolean =>
    handle !== null && row.id === handle.id && row.cluster === clusterOf(handle, homeCluster);
  if (rows.length === 1) {
    // The usual case, and the fast one: 10,000 of these are answered per poll.
    if (isLive(first.state) && (handle === null || isOwn(first)) && isSubmittedSince(first.submittedAtMs, item)) {
      return liveAnswer(item, first, nowMs);
    }
  }
  const early = rows.find((row) => !isSubmittedSince(row.submittedAtMs, item));
  if (early !== undefined) return doubted(early, 'the queue', item, look);
  if (new Set(rows.map((row) => `${row.cluster ?? ''}/${row.id}`)).size !== rows.length) {
    return unanswered('the queue lists one job id twice', false);
  }
  const own = rows.find(isOwn);
  const age = (row: QueueRow): number =>
    row === own && handle !== null ? handle.submittedAtMs : (row.submittedAtMs ?? 0);
  const oldestFirst = (a: QueueRow, b: QueueRow): number => age(a) - age(b) || Number(a.id) - Number(b.id);
  const live = rows.filter((row) => isLive(row.state)).sort(oldestFirst);
  const pick =
    handle === null ? oldestOfToken(rows, oldestFirst) : own !== undefined && isLive(own.state) ? live[0] : own;
  const others = live.filter((row) => row !== pick);
  if (pick === undefined || !isLive(pick.state)) return { item, ended: pick ?? null, others };
  return lookAtEnding(fromLiveRow(item, pick, handlesOf(item, others)), pick, nowMs);
}

/** For a look-up: the oldest job that lives or did the work; if there is none, the oldest of all. */
function oldestOfToken(
  rows: readonly QueueRow[],
  oldestFirst: (a: QueueRow, b: QueueRow) => number,
): QueueRow | undefined {
  const good = rows.filter((row) => isLive(row.state) || row.state === 'COMPLETED');
  return (good.length > 0 ? good : [...rows]).sort(oldestFirst)[0];
}

const handlesOf = (item: WatchItem, rows: readonly QueueRow[]): readonly Handle[] =>
  rows.length === 0 ? NO_HANDLES : rows.map((row) => handleOf(item, row));

/** The same row and the same handle give the same answer: it is made once and kept with the row. */
function liveAnswer(item: WatchItem, row: QueueRow, nowMs: number): JobAnswer {
  if (row.state === 'COMPLETING') return lookAtEnding(fromLiveRow(item, row, NO_HANDLES), row, nowMs);
  const kept = row.answer;
  if (kept !== null) {
    const { handle } = item;
    if (handle === null) {
      if (kept.handle.submittedAtMs === row.submittedAtMs && kept.handle.cluster === row.cluster) return kept;
    } else if (kept.handle.submittedAtMs === handle.submittedAtMs && kept.handle.cluster === handle.cluster) {
      return kept;
    }
  }
  const answer = fromLiveRow(item, row, NO_HANDLES);
  if (answer.kind === 'seen') row.answer = answer;
  return answer;
}

/** Says of a job whose end takes far too long that it will not come by itself. Its phase stays. */
function lookAtEnding(answer: JobAnswer, row: QueueRow, nowMs: number): JobAnswer {
  if (answer.kind !== 'seen' || row.state !== 'COMPLETING') return answer;
  if (row.endsAtMs === null || nowMs - row.endsAtMs < STUCK_MS) return answer;
  return { ...answer, why: 'its end is stuck on the cluster: an administrator must look at its nodes' };
}

/** What accounting adds about a job that the queue did not settle. `view`: the accounts of the job's cluster. */
export function settle(open: Open, views: ReadonlyMap<string | null, AccountingView>, look: Look): JobAnswer {
  const { item, ended, others } = open;
  const { handle } = item;
  const { homeCluster, nowMs } = look;
  if (ended !== null) {
    const evidence = exitEvidence(item, ended, views.get(ended.cluster), look);
    return fromEndedRow(item, ended, evidence, handlesOf(item, others), nowMs);
  }
  const clusters = handle === null ? [...views.keys()] : [clusterOf(handle, homeCluster)];
  const found: { readonly row: AccountingRow; readonly cluster: string | null }[] = [];
  let kept = false;
  for (const cluster of clusters) {
    const view = views.get(cluster);
    if (view === undefined) return unanswered('accounting was not asked', true);
    if (view.kind === 'outage') return unanswered(view.outage.detail, true);
    if (view.kind === 'notKept') continue;
    kept = true;
    const { byToken, garbled, halfMade } = view.snapshot;
    if (garbled.has(item.token)) return unanswered('its row in the accounts could not be read', true);
    const rows = newestRuns((byToken.get(item.token) ?? []).filter((row) => handle === null || row.id === handle.id));
    const early = rows.find((row) => !isSubmittedSince(row.submittedAtMs, item));
    if (early !== undefined) return doubted(early, 'accounting', item, look);
    if (rows.length === 0 && handle !== null && halfMade.has(handle.id)) {
      return unanswered('its row in the accounts is not complete yet', true);
    }
    found.push(...rows.map((row) => ({ row, cluster })));
  }
  const row = handle === null ? lookedUp(found.map((one) => one.row)) : newestRun(found.map((one) => one.row));
  if (row === undefined) return absent(item, others, kept);
  const cluster = found.find((one) => one.row === row)?.cluster ?? null;
  if (handle !== null && isLive(row.state)) {
    return {
      kind: 'absent',
      queue: 'absent',
      accounting: 'stillActive',
      limitEndsAtMs: row.startedAtMs === null || row.limitMs === null ? null : row.startedAtMs + row.limitMs,
      detail: `not in the queue; accounting still says ${row.stateText}`,
    };
  }
  return fromAccountingRow(item, row, cluster, handlesOf(item, others));
}

function absent(item: WatchItem, others: readonly QueueRow[], kept: boolean): JobAnswer {
  const [oldest, ...rest] = others;
  // The id on record is nowhere, but a job with our token lives: that is the one.
  if (oldest !== undefined) return fromLiveRow(item, oldest, handlesOf(item, rest));
  return {
    kind: 'absent',
    queue: 'absent',
    accounting: kept ? 'absent' : 'notKept',
    limitEndsAtMs: null,
    detail: kept ? 'neither in the queue nor in the accounts' : 'not in the queue; accounts are not kept here',
  };
}

/** Of each id the newest run. */
const newestRuns = (rows: readonly AccountingRow[]): readonly AccountingRow[] =>
  [...new Set(rows.map((row) => row.id))].flatMap((id) => newestRun(rows.filter((row) => row.id === id)) ?? []);

/** Of all jobs that accounting knows by a token: the oldest that lives or did the work, else the oldest; newest run. */
function lookedUp(rows: readonly AccountingRow[]): AccountingRow | undefined {
  const runs = newestRuns(rows);
  const good = runs.filter((row) => isLive(row.state) || row.state === 'COMPLETED');
  return (good.length > 0 ? good : [...runs]).sort(
    (a, b) => (a.submittedAtMs ?? 0) - (b.submittedAtMs ?? 0) || Number(a.id) - Number(b.id),
  )[0];
}

function exitEvidence(item: WatchItem, ended: QueueRow, view: AccountingView | undefined, look: Look): ExitEvidence {
  if (view === undefined) return { kind: 'outage', detail: 'accounting was not asked' };
  if (view.kind === 'notKept') return { kind: 'notKept' };
  if (view.kind === 'outage') return { kind: 'outage', detail: view.outage.detail };
  const rows = view.snapshot.byToken.get(item.token) ?? [];
  const row = newestRun(rows.filter((one) => one.id === ended.id));
  if (row !== undefined && !isSubmittedSince(row.submittedAtMs, item)) {
    return { kind: 'outage', detail: doubted(row, 'accounting', item, look).detail };
  }
  return row === undefined || isLive(row.state) ? { kind: 'noRowYet' } : { kind: 'row', row };
}
