import type { FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { CreateCredential, CredentialList, CredentialView, ErrorBody, NewCredential } from './api.js';
import type { Credentials } from './credentials.js';
import { ADMINS } from './http-auth.js';
import { sendProblem } from './http-errors.js';

const failures = { '4xx': ErrorBody, '5xx': ErrorBody } as const;

/** For administrators. */
export function credentialRoutes(app: FastifyInstance, credentials: Credentials): void {
  const routes = app.withTypeProvider<ZodTypeProvider>();
  const config = { access: ADMINS };
  const tags = ['credentials'];

  routes.post(
    '/v1/credentials',
    {
      config,
      schema: {
        summary: 'Make a credential',
        description: 'The answer holds the secret; it is not kept, and can not be asked for again.',
        tags,
        body: CreateCredential,
        response: { 201: NewCredential, ...failures },
      },
    },
    async (request, reply) => reply.code(201).send(await credentials.create(request.body)),
  );

  routes.get(
    '/v1/credentials',
    { config, schema: { summary: 'List credentials', tags, response: { 200: CredentialList, ...failures } } },
    () => ({ credentials: credentials.list() }),
  );

  routes.post(
    '/v1/credentials/:id/revoke',
    {
      config,
      schema: {
        summary: 'Revoke a credential, for good',
        tags,
        params: z.strictObject({ id: z.string().min(1).max(100) }),
        response: { 200: CredentialView, ...failures },
      },
    },
    async (request, reply) => {
      const given = await credentials.revoke(request.params.id);
      return given.ok ? reply.send(given.value) : sendProblem(reply, given.problem);
    },
  );
}
