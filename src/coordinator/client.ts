import { z } from 'zod';
import type { Epoch, StepId, TaskId } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import { uniquePart, type Random } from '../runtime/random.js';
import {
  CredentialList,
  CredentialView,
  LogsView,
  NewCredential,
  ProfileList,
  Role,
  SubmitAnswer,
  TaskHistory,
  TaskList,
  TaskResult,
  TaskView,
  type CreateCredential,
  type ListQuery,
  type SubmitRequest,
} from './api.js';
import type { CredentialsFile } from './credentials-file.js';
import {
  SessionInfo,
  SessionList,
  StdinTaken,
  StepAccepted,
  StepCancelled,
  StepOutput,
  type OutputQuery,
  type SessionQuery,
  type StdinPiece,
  type StepRequest,
} from './session-api.js';
import { followChanges, type WatchItem } from './sse-client.js';
import { Transport, type WireRequest } from './transport.js';
import { readAnswer, type ClientAnswer } from './wire-answer.js';

export type { ClientAnswer } from './wire-answer.js';
export type { WatchItem } from './sse-client.js';

const TIMEOUT_MS = 30_000;
const RETRIES = 3;
const RETRY_MS = 300;

export const Whoami = z.strictObject({ id: z.string(), name: z.string(), role: Role });
export type Whoami = z.infer<typeof Whoami>;

export interface ClientDeps {
  readonly clock: Clock;
  readonly random: Random;
}

/**
 * The coordinator as people's programs see it. Nothing is thrown for what a network or a coordinator can do. What gets
 * no answer is sent again a few times where a repetition changes nothing: a submission has its key for that.
 */
export class CoordinatorClient {
  readonly #transport: Transport;
  readonly #deps: ClientDeps;

  constructor(credentials: CredentialsFile, deps: ClientDeps) {
    this.#transport = new Transport(credentials, deps.clock);
    this.#deps = deps;
  }

  get url(): string {
    return this.#transport.url;
  }

  /** `key`: the client's own name for this submission; a new one is made when there is none. */
  submit(request: SubmitRequest, key?: string): Promise<ClientAnswer<SubmitAnswer>> {
    const idempotencyKey = key ?? uniquePart(this.#deps.clock.nowMs(), this.#deps.random);
    return this.#repeat(
      { method: 'POST', path: '/v1/tasks', body: request, headers: { 'idempotency-key': idempotencyKey } },
      SubmitAnswer,
    );
  }

  get(taskId: TaskId): Promise<ClientAnswer<TaskView>> {
    return this.#repeat({ method: 'GET', path: `/v1/tasks/${taskId}` }, TaskView);
  }

  list(query: Partial<ListQuery> = {}): Promise<ClientAnswer<TaskList>> {
    return this.#repeat({ method: 'GET', path: withQuery('/v1/tasks', query) }, TaskList);
  }

  result(taskId: TaskId): Promise<ClientAnswer<TaskResult>> {
    return this.#repeat({ method: 'GET', path: `/v1/tasks/${taskId}/result` }, TaskResult);
  }

  cancel(taskId: TaskId): Promise<ClientAnswer<TaskView>> {
    return this.#repeat({ method: 'POST', path: `/v1/tasks/${taskId}/cancel` }, TaskView);
  }

  abandon(taskId: TaskId): Promise<ClientAnswer<TaskView>> {
    return this.#repeat({ method: 'POST', path: `/v1/tasks/${taskId}/abandon` }, TaskView);
  }

  logs(taskId: TaskId): Promise<ClientAnswer<LogsView>> {
    return this.#repeat({ method: 'GET', path: `/v1/tasks/${taskId}/logs` }, LogsView);
  }

  history(taskId: TaskId): Promise<ClientAnswer<TaskHistory>> {
    return this.#repeat({ method: 'GET', path: `/v1/tasks/${taskId}/history` }, TaskHistory);
  }

  sessions(query: Partial<SessionQuery> = {}): Promise<ClientAnswer<SessionList>> {
    return this.#repeat({ method: 'GET', path: withQuery('/v1/sessions', query) }, SessionList);
  }

  session(taskId: TaskId): Promise<ClientAnswer<SessionInfo>> {
    return this.#repeat({ method: 'GET', path: `/v1/sessions/${taskId}` }, SessionInfo);
  }

  /** Its id makes it one step, however often it is sent. `epoch`: what an earlier answer said, if there was one. */
  requestStep(taskId: TaskId, request: StepRequest, epoch?: Epoch): Promise<ClientAnswer<StepAccepted>> {
    const path = withQuery(`/v1/sessions/${taskId}/steps`, epoch === undefined ? {} : { epoch });
    return this.#repeat({ method: 'POST', path, body: request }, StepAccepted);
  }

  /** Sent once: whoever follows a step sees to repetitions. Waits for `waitMs` on the coordinator's side. */
  stepOutput(
    taskId: TaskId,
    stepId: StepId,
    query: OutputQuery,
    signal?: AbortSignal,
  ): Promise<ClientAnswer<StepOutput>> {
    const path = withQuery(`/v1/sessions/${taskId}/steps/${stepId}/output`, query);
    const timeoutMs = TIMEOUT_MS + query.waitMs;
    return this.#once({ method: 'GET', path, ...(signal === undefined ? {} : { signal }) }, StepOutput, timeoutMs);
  }

  /** Its offset makes it one piece, however often it is sent. */
  stepInput(taskId: TaskId, stepId: StepId, piece: StdinPiece): Promise<ClientAnswer<StdinTaken>> {
    return this.#repeat(
      { method: 'POST', path: `/v1/sessions/${taskId}/steps/${stepId}/stdin`, body: piece },
      StdinTaken,
    );
  }

  cancelStep(taskId: TaskId, stepId: StepId): Promise<ClientAnswer<StepCancelled>> {
    return this.#repeat({ method: 'POST', path: `/v1/sessions/${taskId}/steps/${stepId}/cancel` }, StepCancelled);
  }

  profiles(): Promise<ClientAnswer<ProfileList>> {
    return this.#repeat({ method: 'GET', path: '/v1/profiles' }, ProfileList);
  }

  whoami(): Promise<ClientAnswer<Whoami>> {
    return this.#repeat({ method: 'GET', path: '/v1/whoami' }, Whoami);
  }

  /** Sent once: a second one would be a second credential. */
  createCredential(request: CreateCredential): Promise<ClientAnswer<NewCredential>> {
    return this.#once({ method: 'POST', path: '/v1/credentials', body: request, repeatable: false }, NewCredential);
  }

  listCredentials(): Promise<ClientAnswer<CredentialList>> {
    return this.#repeat({ method: 'GET', path: '/v1/credentials' }, CredentialList);
  }

  revokeCredential(id: string): Promise<ClientAnswer<CredentialView>> {
    return this.#repeat({ method: 'POST', path: `/v1/credentials/${encodeURIComponent(id)}/revoke` }, CredentialView);
  }

  /** All of one task from its beginning until it is over, or from after the position. */
  async *watchTask(taskId: TaskId, signal: AbortSignal, after: number | null = null): AsyncGenerator<WatchItem, void> {
    const path = `/v1/tasks/${taskId}/changes`;
    for await (const item of followChanges(this.#transport, this.#deps.clock, path, after, signal)) {
      yield item;
      if (item.kind === 'change' && item.change.phase !== 'Queued' && item.change.phase !== 'Leased') return;
    }
  }

  /** All tasks that this credential may see, from now on, or from after the position. */
  watchAll(signal: AbortSignal, after: number | null = null): AsyncGenerator<WatchItem, void> {
    return followChanges(this.#transport, this.#deps.clock, '/v1/changes', after, signal);
  }

  close(): void {
    this.#transport.close();
  }

  async #once<S extends z.ZodType>(
    request: Omit<WireRequest, 'timeoutMs'>,
    schema: S,
    timeoutMs = TIMEOUT_MS,
  ): Promise<ClientAnswer<z.output<S>>> {
    return readAnswer(await this.#transport.call({ ...request, timeoutMs }), schema);
  }

  async #repeat<S extends z.ZodType>(
    request: Omit<WireRequest, 'timeoutMs'>,
    schema: S,
  ): Promise<ClientAnswer<z.output<S>>> {
    for (let tries = 0; ; tries += 1) {
      const answer = await this.#once(request, schema);
      if (answer.kind !== 'unreachable' || tries >= RETRIES) return answer;
      await this.#deps.clock.sleep(RETRY_MS * 2 ** tries);
    }
  }
}

function withQuery(path: string, query: Readonly<Record<string, unknown>>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) search.set(name, String(value));
  const text = search.toString();
  return text === '' ? path : `${path}?${text}`;
}
