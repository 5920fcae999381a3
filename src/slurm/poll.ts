import type { CancelTarget, JobAnswer, NoAnswer, Observations, WatchItem } from '../backend.js';
import type { JobId } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import {
  accountingArgv,
  chunks,
  readAccounting,
  type AccountingQuestion,
  type AccountingSnapshot,
} from './accounting.js';
import type { Broker } from './broker.js';
import type { Standing } from './cancel.js';
import { classifyQuery } from './classify.js';
import type { Limits } from './config.js';
import { CLOCK_SLACK_MS, jobName, TokenReader } from './identity.js';
import { clusterOf, firstLook, settle, type AccountingView, type Open, type QueueView } from './observe.js';
import { queueArgv, QueueReader, type QueueSnapshot } from './queue.js';

export interface PollerOptions {
  readonly broker: Broker;
  readonly clock: Clock;
  readonly uid: number;
  readonly jobNamePrefix: string;
  /** Further clusters that jobs are sent to, asked at every poll. */
  readonly clusters: readonly string[];
  readonly limits: Limits;
}

/** What the self-test found out. */
export interface Site {
  readonly homeCluster: string | null;
  readonly accountingKept: boolean;
  /** How far our clock is ahead of the controller's, ms; negative: behind; 0 also if it is not known. */
  readonly clockAheadMs: number;
}

/**
 * One poll: one squeue per cluster (one, that is, at most sites) for all jobs; then, only for those that it did not
 * settle, at most one sacct by id and one by name, more only where one command line cannot hold them.
 */
export class Poller {
  readonly #options: PollerOptions;
  readonly #tokens: TokenReader;
  readonly #readers = new Map<string | null, QueueReader>();
  /** What each cluster's queue answered in the newest poll. */
  readonly #answered = new Map<string | null, QueueSnapshot>();

  constructor(options: PollerOptions) {
    this.#options = options;
    this.#tokens = new TokenReader(options.jobNamePrefix);
  }

  async observe(items: readonly WatchItem[], site: Site): Promise<Observations> {
    const jobs = new Map<JobId, JobAnswer>();
    if (items.length === 0) return { jobs, outage: null, queueOutage: null, oddities: [] };
    const clusters = this.#clustersOf(items, site);
    const views = await Promise.all(clusters.map((cluster) => this.#askQueue(cluster)));
    for (const view of views) {
      if (view.kind === 'answered') this.#answered.set(view.cluster, view.snapshot);
      else this.#answered.delete(view.cluster);
    }
    const oddities = new Set<string>();
    const look = { homeCluster: site.homeCluster, nowMs: this.#options.clock.nowMs(), oddities };
    const { answers, open } = firstLook(items, views, look);
    const accounts = new Map<string | null, AccountingView>();
    for (const cluster of clusters) {
      accounts.set(cluster, site.accountingKept ? await this.#askAccounting(cluster, open, site) : { kind: 'notKept' });
    }
    const later = { ...look, nowMs: this.#options.clock.nowMs() };
    for (const one of open) answers.set(one.item.jobId, settle(one, accounts, later));
    return { jobs: answers, ...summary(views, [...accounts.values()], oddities) };
  }

  /** Whose the id is, by the newest poll: ids wrap and are used again, also for another job of ours (INV-13). */
  standing({ token, handle }: CancelTarget, site: Site): Standing {
    const snapshot = this.#answered.get(clusterOf(handle, site.homeCluster));
    if (snapshot === undefined) return 'unheard';
    return snapshot.isForeign(handle.id, token) ? 'reused' : 'ours';
  }

  #clustersOf(items: readonly WatchItem[], site: Site): readonly (string | null)[] {
    const clusters = new Set<string | null>([
      null,
      ...this.#options.clusters.filter((name) => name !== site.homeCluster),
    ]);
    for (const { handle } of items) {
      if (handle !== null && handle.cluster !== null) clusters.add(clusterOf(handle, site.homeCluster));
    }
    return [...clusters];
  }

  async #askQueue(cluster: string | null): Promise<QueueView> {
    const { broker, uid, limits } = this.#options;
    const ending = await broker.run({
      command: 'squeue',
      argv: queueArgv({ uid, cluster, header: false }),
      timeLimitMs: limits.queryTimeLimitMs,
      outputLimitBytes: limits.queryOutputBytes,
      overflow: 'refuse',
    });
    const reply = classifyQuery('squeue', ending);
    if (reply.kind !== 'answered') return { cluster, kind: 'outage', outage: reply };
    let reader = this.#readers.get(cluster);
    if (reader === undefined) {
      reader = new QueueReader(this.#tokens, cluster);
      this.#readers.set(cluster, reader);
    }
    return { cluster, kind: 'answered', snapshot: reader.read(reply.stdout) };
  }

  /** Asks one cluster's accounts about the jobs that its queue did not settle: by id, and by name where there is none. */
  async #askAccounting(cluster: string | null, open: readonly Open[], site: Site): Promise<AccountingView> {
    const ids = new Set<string>();
    const names = new Set<string>();
    let sinceMs = Number.POSITIVE_INFINITY;
    for (const { item, ended } of open) {
      const { handle } = item;
      if (ended !== null) {
        if (ended.cluster !== cluster) continue;
        ids.add(ended.id);
      } else if (handle === null) {
        names.add(jobName(this.#options.jobNamePrefix, item.token));
      } else {
        if (clusterOf(handle, site.homeCluster) !== cluster) continue;
        ids.add(handle.id);
      }
      sinceMs = Math.min(sinceMs, item.sinceMs - CLOCK_SLACK_MS);
    }
    // By the cluster's clock: a start time after a job's end would leave its row out, and that reads as absence.
    sinceMs -= Math.max(0, site.clockAheadMs);
    const questions: readonly AccountingQuestion[] = [
      ...chunks([...ids]).map((part) => ({ ids: part })),
      ...chunks([...names]).map((part) => ({ names: part })),
    ];
    const snapshots: AccountingSnapshot[] = [];
    for (const question of questions) {
      const answer = await this.#askOnce(question, cluster, sinceMs);
      if (answer.kind === 'outage') return answer;
      snapshots.push(answer.snapshot);
    }
    return { kind: 'answered', snapshot: merged(snapshots) };
  }

  async #askOnce(
    question: AccountingQuestion,
    cluster: string | null,
    sinceMs: number,
  ): Promise<Exclude<AccountingView, { kind: 'notKept' }>> {
    const { broker, uid, limits } = this.#options;
    const clusters = cluster === null ? [] : [cluster];
    const ending = await broker.run({
      command: 'sacct',
      argv: accountingArgv(question, { uid, clusters, sinceMs, header: false }),
      timeLimitMs: limits.queryTimeLimitMs,
      outputLimitBytes: limits.queryOutputBytes,
      overflow: 'refuse',
    });
    const reply = classifyQuery('sacct', ending);
    if (reply.kind !== 'answered') return { kind: 'outage', outage: reply };
    return { kind: 'answered', snapshot: readAccounting(reply.stdout, this.#tokens) };
  }
}

function merged(snapshots: readonly AccountingSnapshot[]): AccountingSnapshot {
  const [only] = snapshots;
  if (only !== undefined && snapshots.length === 1) return only;
  const byToken = new Map<
    string,
    AccountingSnapshot['byToken'] extends ReadonlyMap<string, infer Rows> ? Rows : never
  >();
  for (const { byToken: part } of snapshots) {
    for (const [token, rows] of part) byToken.set(token, [...(byToken.get(token) ?? []), ...rows]);
  }
  return {
    byToken,
    halfMade: new Set(snapshots.flatMap((one) => [...one.halfMade])),
    garbled: new Set(snapshots.flatMap((one) => [...one.garbled])),
    oddities: snapshots.flatMap((one) => one.oddities),
  };
}

function summary(
  views: readonly QueueView[],
  accounts: readonly AccountingView[],
  ofJobs: ReadonlySet<string>,
): Omit<Observations, 'jobs'> {
  const first = (outages: readonly (NoAnswer | null)[]): NoAnswer | null => outages.find((one) => one !== null) ?? null;
  const queueOutage = first(views.map((view) => (view.kind === 'outage' ? view.outage : null)));
  const accountingOutage = first(accounts.map((view) => (view.kind === 'outage' ? view.outage : null)));
  const ofRows = [...views, ...accounts].flatMap((view) => (view.kind === 'answered' ? view.snapshot.oddities : []));
  return { outage: queueOutage ?? accountingOutage, queueOutage, oddities: [...ofRows, ...ofJobs] };
}
