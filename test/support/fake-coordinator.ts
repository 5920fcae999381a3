import type {
  HeldLease,
  Hello,
  HelloAnswer,
  LeaseGrant,
  LogsUpload,
  OutcomeRequest,
  PortAnswer,
  ProgressItem,
  RenewAnswer,
  ReportAnswer,
  WorkerPort,
} from '../../src/coordinator/worker-api.js';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { epoch, taskId } from './ids.js';
import { flush } from './manual-clock.js';

export const LEASE_TTL_MS = 60_000;

export const grant = (over: Partial<LeaseGrant> = {}): LeaseGrant => ({
  taskId: taskId(),
  epoch: epoch(),
  kind: 'training',
  payload: { profile: 'smoke', parameters: { message: 'hello' } },
  ttlMs: LEASE_TTL_MS,
  openJobs: [],
  ...over,
});

type Wishes = Omit<RenewAnswer, 'ttlMs'>;

export const NO_WISHES: Wishes = { lost: [], cancel: [], abandon: [], wantLogs: [] };

/** The coordinator's side of the port: it hands out what the test queues, and keeps what it is told. */
export class FakeCoordinator implements WorkerPort {
  readonly grants: LeaseGrant[] = [];
  readonly outcomes: OutcomeRequest[] = [];
  readonly reports: ProgressItem[] = [];
  readonly logs: LogsUpload[] = [];
  readonly hellos: Hello[] = [];
  readonly renewals: (readonly HeldLease[])[] = [];
  readonly calls = { hello: 0, acquire: 0, renew: 0, report: 0, outcome: 0, putLogs: 0 };
  readonly staleTasks = new Set<TaskId>();
  wishes: Wishes = NO_WISHES;
  /** What every call meets instead of an answer, while it is set. */
  trouble: Exclude<PortAnswer<never>, { kind: 'answered' }> | null = null;
  outcomeAnswer: (outcome: OutcomeRequest) => PortAnswer<null> = ({ taskId: task }) =>
    this.staleTasks.has(task) ? { kind: 'stale', detail: 'an old epoch' } : { kind: 'answered', value: null };

  hello(hello: Hello): Promise<PortAnswer<HelloAnswer>> {
    this.calls.hello += 1;
    this.hellos.push(hello);
    return this.#answer(() => ({ worker: 'w', leaseTtlMs: LEASE_TTL_MS }));
  }

  acquire({ count }: { readonly count: number }): Promise<PortAnswer<readonly LeaseGrant[]>> {
    this.calls.acquire += 1;
    return this.#answer(() => this.grants.splice(0, count));
  }

  renew(leases: readonly HeldLease[]): Promise<PortAnswer<RenewAnswer>> {
    this.calls.renew += 1;
    this.renewals.push(leases);
    return this.#answer(() => ({ ttlMs: LEASE_TTL_MS, ...this.wishes }));
  }

  report(items: readonly ProgressItem[]): Promise<PortAnswer<ReportAnswer>> {
    this.calls.report += 1;
    return this.#answer(() => {
      this.reports.push(...items);
      return {
        verdicts: items.map((item) => (item.type !== 'closed' && this.staleTasks.has(item.taskId) ? 'stale' : 'ok')),
      };
    });
  }

  async outcome(outcome: OutcomeRequest): Promise<PortAnswer<null>> {
    this.calls.outcome += 1;
    const reached = await this.#answer(() => null);
    if (reached.kind !== 'answered') return reached;
    const answer = this.outcomeAnswer(outcome);
    if (answer.kind === 'answered') this.outcomes.push(outcome);
    return answer;
  }

  putLogs(logs: LogsUpload): Promise<PortAnswer<null>> {
    this.calls.putLogs += 1;
    return this.#answer(() => {
      this.logs.push(logs);
      return null;
    });
  }

  async #answer<T>(value: () => T): Promise<PortAnswer<T>> {
    await flush();
    return this.trouble ?? { kind: 'answered', value: value() };
  }
}
