import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Role } from './api.js';
import type { Credentials } from './credentials.js';
import { sendProblem } from './http-errors.js';
import type { Principal } from './principal.js';
import type { Problem } from './problems.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Who may call this route. A route without it is closed to everybody. */
    readonly access?: readonly Role[] | 'public';
  }
  interface FastifyRequest {
    principal: Principal | null;
  }
}

export const EVERYBODY = ['submitter', 'worker', 'viewer', 'admin'] as const satisfies readonly Role[];
export const READERS = ['submitter', 'viewer', 'admin'] as const satisfies readonly Role[];
export const DECIDERS = ['submitter', 'admin'] as const satisfies readonly Role[];
export const OBSERVERS = ['viewer', 'admin'] as const satisfies readonly Role[];
export const WORKERS = ['worker', 'admin'] as const satisfies readonly Role[];
export const ADMINS = ['admin'] as const satisfies readonly Role[];

const UNAUTHENTICATED: Problem = {
  code: 'unauthenticated',
  message: 'this needs a credential',
  hint: 'send "Authorization: Bearer <id>.<secret>" from a credentials file that an administrator made for you',
};

/** Runs before a request's body is read. A path that does not exist is only told to those who may come in. */
export function authenticator(credentials: Credentials) {
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const { access } = request.routeOptions.config;
    if (access === 'public') return undefined;
    const who = credentials.authenticate(request.headers.authorization);
    switch (who.kind) {
      case 'missing':
      case 'wrong':
        return sendProblem(reply, UNAUTHENTICATED);
      case 'revoked':
        return sendProblem(reply, {
          code: 'credential_revoked',
          message: `the credential ${who.id} has been revoked`,
          hint: 'ask an administrator for a new one',
        });
      case 'ok':
        break;
    }
    request.principal = who.principal;
    if (request.is404 || access?.includes(who.principal.role) === true) return undefined;
    return sendProblem(reply, {
      code: 'forbidden',
      message: `role ${who.principal.role} may not do this`,
      hint: access === undefined ? 'nobody may' : `it needs the role ${access.join(' or ')}`,
    });
  };
}

/** Who calls. Throws on a public route, where nobody is known. */
export function principalOf(request: FastifyRequest): Principal {
  if (request.principal === null) throw new Error(`no principal on ${request.url}`);
  return request.principal;
}
