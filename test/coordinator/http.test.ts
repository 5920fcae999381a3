import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { ErrorBody, NewCredential, ROLES, SubmitAnswer, type Role } from '../../src/coordinator/api.js';
import { MemoryCredentials } from '../../src/coordinator/credential-store.js';
import { Credentials } from '../../src/coordinator/credentials.js';
import { createHttp } from '../../src/coordinator/http.js';
import { StoreError } from '../../src/events/store.js';
import { epoch, jobId, stepId, taskId } from '../support/ids.js';
import { Harness, hello } from './harness.js';
import { hangUp, httpCall, type Call, type Reply } from './http-call.js';

interface Site {
  readonly h: Harness;
  readonly app: FastifyInstance;
  readonly port: number;
  readonly credentials: Credentials;
  readonly bearer: Readonly<Record<Role | 'other', string>>;
  readonly revoked: string;
}

async function site(config = {}): Promise<Site> {
  const h = await Harness.start(config);
  const credentials = await Credentials.open(new MemoryCredentials(), h.clock, h.random);
  const make = async (role: Role, name: string): Promise<string> => {
    const { id, secret } = await credentials.create({ role, name });
    return `Bearer ${id}.${secret}`;
  };
  const bearer = {
    submitter: await make('submitter', 'alice'),
    other: await make('submitter', 'bob'),
    worker: await make('worker', 'w1'),
    viewer: await make('viewer', 'viewer'),
    admin: await make('admin', 'root'),
  };
  const gone = await credentials.create({ role: 'admin', name: 'gone' });
  await credentials.revoke(gone.id);
  const app = await createHttp({ coordinator: h.coordinator, credentials, clock: h.clock, log: h.log, version: '1' });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const address = app.server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return { h, app, port, credentials, bearer, revoked: `Bearer ${gone.id}.${gone.secret}` };
}

async function leave({ app }: Site): Promise<void> {
  hangUp();
  await app.close();
}

const T = taskId(77);
const STEP = stepId(77);
const STEPS = `/v1/sessions/${T}/steps`;
const EXEC = { mode: 'exec', stepId: STEP, argv: ['x'], timeLimitS: null, outputLimitBytes: 1, rank: 0, stdin: false };
const EVERYBODY: readonly Role[] = ROLES;
const READERS: readonly Role[] = ['submitter', 'viewer', 'admin'];
const DECIDERS: readonly Role[] = ['submitter', 'admin'];
const WORKERS: readonly Role[] = ['worker', 'admin'];

/** Every route of the coordinator and who may use it. */
const ROUTES: readonly (readonly [Required<Pick<Call, 'method' | 'url'>> & Call, readonly Role[]])[] = [
  [{ method: 'POST', url: '/v1/tasks', payload: { kind: 'other', payload: 1 } }, DECIDERS],
  [{ method: 'GET', url: '/v1/tasks' }, READERS],
  [{ method: 'GET', url: `/v1/tasks/${T}` }, READERS],
  [{ method: 'GET', url: `/v1/tasks/${T}/result` }, READERS],
  [{ method: 'GET', url: `/v1/tasks/${T}/logs` }, READERS],
  [{ method: 'GET', url: `/v1/tasks/${T}/history` }, READERS],
  [{ method: 'GET', url: `/v1/tasks/${T}/changes` }, READERS],
  [{ method: 'GET', url: '/v1/changes?after=nonsense' }, READERS],
  [{ method: 'POST', url: `/v1/tasks/${T}/cancel` }, DECIDERS],
  [{ method: 'POST', url: `/v1/tasks/${T}/abandon` }, DECIDERS],
  [{ method: 'GET', url: '/v1/sessions' }, READERS],
  [{ method: 'GET', url: `/v1/sessions/${T}` }, READERS],
  [{ method: 'POST', url: STEPS, payload: EXEC }, DECIDERS],
  [{ method: 'GET', url: `${STEPS}/${STEP}/output` }, READERS],
  [{ method: 'POST', url: `${STEPS}/${STEP}/stdin`, payload: { offset: 0, data: '', end: true } }, DECIDERS],
  [{ method: 'POST', url: `${STEPS}/${STEP}/cancel` }, DECIDERS],
  [{ method: 'GET', url: '/v1/profiles' }, READERS],
  [{ method: 'GET', url: '/v1/whoami' }, EVERYBODY],
  [{ method: 'GET', url: '/v1/openapi.json' }, EVERYBODY],
  [{ method: 'GET', url: '/metrics' }, ['viewer', 'admin']],
  [{ method: 'POST', url: '/v1/worker/hello', payload: hello() }, WORKERS],
  [{ method: 'POST', url: '/v1/worker/acquire', payload: { count: 1, waitMs: 0 } }, WORKERS],
  [{ method: 'POST', url: '/v1/worker/renew', payload: { leases: [] } }, WORKERS],
  [{ method: 'POST', url: '/v1/worker/report', payload: { items: [] } }, WORKERS],
  [
    {
      method: 'POST',
      url: '/v1/worker/outcome',
      payload: { type: 'cancelled', taskId: T, epoch: 1, jobId: null, reason: 'USER_CANCELLED' },
    },
    WORKERS,
  ],
  [{ method: 'POST', url: '/v1/worker/logs', payload: { taskId: T, epoch: 1, stdout: '', stderr: '' } }, WORKERS],
  [{ method: 'POST', url: '/v1/worker/sessions/calls', payload: { desk: null, after: 0, waitMs: 0 } }, WORKERS],
  [{ method: 'POST', url: '/v1/worker/sessions/report', payload: { views: [], steps: [] } }, WORKERS],
  [{ method: 'POST', url: '/v1/credentials', payload: { role: 'viewer', name: 'new' } }, ['admin']],
  [{ method: 'GET', url: '/v1/credentials' }, ['admin']],
  [{ method: 'POST', url: '/v1/credentials/nobody/revoke' }, ['admin']],
];

const OpenApi = z.looseObject({ openapi: z.string(), paths: z.record(z.string(), z.unknown()) });

/** What went wrong, or an error if the answer has not the shape of every refusal. */
const errorOf = (reply: Reply) => ErrorBody.parse(reply.json()).error;

describe('who may call what', () => {
  let s: Site;
  beforeAll(async () => {
    s = await site();
  });
  afterAll(() => leave(s));

  const call = (route: Call, authorization?: string) =>
    httpCall(s.port, { ...route, ...(authorization === undefined ? {} : { headers: { authorization } }) });

  test('the table has every route, apart from /healthz', () => {
    const known = ROUTES.map(([{ method, url }]) =>
      `${method} ${url}`
        .replace(/\?.*/, '')
        .replace(T, ':taskId')
        .replace(STEP, ':stepId')
        .replace('/nobody/', '/:id/'),
    );
    const found: string[] = [];
    let path: string[] = [];
    for (const line of s.app.printRoutes({ commonPrefix: false }).split('\n')) {
      const [, indent = '', name = '', methods = ''] = /^([ │]*)[├└]── (\S*) \((.*)\)$/.exec(line) ?? [];
      if (name === '') continue;
      path = [...path.slice(0, indent.length / 4), name];
      for (const method of methods.split(', ')) if (method !== 'HEAD') found.push(`${method} ${path.join('')}`);
    }
    expect(found.filter((route) => route !== 'GET /healthz').sort()).toEqual([...known].sort());
  });

  for (const [route, roles] of ROUTES) {
    test(`${route.method} ${route.url.replace(T, ':id').replace(STEP, ':step')}: ${roles.join(', ')} and nobody else`, async () => {
      const secret = s.bearer.admin.slice(0, -1);
      const wrong = [
        undefined,
        '',
        'Bearer',
        'Bearer nonsense',
        s.bearer.admin.replace('Bearer ', 'Basic '),
        `${secret}${s.bearer.admin.endsWith('A') ? 'E' : 'A'}`,
        s.bearer.admin.replace('root', 'toor'),
        `Bearer .${'x'.repeat(43)}`,
        `Bearer ${'x'.repeat(5000)}`,
      ];
      for (const header of wrong) {
        const answer = await call(route, header);
        expect([header, answer.statusCode]).toEqual([header, 401]);
        expect(errorOf(answer).code).toBe('unauthenticated');
        expect(answer.headers['www-authenticate']).toBe('Bearer');
      }
      const gone = await call(route, s.revoked);
      expect([gone.statusCode, errorOf(gone).code]).toEqual([401, 'credential_revoked']);
      for (const role of ROLES) {
        const { statusCode } = await call(route, s.bearer[role]);
        if (roles.includes(role)) expect([role, statusCode === 401 || statusCode === 403]).toEqual([role, false]);
        else expect([role, statusCode]).toEqual([role, 403]);
      }
    });
  }

  test('/healthz needs no credential and says nothing else', async () => {
    const answer = await call({ method: 'GET', url: '/healthz' });
    expect([answer.statusCode, answer.json()]).toEqual([200, { status: 'ok' }]);
  });

  test('a path that does not exist is told only to somebody with a credential', async () => {
    expect((await call({ method: 'GET', url: '/v1/nothing' })).statusCode).toBe(401);
    const answer = await call({ method: 'GET', url: '/v1/nothing' }, s.bearer.worker);
    expect([answer.statusCode, errorOf(answer).code]).toEqual([404, 'not_found']);
  });
});

describe('the wire', () => {
  let s: Site;
  beforeAll(async () => {
    s = await site({ payloadLimitBytes: 2000, resultLimitBytes: 5000 });
  });
  afterAll(() => leave(s));

  const post = (url: string, payload: object, who: keyof Site['bearer'] = 'submitter', headers = {}) =>
    httpCall(s.port, { method: 'POST', url, payload, headers: { authorization: s.bearer[who], ...headers } });
  const get = (url: string, who: keyof Site['bearer'] = 'submitter') =>
    httpCall(s.port, { url, headers: { authorization: s.bearer[who] } });

  test('a task goes in, is leased, completed, and its result comes out; a repetition with its key is answered 200', async () => {
    expect((await post('/v1/worker/hello', hello(), 'worker')).json()).toEqual({ worker: 'w1', leaseTtlMs: 900_000 });
    const body = { kind: 'training', payload: { profile: 'smoke', parameters: { message: 'hello' } } };
    const key = { 'idempotency-key': 'mine-1' };
    const first = await post('/v1/tasks', body, 'submitter', key);
    const { taskId: id } = SubmitAnswer.parse(first.json());
    expect([first.statusCode, first.json()]).toEqual([201, { taskId: id, created: true, waiting: null }]);
    const again = await post('/v1/tasks', body, 'submitter', key);
    expect([again.statusCode, again.json()]).toEqual([200, { taskId: id, created: false, waiting: null }]);
    expect(errorOf(await get(`/v1/tasks/${id}/result`)).code).toBe('not_completed');
    expect((await post('/v1/worker/acquire', { count: 1, waitMs: 0 }, 'worker')).json()).toEqual({
      grants: [{ taskId: id, epoch: 1, kind: 'training', payload: body.payload, ttlMs: 900_000, openJobs: [] }],
    });
    const outcome = {
      type: 'completed',
      taskId: id,
      epoch: epoch(),
      jobId: jobId(),
      result: { message: 'hello' },
      warnings: ['slow'],
    };
    expect((await post('/v1/worker/outcome', outcome, 'worker')).statusCode).toBe(200);
    expect((await get(`/v1/tasks/${id}/result`)).json()).toEqual({
      taskId: id,
      result: { message: 'hello' },
      warnings: ['slow'],
    });
    expect((await post('/v1/worker/outcome', { ...outcome, epoch: 2 }, 'worker')).statusCode).toBe(409);
    expect((await get(`/v1/tasks/${id}`, 'other')).statusCode).toBe(404);
    expect((await get('/metrics', 'viewer')).body).toContain('open_compute_tasks{phase="Completed"} 1');
  });

  test('nothing about a scheduler, a site or a token is in the answers, and in the API description', async () => {
    const sent = await post('/v1/tasks', { kind: 'training', payload: { profile: 'smoke' } });
    const { taskId: id } = SubmitAnswer.parse(sent.json());
    await post('/v1/worker/acquire', { count: 9, waitMs: 0 }, 'worker');
    const opened = { type: 'opened', taskId: id, epoch: 1, jobId: jobId(5), token: '7'.repeat(26) };
    await post('/v1/worker/report', { items: [opened] }, 'worker');
    for (const answer of [
      await get(`/v1/tasks/${id}`),
      await get(`/v1/tasks/${id}/history`),
      await get('/v1/profiles'),
    ]) {
      expect(answer.statusCode).toBe(200);
      expect(answer.body).not.toMatch(/"lab"|token|7{26}/);
    }
    expect((await get('/v1/openapi.json')).body).not.toMatch(/partition|"account"|qos/i);
  });

  test.each([
    ['not JSON', '{"kind":', 'application/json', 400, 'invalid_request'],
    ['another media type', 'kind=x', 'application/x-www-form-urlencoded', 415, 'invalid_request'],
    ['an unknown key', '{"kind":"x","payload":1,"more":1}', 'application/json', 400, 'invalid_request'],
    ['a hostile kind', '{"kind":"gpu; rm -rf /","payload":1}', 'application/json', 400, 'invalid_request'],
    ['a kind with a newline', '{"kind":"a\\nb","payload":1}', 'application/json', 400, 'invalid_request'],
    ['a payload over the limit', `{"kind":"x","payload":"${'y'.repeat(2001)}"}`, 'application/json', 413, 'too_large'],
    ['a body over the limit', `{"kind":"x","payload":"${'y'.repeat(40_000)}"}`, 'application/json', 413, 'too_large'],
    ['a prototype', '{"kind":"x","payload":{"__proto__":{"a":1}}}', 'application/json', 400, 'invalid_request'],
    ['no body', '', 'application/json', 400, 'invalid_request'],
  ])('%s is refused with one error of the usual shape', async (_what, payload, type, status, code) => {
    const answer = await httpCall(s.port, {
      method: 'POST',
      url: '/v1/tasks',
      payload,
      headers: { authorization: s.bearer.submitter, 'content-type': type },
    });
    const error = errorOf(answer);
    expect([answer.statusCode, error.code]).toEqual([status === 415 ? 400 : status, code]);
    expect([error.message, error.hint].every((text) => text.length > 0)).toBe(true);
  });

  test.each([
    ['a path that climbs', '/v1/tasks/../../etc/passwd', 404],
    ['a path that climbs in disguise', '/v1/tasks/%2e%2e%2f%2e%2e%2fetc', 400],
    ['an id that is none', '/v1/tasks/task_1', 400],
    ['an endless id', `/v1/tasks/${'x'.repeat(200)}`, 414],
    ['an endless query', `/v1/tasks?cursor=${'1'.repeat(3000)}`, 414],
    ['a limit over the limit', '/v1/tasks?limit=100000', 400],
    ['an unknown phase', '/v1/tasks?phase=Nonsense', 400],
    ['an unknown parameter', '/v1/tasks?more=1', 400],
    ['broken escapes', '/v1/%zz', 400],
  ])('%s in the URL is refused with a clear error', async (_what, url, status) => {
    const answer = await get(url);
    expect(answer.statusCode).toBe(status);
    expect(errorOf(answer).message).not.toBe('');
  });

  test('an idempotency key with blanks or control characters is refused', async () => {
    const body = { kind: 'x', payload: 1 };
    for (const key of ['a b', 'x'.repeat(201), '']) {
      expect((await post('/v1/tasks', body, 'submitter', { 'idempotency-key': key })).statusCode).toBe(400);
    }
  });

  test('the storage that refuses is 503 and tells no paths; the reason is in the log', async () => {
    s.h.fault = () => {
      throw new StoreError('full', '/secret/place/events.db: the disk is full');
    };
    const answer = await post('/v1/tasks', { kind: 'x', payload: 1 });
    s.h.fault = () => undefined;
    expect([answer.statusCode, errorOf(answer).code]).toEqual([503, 'storage_failed']);
    expect(answer.body).not.toContain('/secret');
    expect(s.h.logged.some(({ message }) => message === 'the storage refused')).toBe(true);
  });

  test('the API description names every schema that it refers to', async () => {
    const document = OpenApi.parse((await get('/v1/openapi.json')).json());
    expect(document.openapi).toBe('3.1.0');
    expect(Object.keys(document.paths)).toContain('/v1/tasks/{taskId}/result');
    expect(Object.keys(document.paths)).toContain('/v1/sessions/{taskId}/steps/{stepId}/output');
    const text = JSON.stringify(document);
    for (const [, name] of text.matchAll(/"#\/components\/schemas\/([^"]+)"/g))
      expect(text).toContain(`"${String(name)}":{`);
  });

  test('a credential is told once, listed without secret or hash, and revoked for good; the last admin stays', async () => {
    const created = await post('/v1/credentials', { role: 'viewer', name: 'auditor' }, 'admin');
    const { id, secret } = NewCredential.parse(created.json());
    expect(created.statusCode).toBe(201);
    expect(Buffer.from(secret, 'base64url')).toHaveLength(32);
    const list = await get('/v1/credentials', 'admin');
    expect(list.body).toContain(id);
    expect(list.body).not.toMatch(new RegExp(`${secret}|hash`));
    const bearer = { authorization: `Bearer ${id}.${secret}` };
    expect((await httpCall(s.port, { url: '/v1/tasks', headers: bearer })).statusCode).toBe(200);
    for (let n = 0; n < 2; n += 1)
      expect((await post(`/v1/credentials/${id}/revoke`, {}, 'admin')).statusCode).toBe(200);
    expect(errorOf(await httpCall(s.port, { url: '/v1/tasks', headers: bearer })).code).toBe('credential_revoked');
    const root = s.credentials.list().find(({ name }) => name === 'root')?.id ?? '';
    expect(errorOf(await post(`/v1/credentials/${root}/revoke`, {}, 'admin')).code).toBe('last_admin');
    expect((await get('/v1/credentials', 'admin')).statusCode).toBe(200);
  });
});
