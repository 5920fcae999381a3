import type { FastifyReply } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import type { Socket } from 'node:net';
import { StoreError } from '../events/store.js';
import type { Log } from '../runtime/log.js';
import type { ErrorBody } from './api.js';
import { errorCode, errorMessage, errorStatus } from './error-facts.js';
import { PROBLEM_STATUS, type Problem } from './problems.js';
import { BusyError } from './task-book.js';

export const bodyOf = ({ code, message, hint }: Problem): ErrorBody => ({ error: { code, message, hint } });

export function sendProblem(reply: FastifyReply, problem: Problem): FastifyReply {
  const status = PROBLEM_STATUS[problem.code];
  if (status === 401) void reply.header('www-authenticate', 'Bearer');
  if (status === 503) void reply.header('retry-after', '2');
  return reply.code(status).send(bodyOf(problem));
}

/** Everything that is thrown on the way of a request. What the caller can not mend is logged, not told. */
export function problemOf(error: unknown, log: Log): Problem {
  if (hasZodFastifySchemaValidationErrors(error)) {
    const faults = error.validation.slice(0, 5).map(({ instancePath, message }) => {
      const where = `${error.validationContext ?? 'request'}${instancePath}`;
      return `${where}: ${message ?? 'does not fit'}`;
    });
    return { code: 'invalid_request', message: faults.join('; '), hint: 'see /v1/openapi.json for the shape' };
  }
  if (error instanceof StoreError) {
    log.error({ err: error, fault: error.fault }, 'the storage refused');
    return {
      code: 'storage_failed',
      message: `the coordinator's storage refused (${error.fault}); nothing was changed`,
      hint: 'repeat it later; the administrator finds more in the log of the coordinator',
    };
  }
  if (error instanceof BusyError) return { code: 'busy', message: error.message, hint: 'repeat it' };
  const status = errorStatus(error);
  if (status === 413) {
    return { code: 'too_large', message: 'the body of the request is too large', hint: 'send less at once' };
  }
  if (status === 414 || errorCode(error) === 'FST_ERR_MAX_PARAM_LENGTH') {
    return { code: 'url_too_long', message: 'the URL is too long', hint: 'shorten it' };
  }
  if (status !== null && status >= 400 && status < 500) {
    const message = isSyntaxError(error) ? 'the body is not JSON' : plain(error);
    return { code: 'invalid_request', message, hint: 'send a JSON body with content-type application/json' };
  }
  log.error({ err: error }, 'a request failed');
  return {
    code: 'internal',
    message: 'the coordinator failed on this request',
    hint: 'see the log of the coordinator',
  };
}

const isSyntaxError = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && 'name' in error && error.name === 'SyntaxError';

/** The framework's own words, without what the caller had sent. */
const plain = (error: unknown): string => errorMessage(error).split(':', 1).join('');

/** What did not even parse as a request, or came too slowly. */
export function answerBrokenRequest(error: Error, socket: Socket): void {
  if (errorCode(error) === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const tooLarge = errorCode(error) === 'HPE_HEADER_OVERFLOW';
  const tooSlow = errorCode(error) === 'ERR_HTTP_REQUEST_TIMEOUT';
  const line = tooLarge ? '431 Request Header Fields Too Large' : tooSlow ? '408 Request Timeout' : '400 Bad Request';
  const problem: Problem = {
    code: tooLarge ? 'headers_too_large' : 'invalid_request',
    message: tooLarge ? 'the headers or the URL are too large' : tooSlow ? 'the request came too slowly' : 'not HTTP',
    hint: 'see the documentation of the API',
  };
  const body = JSON.stringify(bodyOf(problem));
  const head = `HTTP/1.1 ${line}\r\ncontent-type: application/json\r\ncontent-length: ${String(body.length)}`;
  socket.end(`${head}\r\nconnection: close\r\n\r\n${body}`);
}
