import type { FastifyInstance, FastifyReply } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { ErrorBody } from './api.js';
import { principalOf, WORKERS } from './http-auth.js';
import { sendProblem } from './http-errors.js';
import type { Coordinator } from './service.js';
import { CallsAnswer, CallsRequest, REPORT_BYTES_MAX, SessionReport, SessionReportAnswer } from './session-api.js';
import {
  AcquireAnswer,
  AcquireRequest,
  Hello,
  HelloAnswer,
  LogsUpload,
  OutcomeRequest,
  RenewAnswer,
  RenewRequest,
  ReportAnswer,
  ReportRequest,
} from './worker-api.js';

const failures = { '4xx': ErrorBody, '5xx': ErrorBody } as const;
/** `{}`: done. */
const Done = z.strictObject({});

/** A renewal of 100,000 leases, 1,000 profiles with schemas, or a report of 10,000 items. */
const BULK_BYTES = 16 * 1024 * 1024;
/** Two tails of 512 KiB, each character escaped at the worst. */
const OUTPUT_BYTES = 7 * 1024 * 1024;
const ENVELOPE_BYTES = 512 * 1024;

/** For workers; worker-client.ts is the other end. */
export function workerRoutes(app: FastifyInstance, { worker, sessions, core }: Coordinator): void {
  const routes = app.withTypeProvider<ZodTypeProvider>();
  const config = { access: WORKERS };
  const tags = ['workers'];

  routes.post(
    '/v1/worker/hello',
    {
      config,
      bodyLimit: BULK_BYTES,
      schema: { summary: 'Introduce a worker', tags, body: Hello, response: { 200: HelloAnswer, ...failures } },
    },
    async (request, reply) => {
      const given = await worker.hello(principalOf(request), request.body);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/worker/acquire',
    {
      config,
      schema: {
        summary: 'Lease tasks; waits until there are some',
        tags,
        body: AcquireRequest,
        response: { 200: AcquireAnswer, ...failures },
      },
    },
    async (request, reply) => {
      const given = await worker.acquire(principalOf(request), request.body, goneSignal(reply));
      return given.ok ? reply.send({ grants: [...given.value] }) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/worker/renew',
    {
      config,
      bodyLimit: BULK_BYTES,
      schema: {
        summary: 'Renew all leases that the worker knows of',
        tags,
        body: RenewRequest,
        response: { 200: RenewAnswer, ...failures },
      },
    },
    async (request, reply) => {
      const given = await worker.renew(principalOf(request), request.body.leases);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/worker/report',
    {
      config,
      bodyLimit: BULK_BYTES,
      schema: {
        summary: 'Say how jobs are doing',
        tags,
        body: ReportRequest,
        response: { 200: ReportAnswer, ...failures },
      },
    },
    async (request, reply) => {
      const given = await worker.report(principalOf(request), request.body.items);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/worker/outcome',
    {
      config,
      bodyLimit: core.deps.config.resultLimitBytes + ENVELOPE_BYTES,
      schema: {
        summary: 'Deliver the end of a lease',
        description: '409: the epoch is not in force any more; this is final.',
        tags,
        body: OutcomeRequest,
        response: { 200: Done, ...failures },
      },
    },
    async (request, reply) => {
      const given = await worker.outcome(principalOf(request), request.body);
      return given.ok ? reply.send({}) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/worker/logs',
    {
      config,
      bodyLimit: OUTPUT_BYTES,
      schema: { summary: "Hand over a job's output", tags, body: LogsUpload, response: { 200: Done, ...failures } },
    },
    async (request, reply) => {
      const given = await worker.putLogs(principalOf(request), request.body);
      return given.ok ? reply.send({}) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/worker/sessions/calls',
    {
      config,
      schema: {
        summary: "Hear what is asked of the worker's sessions; waits until there is something",
        tags,
        body: CallsRequest,
        response: { 200: CallsAnswer, ...failures },
      },
    },
    async (request, reply) => {
      const given = await sessions.calls(principalOf(request), request.body, goneSignal(reply));
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/worker/sessions/report',
    {
      config,
      bodyLimit: REPORT_BYTES_MAX,
      schema: {
        summary: 'Say how sessions and their steps are',
        tags,
        body: SessionReport,
        response: { 200: SessionReportAnswer, ...failures },
      },
    },
    async (request, reply) => {
      const given = await sessions.report(principalOf(request), request.body);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );
}

/** Aborts when the caller has gone without having been answered. */
export function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) gone.abort();
  });
  return gone.signal;
}
