import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { TaskId } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { TaskChange } from './api.js';
import type { Credentials } from './credentials.js';
import { principalOf, READERS } from './http-auth.js';
import { sendProblem } from './http-errors.js';
import type { Watch } from './client-service.js';
import type { Coordinator } from './service.js';

/** Comments that keep proxies from closing a quiet stream. */
const KEEP_ALIVE_MS = 15_000;
/** A client that has not read for so long is dropped; it comes back with the position that it knows. */
const STALLED_MS = 30_000;
const WATCHERS_MAX = 500;

const Position = z.coerce.number().int().nonnegative().optional();
const Query = z.strictObject({ after: Position });
const Headers = z.looseObject({ 'last-event-id': Position });

export interface SseDeps {
  readonly coordinator: Coordinator;
  readonly credentials: Credentials;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Watching, as server-sent events: `id` is the position to resume from, `data` one TaskChange as JSON. The first event,
 * `start`, has the position alone.
 */
export class SseRoutes {
  readonly #deps: SseDeps;
  readonly #open = new Set<AbortController>();

  constructor(deps: SseDeps) {
    this.#deps = deps;
  }

  get watchers(): number {
    return this.#open.size;
  }

  register(app: FastifyInstance): void {
    const routes = app.withTypeProvider<ZodTypeProvider>();
    const description =
      'Server-sent events; resume with Last-Event-ID. A task is told from its beginning and the stream ends with it; ' +
      'all tasks are told from now on.';
    routes.get(
      '/v1/changes',
      {
        config: { access: READERS },
        schema: { summary: 'Watch all tasks', description, tags: ['watch'], querystring: Query, headers: Headers },
      },
      (request, reply) => this.#watch(request, reply, null, request.headers['last-event-id'] ?? request.query.after),
    );
    routes.get(
      '/v1/tasks/:taskId/changes',
      {
        config: { access: READERS },
        schema: {
          summary: 'Watch one task',
          description,
          tags: ['watch'],
          params: z.strictObject({ taskId: TaskId }),
          querystring: Query,
          headers: Headers,
        },
      },
      (request, reply) =>
        this.#watch(request, reply, request.params.taskId, request.headers['last-event-id'] ?? request.query.after),
    );
  }

  /** Ends all streams, so that the server can close. */
  close(): void {
    for (const watcher of [...this.#open]) watcher.abort();
  }

  async #watch(
    request: FastifyRequest,
    reply: FastifyReply,
    taskId: TaskId | null,
    after: number | undefined,
  ): Promise<FastifyReply> {
    if (this.#open.size >= WATCHERS_MAX) {
      return sendProblem(reply, {
        code: 'too_many_watchers',
        message: `${String(WATCHERS_MAX)} clients watch already`,
        hint: 'come back later, or ask for single tasks now and then',
      });
    }
    const watcher = new AbortController();
    const principal = principalOf(request);
    const query = { taskId, after: after ?? null };
    this.#open.add(watcher);
    const forgetRevoked = this.#deps.credentials.onRevoked((id) => {
      if (id === principal.id) watcher.abort();
    });
    try {
      const given = await this.#deps.coordinator.client.watch(principal, query, watcher.signal);
      if (!given.ok) return await sendProblem(reply, given.problem);
      reply.hijack();
      await this.#stream(reply.raw, given.value, taskId !== null, watcher);
      return await reply;
    } finally {
      forgetRevoked();
      watcher.abort();
      this.#open.delete(watcher);
    }
  }

  async #stream(
    raw: ServerResponse,
    { from, changes }: Watch,
    endsWithTask: boolean,
    watcher: AbortController,
  ): Promise<void> {
    const { signal } = watcher;
    raw.once('close', () => {
      watcher.abort();
    });
    raw.once('error', () => {
      watcher.abort(); // the client went away while it was written to: there is nobody to tell
    });
    raw.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' });
    raw.write(`retry: 2000\n\nid: ${String(from)}\nevent: start\ndata: ${JSON.stringify({ position: from })}\n\n`);
    const keptAlive = this.#keepAlive(raw, watcher);
    try {
      for await (const change of changes) {
        const text = `id: ${String(change.position)}\nevent: change\ndata: ${JSON.stringify(change)}\n\n`;
        if (!raw.write(text) && !(await this.#drained(raw, signal))) {
          raw.destroy();
          break;
        }
        if (endsWithTask && isOver(change)) break;
      }
    } catch (error) {
      this.#deps.log.error({ err: error }, 'a watch ended; its client will come back');
      raw.destroy();
    }
    watcher.abort();
    await keptAlive;
    raw.end();
  }

  async #keepAlive(raw: ServerResponse, { signal }: AbortController): Promise<void> {
    for (;;) {
      await this.#deps.clock.sleep(KEEP_ALIVE_MS, signal);
      if (signal.aborted) return;
      if (!raw.writableNeedDrain) raw.write(': still here\n\n');
    }
  }

  /** False: the client does not read. What waits for it is no more than the socket's own buffer. */
  async #drained(raw: ServerResponse, signal: AbortSignal): Promise<boolean> {
    const over = new AbortController();
    const end = (): void => {
      over.abort();
    };
    signal.addEventListener('abort', end, { once: true });
    const drained = once(raw, 'drain', { signal: over.signal }).then(
      () => true,
      () => false, // aborted: too slow, or gone
    );
    void this.#deps.clock.sleep(STALLED_MS, over.signal).then(end);
    const result = await drained;
    end();
    signal.removeEventListener('abort', end);
    return result;
  }
}

const isOver = ({ phase }: TaskChange): boolean => phase !== 'Queued' && phase !== 'Leased';
