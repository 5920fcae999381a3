import { clip } from '../events/schema-parts.js';
import { StoreError } from '../events/store.js';
import { isTaskOver, liveLeaseOf, taskContextOf, type Task } from '../machines/task-aggregate.js';
import type { TaskId } from '../machines/vocabulary.js';
import { decideLease, decideOutcome, decideReport, type Decision, type WorkerIdentity } from './commands.js';
import type { Core } from './core.js';
import type { Offer } from './dispatch.js';
import { jsonFault } from './json-limits.js';
import type { Principal } from './principal.js';
import { PROBLEM_STATUS, answer, no, type Answer } from './problems.js';
import { BusyError, isTaskEvent, streamOf, type TaskCommand } from './task-book.js';
import type {
  AcquireRequest,
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
} from './worker-api.js';
import type { Registration } from './worker-registry.js';
import type { z } from 'zod';

type Acquire = z.infer<typeof AcquireRequest>;

/** A worker that is full is not to be woken in the place of one that is not. */
const NOTHING: Offer = new Set();

/**
 * When the payloads of an answer have come to this, the other tasks stay in line: the worker asks again at once. An
 * answer that is too much for the client (transport.ts), or too slow on its line, is dropped by it, and the same leases
 * would be given for ever.
 */
const ANSWER_PAYLOAD_BYTES = 1024 * 1024;

export const HELLO_NEEDED = no('hello_needed', 'this worker has not said hello', 'say hello first, then repeat this');

const unknownTask = (taskId: TaskId): Decision => ({ kind: 'stale', detail: `there is no ${taskId}` });

/** What workers ask of the coordinator. A worker reaches its own leases only; everything may be repeated. */
export class WorkerService {
  readonly #core: Core;
  readonly #outputWanted: Map<TaskId, number>;
  readonly #closed: AbortSignal;

  constructor(core: Core, outputWanted: Map<TaskId, number>, closed: AbortSignal) {
    this.#core = core;
    this.#outputWanted = outputWanted;
    this.#closed = closed;
  }

  async hello(principal: Principal, hello: Hello): Promise<Answer<HelloAnswer>> {
    const nowMs = this.#core.monotonicMs;
    const accepted = await this.#core.workers.hello(principal.id, principal.name, hello, nowMs);
    if (!accepted.ok) return accepted;
    this.#core.leases.forgetClaims(principal.id, nowMs);
    return answer({ worker: principal.name, leaseTtlMs: this.#core.deps.config.leaseTtlMs });
  }

  /** Waits for at most `waitMs` until there is something to give; an empty list is an answer. */
  async acquire(principal: Principal, request: Acquire, signal?: AbortSignal): Promise<Answer<readonly LeaseGrant[]>> {
    const { clock } = this.#core.deps;
    const untilMs = clock.monotonicMs() + request.waitMs;
    const over = new AbortController();
    const stop = (): void => {
      over.abort();
    };
    const signals = [this.#closed, ...(signal === undefined ? [] : [signal])];
    for (const one of signals) {
      if (one.aborted) stop();
      else one.addEventListener('abort', stop, { once: true });
    }
    const gone = (): boolean => signals.some((one) => one.aborted);
    let timer: Promise<void> | null = null;
    try {
      for (;;) {
        const worker = this.#core.workers.heard(principal.id, clock.monotonicMs());
        if (worker === null) return HELLO_NEEDED;
        if (gone()) {
          this.#core.dispatch.passOn(worker.offer);
          return answer([]);
        }
        const grants = await this.#grant(worker, request.count);
        if (grants.length > 0) return answer(grants);
        if (over.signal.aborted || clock.monotonicMs() >= untilMs) return answer([]);
        timer ??= clock.sleep(request.waitMs, over.signal).then(stop);
        await this.#core.dispatch.wait(this.#roomOf(worker) > 0 ? worker.offer : NOTHING, over.signal);
      }
    } finally {
      for (const one of signals) one.removeEventListener('abort', stop);
      over.abort();
    }
  }

  /** Leases what is in line for this worker, oldest first, up to its capacity and to what one answer carries. */
  async #grant(worker: Registration, count: number): Promise<readonly LeaseGrant[]> {
    const { book, deps } = this.#core;
    const taken = new Map<TaskId, unknown>();
    const identity = identityOf(worker);
    try {
      await this.#takeInto(taken, worker.offer, Math.min(count, this.#roomOf(worker)));
      if (taken.size === 0) return [];
      const atMs = this.#core.nowMs;
      const decided = await book.run(
        [...taken.keys()].map((taskId) => ({
          taskId,
          decide: (task) => (task === null ? unknownTask(taskId) : decideLease(task, identity, atMs)),
        })),
      );
      const grants: LeaseGrant[] = [];
      for (const { decision, task } of decided) {
        if (decision.kind !== 'append' || task === null) continue;
        const { taskId, kind, openJobs } = taskContextOf(task);
        const lease = liveLeaseOf(task);
        if (lease === null) continue;
        const payload = taken.get(taskId);
        const ttlMs = deps.config.leaseTtlMs;
        grants.push({ taskId, epoch: lease.epoch, kind, payload, ttlMs, openJobs: [...openJobs] });
      }
      return grants;
    } finally {
      // Whatever did not become a lease stands in line again; what did is not Queued any more.
      for (const taskId of taken.keys()) this.#core.putBack(taskId);
    }
  }

  /** Takes tasks out of the queue, with their payloads, until these fill an answer; it is for the caller to put back. */
  async #takeInto(taken: Map<TaskId, unknown>, offer: Offer, count: number): Promise<void> {
    for (let bytes = 0; taken.size < count && bytes < ANSWER_PAYLOAD_BYTES;) {
      // One by one: what does not go into this answer stays in line, for everybody.
      const [taskId] = this.#core.dispatch.take(offer, 1);
      if (taskId === undefined) return;
      taken.set(taskId, null);
      const payload = await this.#payloadOf(taskId);
      taken.set(taskId, payload);
      bytes += Buffer.byteLength(JSON.stringify(payload));
    }
  }

  #roomOf({ id, hello }: Registration): number {
    return Math.max(0, hello.capacity - this.#core.leases.heldBy(id).size);
  }

  async #payloadOf(taskId: TaskId): Promise<unknown> {
    for (const { event } of await this.#core.deps.store.readStream(streamOf(taskId))) {
      if (isTaskEvent(event) && event.type === 'task.submitted') return event.payload;
    }
    throw new Error(`${taskId} has no task.submitted`);
  }

  /** Not an event: a renewal changes nothing that a restart has to know. */
  async renew(principal: Principal, held: readonly HeldLease[]): Promise<Answer<RenewAnswer>> {
    const { leases, book, deps } = this.#core;
    const nowMs = this.#core.monotonicMs;
    this.#core.workers.heard(principal.id, nowMs);
    const lost: TaskId[] = [];
    const cancel: RenewAnswer['cancel'] = [];
    const abandon: RenewAnswer['abandon'] = [];
    const wantLogs: TaskId[] = [];
    for (const { taskId, epoch } of held) {
      const task = book.live.get(taskId);
      if (task === undefined || !leases.renew({ taskId, workerId: principal.id, epoch }, nowMs)) {
        lost.push(taskId);
        continue;
      }
      const wishes = taskContextOf(task);
      if (wishes.cancel !== null) cancel.push({ taskId, by: wishes.cancel.by, asAdmin: wishes.cancel.asAdmin });
      if (wishes.abandon !== null) abandon.push({ taskId, by: wishes.abandon.by });
      if ((this.#outputWanted.get(taskId) ?? 0) > nowMs) wantLogs.push(taskId);
    }
    this.#core.counters.staleRefused += lost.length;
    await this.#core.endUnclaimed(principal.id);
    return answer({ ttlMs: deps.config.leaseTtlMs, lost, cancel, abandon, wantLogs });
  }

  /** All items in one transaction; one verdict for each, in order. */
  async report(principal: Principal, items: readonly ProgressItem[]): Promise<Answer<ReportAnswer>> {
    const worker = this.#core.workers.heard(principal.id, this.#core.monotonicMs);
    if (worker === null) return HELLO_NEEDED;
    const identity = identityOf(worker);
    const atMs = this.#core.nowMs;
    const commands = items.map((item): TaskCommand => {
      this.#claim(identity, item);
      const whenUnknown: Decision = item.type === 'closed' ? { kind: 'already' } : unknownTask(item.taskId);
      return {
        taskId: item.taskId,
        decide: (task) => (task === null ? whenUnknown : decideReport(task, identity, item, atMs)),
      };
    });
    const decided = await this.#core.book.run(commands);
    const verdicts = decided.map(({ decision }) =>
      decision.kind === 'append' || decision.kind === 'already' ? ('ok' as const) : ('stale' as const),
    );
    this.#core.counters.staleRefused += verdicts.filter((verdict) => verdict === 'stale').length;
    return answer({ verdicts });
  }

  #claim(worker: WorkerIdentity, item: ProgressItem): void {
    if (item.type === 'closed') return;
    if (this.#core.leases.heldBy(worker.id).has(item.taskId)) this.#core.leases.claim(item.taskId, item.epoch);
  }

  async outcome(principal: Principal, request: OutcomeRequest): Promise<Answer<null>> {
    const { config } = this.#core.deps;
    const worker = this.#core.workers.heard(principal.id, this.#core.monotonicMs);
    if (worker === null) return HELLO_NEEDED;
    if (request.type === 'completed') {
      const fault = jsonFault(request.result, config.resultLimitBytes, config.jsonDepthMax);
      if (fault === 'tooLarge') {
        return no(
          'too_large',
          `the result has more than ${String(config.resultLimitBytes)} bytes`,
          'write it to a file',
        );
      }
      if (fault !== null) {
        const what =
          fault === 'missing' ? 'is missing' : `is nested more than ${String(config.jsonDepthMax)} levels deep`;
        return no('invalid_result', `the result ${what}`, 'deliver the job as failed');
      }
    }
    const identity = identityOf(worker);
    const atMs = this.#core.nowMs;
    const { decision } = await this.#core.book.runOne({
      taskId: request.taskId,
      decide: (task) => (task === null ? unknownTask(request.taskId) : decideOutcome(task, identity, request, atMs)),
    });
    return this.#verdict(decision);
  }

  /** Output of the task's newest lease, also after its end: the last lines tell why. */
  async putLogs(principal: Principal, { taskId, epoch, stdout, stderr }: LogsUpload): Promise<Answer<null>> {
    this.#core.workers.heard(principal.id, this.#core.monotonicMs);
    const task = await this.#core.book.get(taskId);
    if (task === null || !mayUpload(task, principal, epoch)) {
      return this.#verdict({ kind: 'stale', detail: `epoch ${String(epoch)} of ${taskId} is not in force` });
    }
    await this.#core.deps.tails.put(taskId, { stdout, stderr, updatedAtMs: this.#core.nowMs });
    return answer(null);
  }

  /** The port of one worker inside this process; over HTTP, worker-client.ts fills the same one. */
  portOf(principal: Principal): WorkerPort {
    return {
      hello: (hello) => toPort(this.hello(principal, hello)),
      acquire: (request, signal) => toPort(this.acquire(principal, request, signal)),
      renew: (leases) => toPort(this.renew(principal, leases)),
      report: (items) => toPort(this.report(principal, items)),
      outcome: (request) => toPort(this.outcome(principal, request)),
      putLogs: (logs) => toPort(this.putLogs(principal, logs)),
    };
  }

  #verdict(decision: Decision): Answer<null> {
    switch (decision.kind) {
      case 'append':
      case 'already':
        return answer(null);
      case 'refused':
        return { ok: false, problem: decision.problem };
      case 'stale':
        this.#core.counters.staleRefused += 1;
        return no('stale', clip(decision.detail), 'stop working on it: this is final');
    }
  }
}

const identityOf = ({ id, name, hello }: Registration): WorkerIdentity => ({ id, name, site: hello.site });

/** The newest lease is this worker's, at this epoch: also of a task that is over, whose last words are still to come. */
export function mayUpload(task: Task, { id }: Principal, epoch: number): boolean {
  const { lease } = taskContextOf(task);
  const isNewest = lease?.workerId === id && lease.epoch === epoch;
  return isNewest && (isTaskOver(task) || liveLeaseOf(task) !== null);
}

/** Storage that refuses is the coordinator's trouble: to its workers it is out of reach for the moment. */
export async function toPort<T>(asked: Promise<Answer<T>>): Promise<PortAnswer<T>> {
  try {
    const given = await asked;
    if (given.ok) return { kind: 'answered', value: given.value };
    const { code, message } = given.problem;
    if (code === 'stale') return { kind: 'stale', detail: message };
    const status = PROBLEM_STATUS[code];
    return status >= 500 ? { kind: 'unreachable', detail: message } : { kind: 'refused', status, detail: message };
  } catch (error) {
    if (error instanceof StoreError || error instanceof BusyError)
      return { kind: 'unreachable', detail: error.message };
    throw error;
  }
}
