import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { isTaskOver, taskContextOf, taskPhaseOf, type Task } from '../machines/task-aggregate.js';
import { SESSION_KIND, profileOf } from '../machines/task-context.js';
import type { TaskSubmitted } from '../machines/task-events.js';
import { TaskId } from '../machines/vocabulary.js';
import { uniquePart } from '../runtime/random.js';
import type {
  ListQuery,
  LogsView,
  ProfileList,
  SubmitAnswer,
  SubmitRequest,
  TaskChange,
  TaskHistory,
  TaskList,
  TaskResult,
  TaskView,
} from './api.js';
import { decideAbandon, decideCancel, type Decision } from './commands.js';
import type { Core } from './core.js';
import { jsonFault } from './json-limits.js';
import { mayDecide, maySee, type Principal } from './principal.js';
import { answer, no, type Answer } from './problems.js';
import { isTaskEvent, streamOf } from './task-book.js';
import { viewOf } from './views.js';

/**
 * Of a session the fourth loss is the last: it may come back three times. Each time everything that its processes had in
 * memory is gone, so it is not for the site to say how often.
 */
const SESSION_LOSSES_MAX = 4;

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/**
 * The id of a task that was sent with a key: made from submitter and key alone, so the log itself knows a repetition,
 * for ever and without an index.
 */
export function keyedTaskId(by: string, key: string): TaskId {
  const digest = createHash('sha256')
    .update(JSON.stringify([by, key]))
    .digest();
  let text = '';
  for (let i = 0; i < 26; i += 1) text += ALPHABET[(digest[i] ?? 0) % 32] ?? '';
  return TaskId.parse(`task_${text}`);
}

/** Follows changes; `after`: the position of the last change that the caller knows. */
export interface WatchQuery {
  readonly taskId: TaskId | null;
  readonly after: number | null;
}

/** `from`: where it starts; whoever loses it before the first change can resume there. */
export interface Watch {
  readonly from: number;
  readonly changes: AsyncGenerator<TaskChange, void>;
}

/** What people and their programs ask of the coordinator. */
export class ClientService {
  readonly #core: Core;
  /** Monotonic ms until which somebody wants a task's output. */
  readonly #outputWanted: Map<TaskId, number>;

  constructor(core: Core, outputWanted: Map<TaskId, number>) {
    this.#core = core;
    this.#outputWanted = outputWanted;
  }

  /** With a key, the same key from the same submitter is the same task, however often it is sent. */
  async submit(principal: Principal, request: SubmitRequest, key: string | null): Promise<Answer<SubmitAnswer>> {
    const { config, random } = this.#core.deps;
    const { kind, payload } = request;
    const fault = jsonFault(payload, config.payloadLimitBytes, config.jsonDepthMax);
    if (fault !== null) return this.#payloadFault(fault);
    const atMs = this.#core.nowMs;
    const by = principal.id;
    const taskId = key === null ? TaskId.parse(`task_${uniquePart(atMs, random)}`) : keyedTaskId(by, key);
    const known = key === null ? null : await this.#core.book.get(taskId);
    const profile = profileOf(kind, payload);
    if (known === null) {
      const checked = this.#core.workers.check(kind, payload, profile, this.#core.monotonicMs);
      if (!checked.ok) return checked;
    }
    const event: TaskSubmitted = {
      type: 'task.submitted',
      v: 1,
      atMs,
      taskId,
      kind,
      payload,
      by,
      submissionKey: key,
      lossesMax: kind === SESSION_KIND ? SESSION_LOSSES_MAX : config.lossesMax,
    };
    const decide = (task: Task | null): Decision =>
      task === null ? { kind: 'append', events: [event] } : { kind: 'already' };
    const [decided] = await this.#core.book.run([{ taskId, decide }], known === null);
    const created = decided?.decision.kind === 'append';
    if (!created && !(await this.#isSame(taskId, request))) {
      return no(
        'key_reused',
        `this idempotency key belongs to ${taskId}, which has another kind or payload`,
        'use a new key for a new task',
      );
    }
    return answer({ taskId, created, waiting: this.#core.workers.missing(kind, profile, this.#core.monotonicMs) });
  }

  async get(principal: Principal, taskId: TaskId): Promise<Answer<TaskView>> {
    const found = await this.find(principal, taskId);
    return found.ok ? answer(this.view(found.value)) : found;
  }

  async list(principal: Principal, { phase, limit, cursor }: ListQuery): Promise<Answer<TaskList>> {
    const entries = this.#core.index.page({
      phase: phase ?? null,
      before: cursor ?? null,
      limit,
      visible: (by) => maySee(principal, by),
    });
    const tasks: TaskView[] = [];
    for (const { taskId } of entries) {
      const task = await this.#core.book.get(taskId);
      if (task !== null) tasks.push(this.view(task));
    }
    return answer({ tasks, next: entries.length === limit ? (entries.at(-1)?.position ?? null) : null });
  }

  async result(principal: Principal, taskId: TaskId): Promise<Answer<TaskResult>> {
    const found = await this.find(principal, taskId);
    if (!found.ok) return found;
    const { reason, detail, warnings } = taskContextOf(found.value);
    const phase = taskPhaseOf(found.value);
    if (phase !== 'Completed') {
      const why = [reason, detail].filter(Boolean).join(': ');
      return no(
        'not_completed',
        `${taskId} has no result: it is ${phase}${why === '' ? '' : ` (${why})`}`,
        phase === 'Queued' || phase === 'Leased' ? 'wait for it, or watch it' : 'see its output and its history',
      );
    }
    for (const { event } of await this.#core.deps.store.readStream(streamOf(taskId))) {
      if (event.type === 'task.completed') return answer({ taskId, result: event.result, warnings: [...warnings] });
    }
    throw new Error(`${taskId} is Completed, but its stream has no task.completed`);
  }

  /** A wish: the answer says where the task is now. */
  async cancel(principal: Principal, taskId: TaskId): Promise<Answer<TaskView>> {
    return this.#wish(principal, taskId, decideCancel);
  }

  /** Stop waiting for the task; what runs for it may live on. */
  async abandon(principal: Principal, taskId: TaskId): Promise<Answer<TaskView>> {
    const wished = await this.#wish(principal, taskId, decideAbandon);
    if (!wished.ok) return wished;
    // A lease that ran out was kept for its holder's return; nobody waits for that any more.
    await this.#core.tick(this.#core.monotonicMs);
    return this.get(principal, taskId);
  }

  async logs(principal: Principal, taskId: TaskId): Promise<Answer<LogsView>> {
    const found = await this.find(principal, taskId);
    if (!found.ok) return found;
    if (taskPhaseOf(found.value) === 'Leased') {
      this.#outputWanted.set(taskId, this.#core.monotonicMs + this.#core.deps.config.outputWantedMs);
    }
    const tails = await this.#core.deps.tails.get(taskId);
    return answer({ taskId, ...(tails ?? { stdout: '', stderr: '', updatedAtMs: null }) });
  }

  /** Everything that happened to a task, in the order of the log. */
  async history(principal: Principal, taskId: TaskId): Promise<Answer<TaskHistory>> {
    const found = await this.find(principal, taskId);
    if (!found.ok) return found;
    return answer({ changes: await this.#core.feed.historyOf(taskId) });
  }

  profiles(): ProfileList {
    return this.#core.workers.list(this.#core.monotonicMs);
  }

  /**
   * Changes in the order of the log, until the signal aborts. A single task starts at its beginning, all tasks start
   * now, unless `after` says otherwise.
   */
  async watch(principal: Principal, { taskId, after }: WatchQuery, signal: AbortSignal): Promise<Answer<Watch>> {
    if (taskId !== null) {
      const found = await this.find(principal, taskId);
      if (!found.ok) return found;
      if (isTaskOver(found.value)) return answer({ from: after ?? 0, changes: this.#past(taskId, after ?? 0) });
    }
    const from = after ?? (taskId === null ? this.#core.feed.head : 0);
    const query = { taskId, after: from, visible: (by: string) => maySee(principal, by) };
    return answer({ from, changes: this.#core.feed.follow(query, signal) });
  }

  /** A task that is over has no more changes to wait for. */
  async *#past(taskId: TaskId, after: number): AsyncGenerator<TaskChange, void> {
    for (const change of await this.#core.feed.historyOf(taskId)) if (change.position > after) yield change;
  }

  async #wish(
    principal: Principal,
    taskId: TaskId,
    decide: typeof decideCancel | typeof decideAbandon,
  ): Promise<Answer<TaskView>> {
    const found = await this.find(principal, taskId);
    if (!found.ok) return found;
    if (!mayDecide(principal, taskContextOf(found.value).by)) {
      return no(
        'forbidden',
        `role ${principal.role} may look, not decide`,
        'use the credential of its submitter or an admin',
      );
    }
    const wisher = { name: principal.name, asAdmin: principal.id !== taskContextOf(found.value).by };
    const atMs = this.#core.nowMs;
    const { task } = await this.#core.book.runOne({
      taskId,
      decide: (newest) => (newest === null ? { kind: 'already' } : decide(newest, wisher, atMs)),
    });
    return answer(this.view(task ?? found.value));
  }

  /** What the caller may not see is not there for it. */
  async find(principal: Principal, taskId: TaskId): Promise<Answer<Task>> {
    const task = await this.#core.book.get(taskId);
    if (task !== null && maySee(principal, taskContextOf(task).by)) return answer(task);
    return no('not_found', `no task ${taskId} that this credential may see`, 'list the tasks that it may see');
  }

  async #isSame(taskId: TaskId, { kind, payload }: SubmitRequest): Promise<boolean> {
    for (const { event } of await this.#core.deps.store.readStream(streamOf(taskId))) {
      if (isTaskEvent(event) && event.type === 'task.submitted') {
        return event.kind === kind && isDeepStrictEqual(event.payload, payload);
      }
    }
    return false;
  }

  view(task: Task): TaskView {
    return viewOf(task, this.#waiting(task));
  }

  #waiting(task: Task): string | null {
    if (taskPhaseOf(task) !== 'Queued') return null;
    const { kind, profile, openJobs } = taskContextOf(task);
    const [open] = openJobs;
    if (open !== undefined) return `waits for a worker that can end ${open.jobId}, which ${open.worker} left behind`;
    return this.#core.workers.missing(kind, profile, this.#core.monotonicMs) ?? 'waits for a worker with room';
  }

  #payloadFault(fault: 'missing' | 'tooDeep' | 'tooLarge'): Answer<never> {
    const { payloadLimitBytes, jsonDepthMax } = this.#core.deps.config;
    switch (fault) {
      case 'missing':
        return no('invalid_request', 'the payload is missing', 'send any JSON value as payload');
      case 'tooDeep':
        return no(
          'invalid_request',
          `the payload is nested more than ${String(jsonDepthMax)} levels deep`,
          'flatten it',
        );
      case 'tooLarge':
        return no(
          'too_large',
          `the payload has more than ${String(payloadLimitBytes)} bytes`,
          'put large data into a file that the job reads, and its path into the payload',
        );
    }
  }
}
