import { Agent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import type { Clock } from '../runtime/clock.js';
import type { CredentialsFile } from './credentials-file.js';
import { errorCode, errorMessage } from './error-facts.js';

/*
 * node:http and not fetch: after 2,000 small calls a process with fetch had 118 MB resident and had used 2.0 s of CPU,
 * with node:http 54 MB and 0.5 s (Node 20.20); a worker is to stay under 100 MB.
 */

export interface WireRequest {
  readonly method: 'GET' | 'POST';
  /** With its leading slash, below the coordinator's URL. */
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  /** False: what was perhaps read must not be sent again. */
  readonly repeatable?: boolean;
}

/** `unreachable`: no answer that counts; the request may have taken effect. */
export type WireAnswer =
  | { readonly kind: 'answered'; readonly status: number; readonly body: unknown }
  | { readonly kind: 'unreachable'; readonly detail: string };

export type WireStream =
  | { readonly kind: 'open'; readonly response: IncomingMessage }
  | { readonly kind: 'answered'; readonly status: number; readonly body: unknown }
  | { readonly kind: 'unreachable'; readonly detail: string };

const ANSWER_MAX_BYTES = 64 * 1024 * 1024;
const SOCKETS_MAX = 16;

/** Calls to one coordinator with one credential, over connections that are kept. Never throws. */
export class Transport {
  readonly #base: URL;
  readonly #authorization: string;
  readonly #clock: Clock;
  #agent: Agent | null = null;
  #send: typeof httpRequest = httpRequest;

  constructor({ url, id, secret }: CredentialsFile, clock: Clock) {
    this.#base = new URL(url.endsWith('/') ? url : `${url}/`);
    this.#authorization = `Bearer ${id}.${secret}`;
    this.#clock = clock;
  }

  get url(): string {
    return this.#base.href.replace(/\/$/, '');
  }

  async call(request: WireRequest): Promise<WireAnswer> {
    const first = await this.#once(request);
    // A kept connection that the other side had closed, most likely before it read anything.
    const again = first.kind === 'unreachable' && first.staleConnection && request.repeatable !== false;
    return again ? this.#once(request) : first;
  }

  /** Opens an event stream. The caller reads `response` and destroys it. */
  async stream(request: WireRequest): Promise<WireStream> {
    const sent = await this.#exchange(request, null);
    if (sent.kind === 'unreachable') return { kind: 'unreachable', detail: sent.detail };
    const { response } = sent;
    if (response.statusCode === 200) return { kind: 'open', response };
    const read = await readJson(response);
    if (read.kind === 'unreachable') return read;
    return { kind: 'answered', status: response.statusCode ?? 0, body: read.body };
  }

  close(): void {
    this.#agent?.destroy();
    this.#agent = null;
  }

  async #once(request: WireRequest): Promise<Answered | Unreachable> {
    const over = new AbortController();
    const end = (): void => {
      over.abort();
    };
    request.signal?.addEventListener('abort', end, { once: true });
    if (request.signal?.aborted === true) end();
    const limit = { passed: false };
    const timer = new AbortController();
    void this.#clock.sleep(request.timeoutMs, timer.signal).then(() => {
      limit.passed = !timer.signal.aborted;
      end();
    });
    try {
      const sent = await this.#exchange(request, over.signal);
      const read = sent.kind === 'unreachable' ? sent : await readJson(sent.response);
      if (read.kind === 'unreachable') {
        const detail = limit.passed ? `no answer within ${String(request.timeoutMs)} ms` : read.detail;
        return { kind: 'unreachable', detail, staleConnection: sent.kind === 'unreachable' && sent.staleConnection };
      }
      return { kind: 'answered', status: read.status, body: read.body };
    } finally {
      timer.abort();
      request.signal?.removeEventListener('abort', end);
    }
  }

  async #exchange(
    { method, path, body, headers, signal }: WireRequest,
    over: AbortSignal | null,
  ): Promise<{ readonly kind: 'sent'; readonly response: IncomingMessage } | Unreachable> {
    const text = body === undefined ? null : JSON.stringify(body);
    const ending = over ?? signal;
    const options: RequestOptions = {
      method,
      agent: await this.#connect(),
      headers: {
        ...headers,
        authorization: this.#authorization,
        ...(text === null
          ? {}
          : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) }),
      },
      ...(ending === undefined ? {} : { signal: ending }),
    };
    const url = new URL(path.slice(1), this.#base);
    return new Promise((resolve) => {
      const request = this.#send(url, options, (response) => {
        resolve({ kind: 'sent', response });
      });
      request.on('error', (error) => {
        const code = errorCode(error);
        const staleConnection = request.reusedSocket && (code === 'ECONNRESET' || code === 'EPIPE');
        resolve({ kind: 'unreachable', detail: `${this.url}: ${errorMessage(error)}`, staleConnection });
      });
      if (text === null) request.end();
      else request.end(text);
    });
  }

  async #connect(): Promise<Agent> {
    if (this.#agent !== null) return this.#agent;
    const options = { keepAlive: true, maxSockets: SOCKETS_MAX };
    if (this.#base.protocol !== 'https:') {
      this.#agent = new Agent(options);
      return this.#agent;
    }
    const https = await import('node:https');
    this.#send = https.request;
    this.#agent = new https.Agent(options);
    return this.#agent;
  }
}

type Answered = Extract<WireAnswer, { kind: 'answered' }>;

interface Unreachable {
  readonly kind: 'unreachable';
  readonly detail: string;
  readonly staleConnection: boolean;
}

type Read =
  | { readonly kind: 'read'; readonly status: number; readonly body: unknown }
  | { readonly kind: 'unreachable'; readonly detail: string };

async function readJson(response: IncomingMessage): Promise<Read> {
  const status = response.statusCode ?? 0;
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of response) {
      if (!Buffer.isBuffer(chunk)) continue;
      bytes += chunk.length;
      if (bytes > ANSWER_MAX_BYTES) {
        response.destroy();
        return { kind: 'unreachable', detail: `an answer of more than ${String(ANSWER_MAX_BYTES)} bytes` };
      }
      chunks.push(chunk);
    }
  } catch (error) {
    return { kind: 'unreachable', detail: `the answer broke off: ${errorMessage(error)}` };
  }
  const text = Buffer.concat(chunks).toString('utf8');
  try {
    return { kind: 'read', status, body: text === '' ? null : JSON.parse(text) };
  } catch {
    return { kind: 'unreachable', detail: `an answer (HTTP ${String(status)}) that is not the coordinator's` };
  }
}
