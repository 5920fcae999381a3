import swagger from '@fastify/swagger';
import { fastify, type FastifyInstance } from 'fastify';
import {
  jsonSchemaTransform,
  jsonSchemaTransformObject,
  serializerCompiler,
  validatorCompiler,
} from 'fastify-type-provider-zod';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { Credentials } from './credentials.js';
import { authenticator, EVERYBODY, OBSERVERS } from './http-auth.js';
import { answerBrokenRequest, problemOf, sendProblem } from './http-errors.js';
import { Metrics } from './metrics.js';
import { clientRoutes } from './routes-client.js';
import { credentialRoutes } from './routes-credentials.js';
import { sessionRoutes } from './routes-sessions.js';
import { workerRoutes } from './routes-worker.js';
import type { Coordinator } from './service.js';
import { SseRoutes } from './sse.js';

export interface HttpDeps {
  readonly coordinator: Coordinator;
  readonly credentials: Credentials;
  readonly clock: Clock;
  readonly log: Log;
  readonly version: string;
  readonly timeouts?: HttpTimeouts;
}

export interface HttpTimeouts {
  /** To send a whole request; large results come over slow lines. */
  readonly requestMs: number;
  readonly headersMs: number;
  /** How often both are looked at. */
  readonly checkMs: number;
}

const TIMEOUTS: HttpTimeouts = { requestMs: 120_000, headersMs: 10_000, checkMs: 5_000 };
const URL_MAX = 2048;
const HEADERS_MAX_BYTES = 16 * 1024;
const BODY_MAX_BYTES = 64 * 1024;
/** Longer than the longest long poll (60 s). */
const IDLE_MS = 75_000;
const CONNECTIONS_MAX = 4096;

/** The coordinator's wire, not listening yet. */
export async function createHttp(deps: HttpDeps): Promise<FastifyInstance> {
  const { coordinator, credentials, clock, log, version, timeouts = TIMEOUTS } = deps;
  const app = fastify({
    bodyLimit: BODY_MAX_BYTES,
    requestTimeout: timeouts.requestMs,
    connectionTimeout: IDLE_MS,
    keepAliveTimeout: IDLE_MS,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: 128 },
    http: {
      maxHeaderSize: HEADERS_MAX_BYTES,
      headersTimeout: timeouts.headersMs,
      connectionsCheckingInterval: timeouts.checkMs,
    },
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, _request, reply) => {
      void sendProblem(reply, problemOf(error, log));
    },
  });
  app.server.maxConnections = CONNECTIONS_MAX;
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  app.decorateRequest('principal', null);
  app.setErrorHandler((error, _request, reply) => sendProblem(reply, problemOf(error, log)));
  app.setNotFoundHandler((_request, reply) =>
    sendProblem(reply, { code: 'not_found', message: 'there is no such path', hint: 'see /v1/openapi.json' }),
  );

  const sse = new SseRoutes({ coordinator, credentials, clock, log });
  const metrics = new Metrics(coordinator, () => sse.watchers);
  app.addHook('onRequest', async (request, reply) => {
    if (request.url.length <= URL_MAX) return undefined;
    return sendProblem(reply, { code: 'url_too_long', message: 'the URL is too long', hint: 'shorten it' });
  });
  app.addHook('onRequest', authenticator(credentials));
  app.addHook('onResponse', (request, reply, done) => {
    const route = request.routeOptions.url ?? 'none';
    metrics.requests.observe({ method: request.method, route, status: reply.statusCode }, reply.elapsedTime / 1000);
    done();
  });
  app.addHook('preClose', () => {
    sse.close();
  });

  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Open Compute coordinator', version },
      components: {
        securitySchemes: { credential: { type: 'http', scheme: 'bearer', bearerFormat: '<id>.<secret>' } },
      },
      security: [{ credential: [] }],
    },
    transform: jsonSchemaTransform,
    transformObject: jsonSchemaTransformObject,
  });

  clientRoutes(app, coordinator);
  sse.register(app);
  workerRoutes(app, coordinator);
  sessionRoutes(app, coordinator);
  credentialRoutes(app, credentials);
  app.get('/healthz', { config: { access: 'public' }, schema: { hide: true } }, (_request, reply) =>
    reply.send({ status: 'ok' }),
  );
  app.get('/v1/openapi.json', { config: { access: EVERYBODY }, schema: { hide: true } }, (_request, reply) =>
    reply.send(app.swagger()),
  );
  app.get('/metrics', { config: { access: OBSERVERS }, schema: { hide: true } }, async (_request, reply) =>
    reply.type(metrics.registry.contentType).send(await metrics.registry.metrics()),
  );
  credentials.onRevoked((id) => {
    coordinator.core.workers.forget(id).catch((error: unknown) => {
      log.error({ err: error, id }, 'what a revoked worker offered is still listed');
    });
  });
  return app;
}
