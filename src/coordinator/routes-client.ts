import type { FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { TaskId } from '../machines/vocabulary.js';
import {
  ErrorBody,
  ListQuery,
  LogsView,
  ProfileList,
  Role,
  SubmissionKey,
  SubmitAnswer,
  SubmitRequest,
  TaskHistory,
  TaskList,
  TaskResult,
  TaskView,
} from './api.js';
import { DECIDERS, EVERYBODY, principalOf, READERS } from './http-auth.js';
import { sendProblem } from './http-errors.js';
import type { Coordinator } from './service.js';

const Params = z.strictObject({ taskId: TaskId });
const failures = { '4xx': ErrorBody, '5xx': ErrorBody } as const;
const Key = z.looseObject({ 'idempotency-key': SubmissionKey.optional() });

/** What a body may hold beside the payload. */
const ENVELOPE_BYTES = 16 * 1024;

/** For people and their programs. */
export function clientRoutes(app: FastifyInstance, { client, core }: Coordinator): void {
  const routes = app.withTypeProvider<ZodTypeProvider>();
  const bodyLimit = core.deps.config.payloadLimitBytes + ENVELOPE_BYTES;

  routes.post(
    '/v1/tasks',
    {
      config: { access: DECIDERS },
      bodyLimit,
      schema: {
        summary: 'Submit a task',
        description: 'With an Idempotency-Key the same key is the same task, however often it is sent.',
        tags: ['tasks'],
        headers: Key,
        body: SubmitRequest,
        response: { 200: SubmitAnswer, 201: SubmitAnswer, ...failures },
      },
    },
    async (request, reply) => {
      const key = request.headers['idempotency-key'] ?? null;
      const given = await client.submit(principalOf(request), request.body, key);
      if (!given.ok) return sendProblem(reply, given.problem);
      return reply.code(given.value.created ? 201 : 200).send(given.value);
    },
  );

  routes.get(
    '/v1/tasks',
    {
      config: { access: READERS },
      schema: {
        summary: 'List tasks, newest first',
        tags: ['tasks'],
        querystring: ListQuery,
        response: { 200: TaskList, ...failures },
      },
    },
    async (request, reply) => {
      const given = await client.list(principalOf(request), request.query);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.get(
    '/v1/tasks/:taskId',
    {
      config: { access: READERS },
      schema: { summary: 'One task', tags: ['tasks'], params: Params, response: { 200: TaskView, ...failures } },
    },
    async (request, reply) => {
      const given = await client.get(principalOf(request), request.params.taskId);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.get(
    '/v1/tasks/:taskId/result',
    {
      config: { access: READERS },
      schema: {
        summary: 'The result of a completed task',
        tags: ['tasks'],
        params: Params,
        response: { 200: TaskResult, ...failures },
      },
    },
    async (request, reply) => {
      const given = await client.result(principalOf(request), request.params.taskId);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.get(
    '/v1/tasks/:taskId/logs',
    {
      config: { access: READERS },
      schema: {
        summary: 'The newest output of a task',
        description: 'While it runs, asking makes its worker hand over more for a while.',
        tags: ['tasks'],
        params: Params,
        response: { 200: LogsView, ...failures },
      },
    },
    async (request, reply) => {
      const given = await client.logs(principalOf(request), request.params.taskId);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.get(
    '/v1/tasks/:taskId/history',
    {
      config: { access: READERS },
      schema: {
        summary: 'Everything that happened to a task',
        tags: ['tasks'],
        params: Params,
        response: { 200: TaskHistory, ...failures },
      },
    },
    async (request, reply) => {
      const given = await client.history(principalOf(request), request.params.taskId);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  for (const verb of ['cancel', 'abandon'] as const) {
    routes.post(
      `/v1/tasks/:taskId/${verb}`,
      {
        config: { access: DECIDERS },
        schema: {
          summary: verb === 'cancel' ? 'Wish that a task ends' : 'Stop waiting for a task; its job may live on',
          tags: ['tasks'],
          params: Params,
          response: { 200: TaskView, ...failures },
        },
      },
      async (request, reply) => {
        const given = await client[verb](principalOf(request), request.params.taskId);
        return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
      },
    );
  }

  routes.get(
    '/v1/profiles',
    {
      config: { access: READERS },
      schema: { summary: 'What workers offer', tags: ['profiles'], response: { 200: ProfileList, ...failures } },
    },
    () => client.profiles(),
  );

  routes.get(
    '/v1/whoami',
    {
      config: { access: EVERYBODY },
      schema: {
        summary: 'Whose credential this is',
        tags: ['credentials'],
        response: { 200: z.strictObject({ id: z.string(), name: z.string(), role: Role }), ...failures },
      },
    },
    (request) => principalOf(request),
  );
}
