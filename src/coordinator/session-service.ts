import { isTaskOver, liveLeaseOf, taskContextOf, type Task } from '../machines/task-aggregate.js';
import { SESSION_KIND } from '../machines/task-context.js';
import type { Epoch, StepId, TaskId } from '../machines/vocabulary.js';
import { uniquePart } from '../runtime/random.js';
import type { ClientService } from './client-service.js';
import type { Core } from './core.js';
import { mayDecide, maySee, type Principal } from './principal.js';
import { answer, no, type Answer } from './problems.js';
import type {
  CallsAnswer,
  CallsRequest,
  OutputQuery,
  SessionInfo,
  SessionList,
  SessionPort,
  SessionQuery,
  SessionReport,
  SessionReportAnswer,
  StdinPiece,
  StdinTaken,
  StepAccepted,
  StepCancelled,
  StepOutput,
  StepRequest,
} from './session-api.js';
import { SessionDesk, type Holder } from './session-desk.js';
import { allocationOf, otherJob, shownView } from './session-words.js';
import { longPoll, type Patience } from './waiters.js';
import { HELLO_NEEDED, mayUpload, toPort } from './worker-service.js';

/** Readers of one step at a time. */
const READERS_MAX = 16;

/** The holder of a session's newest lease, also after its end; null while it waits for a worker. */
const holderOf = (task: Task): Holder | null =>
  liveLeaseOf(task) ?? (isTaskOver(task) ? taskContextOf(task).lease : null);

const isSession = (task: Task): boolean => taskContextOf(task).kind === SESSION_KIND;

const unknownStep = (stepId: StepId): Answer<never> =>
  no(
    'not_found',
    `the coordinator knows no step ${stepId} of this session: it has been forgotten, or the coordinator has restarted`,
    'ask for it again with the same id: it is not started twice',
  );

/** Sessions as people ask for them, and as workers speak of them; between both is the desk. */
export class SessionService {
  readonly #core: Core;
  readonly #client: ClientService;
  readonly #closed: AbortSignal;
  readonly #desk: SessionDesk;

  constructor(core: Core, client: ClientService, closed: AbortSignal) {
    this.#core = core;
    this.#client = client;
    this.#closed = closed;
    this.#desk = new SessionDesk(`desk_${uniquePart(core.nowMs, core.deps.random)}`);
    core.onTask((task) => {
      const { taskId, kind } = taskContextOf(task);
      if (kind !== SESSION_KIND) return;
      this.#desk.settle(taskId, holderOf(task), isTaskOver(task), core.monotonicMs);
    });
  }

  get openSteps(): number {
    return this.#desk.openSteps;
  }

  tick(nowMonotonicMs: number): void {
    this.#desk.tick(nowMonotonicMs);
  }

  async list(principal: Principal, { all, limit }: SessionQuery): Promise<Answer<SessionList>> {
    const visible = (by: string): boolean => maySee(principal, by);
    const sessions: SessionInfo[] = [];
    for (const { taskId } of this.#core.index.sessions({ all: all === 'true', limit, visible })) {
      const task = await this.#core.book.get(taskId);
      if (task !== null) sessions.push(this.#info(task));
    }
    return answer({ sessions });
  }

  async get(principal: Principal, taskId: TaskId): Promise<Answer<SessionInfo>> {
    const found = await this.#find(principal, taskId);
    return found.ok ? answer(this.#info(found.value)) : found;
  }

  /** INV-4: a step is passed on only to the worker that holds the session's job, or refused at once. */
  async ask(
    principal: Principal,
    taskId: TaskId,
    request: StepRequest,
    epoch: number | null = null,
  ): Promise<Answer<StepAccepted>> {
    const found = await this.#findToDecide(principal, taskId);
    if (!found.ok) return found;
    const nowMs = this.#core.monotonicMs;
    const asker = { taskId, askedBy: principal.id, by: principal.name, request };
    // One that was taken before is known, whatever has become of the session since.
    const known = this.#desk.stepOf(taskId, request.stepId);
    if (known !== null) return this.#desk.ask({ ...known.origin, ...asker }, nowMs);
    const held = allocationOf(found.value, this.#client.view(found.value).waiting);
    if (!held.ok) return held;
    if (epoch !== null && held.value.epoch !== epoch) return otherJob(taskId, epoch, held.value.epoch);
    return this.#desk.ask({ ...asker, workerId: held.value.workerId, epoch: held.value.epoch }, nowMs);
  }

  /** Waits for at most `waitMs` until there is more than the reader has; nothing is an answer. */
  async output(
    principal: Principal,
    taskId: TaskId,
    stepId: StepId,
    query: OutputQuery,
    gone?: AbortSignal,
  ): Promise<Answer<StepOutput>> {
    const found = await this.#find(principal, taskId);
    if (!found.ok) return found;
    const step = this.#desk.stepOf(taskId, stepId);
    if (step === null) return unknownStep(stepId);
    if (step.waiters.size >= READERS_MAX) {
      return no('too_many_watchers', `${String(READERS_MAX)} others read this step already`, 'repeat it in a while');
    }
    const isAsker = step.origin.askedBy === principal.id;
    const look = (): StepOutput | null => step.read(query, isAsker, this.#core.monotonicMs);
    const given = await longPoll(look, step.waiters, this.#patience(query.waitMs, gone));
    const waiting = this.#desk.waitingOf(step);
    return answer(given ?? { pieces: [], notice: null, waiting, end: null, sizes: null });
  }

  async input(principal: Principal, taskId: TaskId, stepId: StepId, piece: StdinPiece): Promise<Answer<StdinTaken>> {
    const found = await this.#findToDecide(principal, taskId);
    if (!found.ok) return found;
    const step = this.#desk.stepOf(taskId, stepId);
    if (step === null) return unknownStep(stepId);
    const { request } = step.origin;
    if (request.mode !== 'exec' || !request.stdin) {
      return no('invalid_request', `${stepId} was asked for without standard input`, 'ask for one with "stdin": true');
    }
    return this.#desk.input(step, piece);
  }

  /** A wish; its end is in its output. */
  async cancel(principal: Principal, taskId: TaskId, stepId: StepId): Promise<Answer<StepCancelled>> {
    const found = await this.#findToDecide(principal, taskId);
    if (!found.ok) return found;
    const lease = liveLeaseOf(found.value);
    if (lease !== null) return this.#desk.cancel(taskId, stepId, lease.workerId, principal.name);
    // Without a worker nothing of it can be going on.
    return this.#desk.stepOf(taskId, stepId) === null ? unknownStep(stepId) : answer({ stepId, ended: true });
  }

  /** For workers: what is asked of their sessions. */
  async calls(principal: Principal, request: CallsRequest, gone?: AbortSignal): Promise<Answer<CallsAnswer>> {
    if (this.#core.workers.heard(principal.id, this.#core.monotonicMs) === null) return HELLO_NEEDED;
    const { waiters } = this.#desk.mailboxOf(principal.id);
    const look = (): CallsAnswer | null => this.#desk.calls(principal.id, request);
    const given = await longPoll(look, waiters, this.#patience(request.waitMs, gone));
    return answer(given ?? { desk: this.#desk.id, calls: [] });
  }

  /** For workers: how their sessions and steps are. Words of an old incarnation change nothing (INV-7). */
  async report(principal: Principal, { views, steps }: SessionReport): Promise<Answer<SessionReportAnswer>> {
    const nowMs = this.#core.monotonicMs;
    if (this.#core.workers.heard(principal.id, nowMs) === null) return HELLO_NEEDED;
    const stale = new Set<TaskId>();
    const tasks = new Map<TaskId, Task | null>();
    for (const { taskId } of [...views.map(({ view }) => view), ...steps]) {
      if (!tasks.has(taskId)) tasks.set(taskId, await this.#core.book.get(taskId));
    }
    const inForce = (taskId: TaskId, epoch: Epoch): Task | null => {
      const task = tasks.get(taskId) ?? null;
      if (task !== null && isSession(task) && mayUpload(task, principal, epoch)) return task;
      stale.add(taskId);
      return null;
    };
    for (const { epoch, view } of views) {
      const task = inForce(view.taskId, epoch);
      if (task !== null) this.#desk.putView(view.taskId, { epoch, view }, isTaskOver(task), nowMs);
    }
    const taken = steps.map((news) =>
      inForce(news.taskId, news.epoch) === null ? null : this.#desk.hear(news, principal.id, nowMs),
    );
    this.#core.counters.staleRefused += stale.size;
    return answer({ desk: this.#desk.id, stale: [...stale], taken });
  }

  /** The port of one worker inside this process; over HTTP, worker-client.ts has the same one. */
  portOf(principal: Principal): SessionPort {
    return {
      calls: (request, signal) => toPort(this.calls(principal, request, signal)),
      report: (report) => toPort(this.report(principal, report)),
    };
  }

  #patience(waitMs: number, gone: AbortSignal | undefined): Patience {
    return { clock: this.#core.deps.clock, waitMs, signals: [this.#closed, ...(gone === undefined ? [] : [gone])] };
  }

  #info(task: Task): SessionInfo {
    const held = this.#desk.viewOf(taskContextOf(task).taskId);
    const lease = liveLeaseOf(task);
    const silentMs = lease === null ? null : this.#core.workers.silentMs(lease.workerId, this.#core.monotonicMs);
    const session = held === null ? null : shownView(task, held.epoch, held.view, silentMs ?? 0);
    return { task: this.#client.view(task), session };
  }

  async #find(principal: Principal, taskId: TaskId): Promise<Answer<Task>> {
    const found = await this.#client.find(principal, taskId);
    if (!found.ok || isSession(found.value)) return found;
    const { kind } = taskContextOf(found.value);
    return no('not_found', `${taskId} is a task of kind "${kind}", and no session`, 'list the sessions');
  }

  async #findToDecide(principal: Principal, taskId: TaskId): Promise<Answer<Task>> {
    const found = await this.#find(principal, taskId);
    if (!found.ok || mayDecide(principal, taskContextOf(found.value).by)) return found;
    return no(
      'forbidden',
      `role ${principal.role} may look, not decide`,
      'use the credential of its submitter or an admin',
    );
  }
}
