import { z } from 'zod';
import type { Clock } from '../runtime/clock.js';
import type { CredentialsFile } from './credentials-file.js';
import { Transport } from './transport.js';
import { CallsAnswer, SessionReportAnswer, type SessionPort } from './session-api.js';
import { readAnswer, type ClientAnswer } from './wire-answer.js';
import {
  AcquireAnswer,
  HelloAnswer,
  RenewAnswer,
  ReportAnswer,
  type AcquireRequest,
  type HeldLease,
  type Hello,
  type LeaseGrant,
  type LogsUpload,
  type OutcomeRequest,
  type PortAnswer,
  type ProgressItem,
  type WorkerPort,
} from './worker-api.js';

const TIMEOUT_MS = 30_000;
/** As long as the coordinator listens to a request (http.ts): 4 MiB of result on a line of 0.3 Mbit/s. */
const UPLOAD_TIMEOUT_MS = 120_000;
/** On top of the time that the coordinator may hold the call. */
const POLL_MARGIN_MS = 15_000;
const STALE_STATUS = 409;
const HELLO_NEEDED_STATUS = 412;

const Done = z.strictObject({});

/** The worker's port over HTTP. Says hello again by itself when the coordinator has forgotten it. */
export class WorkerClient implements WorkerPort {
  readonly #transport: Transport;
  #hello: Hello | null = null;
  /** The worker's sessions, over the same connections. */
  readonly sessions: SessionPort = {
    calls: (request, signal) =>
      this.#introduced('sessions/calls', request, CallsAnswer, request.waitMs + POLL_MARGIN_MS, signal),
    report: (report) => this.#introduced('sessions/report', report, SessionReportAnswer, UPLOAD_TIMEOUT_MS),
  };

  constructor(credentials: CredentialsFile, clock: Clock) {
    this.#transport = new Transport(credentials, clock);
  }

  async hello(hello: Hello): Promise<PortAnswer<HelloAnswer>> {
    const answer = await this.#post('hello', hello, HelloAnswer);
    if (answer.kind === 'answered') this.#hello = hello;
    return answer;
  }

  async acquire(
    request: z.infer<typeof AcquireRequest>,
    signal?: AbortSignal,
  ): Promise<PortAnswer<readonly LeaseGrant[]>> {
    const timeoutMs = request.waitMs + POLL_MARGIN_MS;
    const answer = await this.#introduced('acquire', request, AcquireAnswer, timeoutMs, signal);
    return answer.kind === 'answered' ? { kind: 'answered', value: answer.value.grants } : answer;
  }

  renew(leases: readonly HeldLease[]): Promise<PortAnswer<RenewAnswer>> {
    return this.#post('renew', { leases }, RenewAnswer);
  }

  report(items: readonly ProgressItem[]): Promise<PortAnswer<ReportAnswer>> {
    return this.#introduced('report', { items }, ReportAnswer);
  }

  async outcome(outcome: OutcomeRequest): Promise<PortAnswer<null>> {
    return nothing(await this.#introduced('outcome', outcome, Done, UPLOAD_TIMEOUT_MS));
  }

  async putLogs(logs: LogsUpload): Promise<PortAnswer<null>> {
    return nothing(await this.#post('logs', logs, Done, UPLOAD_TIMEOUT_MS));
  }

  close(): void {
    this.#transport.close();
  }

  async #introduced<S extends z.ZodType>(
    path: string,
    body: unknown,
    schema: S,
    timeoutMs?: number,
    signal?: AbortSignal,
  ): Promise<PortAnswer<z.output<S>>> {
    const answer = await this.#post(path, body, schema, timeoutMs, signal);
    if (answer.kind !== 'refused' || answer.status !== HELLO_NEEDED_STATUS || this.#hello === null) return answer;
    const greeted = await this.hello(this.#hello);
    return greeted.kind === 'answered' ? this.#post(path, body, schema, timeoutMs, signal) : greeted;
  }

  async #post<S extends z.ZodType>(
    path: string,
    body: unknown,
    schema: S,
    timeoutMs = TIMEOUT_MS,
    signal?: AbortSignal,
  ): Promise<PortAnswer<z.output<S>>> {
    const wire = await this.#transport.call({
      method: 'POST',
      path: `/v1/worker/${path}`,
      body,
      timeoutMs,
      ...(signal === undefined ? {} : { signal }),
    });
    return toPort(readAnswer(wire, schema));
  }
}

function toPort<T>(answer: ClientAnswer<T>): PortAnswer<T> {
  if (answer.kind !== 'refused') return answer;
  const { status, message } = answer;
  if (status === STALE_STATUS) return { kind: 'stale', detail: message };
  return { kind: 'refused', status, detail: message };
}

const nothing = (answer: PortAnswer<unknown>): PortAnswer<null> =>
  answer.kind === 'answered' ? { kind: 'answered', value: null } : answer;
