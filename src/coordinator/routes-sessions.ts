import type { FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { StepId, TaskId } from '../machines/vocabulary.js';
import { ErrorBody } from './api.js';
import { DECIDERS, principalOf, READERS } from './http-auth.js';
import { sendProblem } from './http-errors.js';
import { goneSignal } from './routes-worker.js';
import type { Coordinator } from './service.js';
import {
  ARGV_BYTES_MAX,
  OutputQuery,
  PIECE_BYTES_MAX,
  SessionInfo,
  SessionList,
  SessionQuery,
  StdinPiece,
  StdinTaken,
  StepAccepted,
  StepCancelled,
  StepOutput,
  StepQuery,
  StepRequest,
} from './session-api.js';

const Params = z.strictObject({ taskId: TaskId });
const StepParams = z.strictObject({ taskId: TaskId, stepId: StepId });
const failures = { '4xx': ErrorBody, '5xx': ErrorBody } as const;

const ENVELOPE_BYTES = 16 * 1024;
/** Each character of a command escaped at the worst. */
const STEP_BYTES = 6 * ARGV_BYTES_MAX + ENVELOPE_BYTES;
const INPUT_BYTES = Math.ceil((PIECE_BYTES_MAX * 4) / 3) + ENVELOPE_BYTES;

/** Sessions and their steps, for people and their programs. A session is started and stopped as a task. */
export function sessionRoutes(app: FastifyInstance, { sessions }: Coordinator): void {
  const routes = app.withTypeProvider<ZodTypeProvider>();
  const tags = ['sessions'];

  routes.get(
    '/v1/sessions',
    {
      config: { access: READERS },
      schema: {
        summary: 'List sessions, newest first',
        tags,
        querystring: SessionQuery,
        response: { 200: SessionList, ...failures },
      },
    },
    async (request, reply) => {
      const given = await sessions.list(principalOf(request), request.query);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.get(
    '/v1/sessions/:taskId',
    {
      config: { access: READERS },
      schema: { summary: 'One session', tags, params: Params, response: { 200: SessionInfo, ...failures } },
    },
    async (request, reply) => {
      const given = await sessions.get(principalOf(request), request.params.taskId);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/sessions/:taskId/steps',
    {
      config: { access: DECIDERS },
      bodyLimit: STEP_BYTES,
      schema: {
        summary: 'Run a command inside a session',
        description:
          'The same id is the same step, however often it is sent. 409: the session holds no allocation; a step never makes one.',
        tags,
        params: Params,
        querystring: StepQuery,
        body: StepRequest,
        response: { 200: StepAccepted, 201: StepAccepted, ...failures },
      },
    },
    async (request, reply) => {
      const { params, body, query } = request;
      const given = await sessions.ask(principalOf(request), params.taskId, body, query.epoch ?? null);
      if (!given.ok) return sendProblem(reply, given.problem);
      return reply.code(given.value.created ? 201 : 200).send(given.value);
    },
  );

  routes.get(
    '/v1/sessions/:taskId/steps/:stepId/output',
    {
      config: { access: READERS },
      schema: {
        summary: 'What a step wrote, and how it ended; waits until there is more',
        description:
          'The query says what the reader has; when it comes from whoever asked for the step, that is dropped. 404: ask for the step again with its id.',
        tags,
        params: StepParams,
        querystring: OutputQuery,
        response: { 200: StepOutput, ...failures },
      },
    },
    async (request, reply) => {
      const { taskId, stepId } = request.params;
      const given = await sessions.output(principalOf(request), taskId, stepId, request.query, goneSignal(reply));
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/sessions/:taskId/steps/:stepId/stdin',
    {
      config: { access: DECIDERS },
      bodyLimit: INPUT_BYTES,
      schema: {
        summary: 'Send standard input to a step',
        description: 'A piece that was taken already is not taken again. 429: send the same piece again in a moment.',
        tags,
        params: StepParams,
        body: StdinPiece,
        response: { 200: StdinTaken, ...failures },
      },
    },
    async (request, reply) => {
      const { taskId, stepId } = request.params;
      const given = await sessions.input(principalOf(request), taskId, stepId, request.body);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );

  routes.post(
    '/v1/sessions/:taskId/steps/:stepId/cancel',
    {
      config: { access: DECIDERS },
      schema: {
        summary: 'Wish that a step ends; the session stays',
        tags,
        params: StepParams,
        response: { 200: StepCancelled, ...failures },
      },
    },
    async (request, reply) => {
      const { taskId, stepId } = request.params;
      const given = await sessions.cancel(principalOf(request), taskId, stepId);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );
}
