import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { connect } from 'node:net';
import { ErrorBody, SubmitAnswer } from '../../src/coordinator/api.js';
import { jobId } from '../support/ids.js';
import { hello, profile } from '../coordinator/harness.js';
import { httpCall } from '../coordinator/http-call.js';
import { WireSite } from './wire-site.js';

// On a machine that may be busy.
jest.setTimeout(60_000);

const KIB = 1024;
const MIB = 1024 * KIB;

let s: WireSite;
beforeAll(async () => {
  s = await WireSite.start();
});
afterAll(() => s.close());

const codeOf = (body: string): string => ErrorBody.parse(JSON.parse(body)).error.code;
const nested = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;

/** Sends bytes as they are, and gives all that comes back until the other side hangs up, or has answered once. */
function raw(text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let answer = '';
    const socket = connect(s.port, '127.0.0.1', () => socket.write(text));
    socket.setEncoding('utf8');
    socket.on('data', (piece: string) => {
      answer += piece;
      if (/\r\n\r\n./s.test(answer)) socket.end();
    });
    socket.on('error', reject);
    socket.on('close', () => {
      resolve(answer);
    });
  });
}

describe('the size of a body', () => {
  /** Largest body that each route reads, bytes. A new route that takes one without a row fails the test below. */
  const LIMITS: Readonly<Record<string, number>> = {
    'POST /v1/tasks': 272 * KIB,
    'POST /v1/tasks/:taskId/cancel': 64 * KIB,
    'POST /v1/tasks/:taskId/abandon': 64 * KIB,
    'POST /v1/worker/hello': 16 * MIB,
    'POST /v1/worker/acquire': 64 * KIB,
    'POST /v1/worker/renew': 16 * MIB,
    'POST /v1/worker/report': 16 * MIB,
    'POST /v1/worker/outcome': 4 * MIB + 512 * KIB,
    'POST /v1/worker/logs': 7 * MIB,
    'POST /v1/worker/sessions/calls': 64 * KIB,
    'POST /v1/worker/sessions/report': 8 * MIB,
    'POST /v1/sessions/:taskId/steps': 592 * KIB,
    'POST /v1/sessions/:taskId/steps/:stepId/stdin': Math.ceil((256 * KIB * 4) / 3) + 16 * KIB,
    'POST /v1/sessions/:taskId/steps/:stepId/cancel': 64 * KIB,
    'POST /v1/credentials': 64 * KIB,
    'POST /v1/credentials/:id/revoke': 64 * KIB,
  };

  test('every route that takes a body has a row', () => {
    expect(
      s
        .routes()
        .filter((route) => !route.startsWith('GET '))
        .sort(),
    ).toEqual(Object.keys(LIMITS).sort());
  });

  test.each(Object.entries(LIMITS))('%s: one byte more than %d is refused before it is read', async (route, limit) => {
    const url = route
      .replace('POST ', '')
      .replace(':taskId', `task_${'0'.repeat(26)}`)
      .replace(':stepId', `step_${'0'.repeat(26)}`)
      .replace(':id', 'x');
    const head = (authorization: string, length: number): string =>
      `POST ${url} HTTP/1.1\r\nhost: x\r\n${authorization}content-type: application/json\r\ncontent-length: ${String(length)}\r\n\r\n`;
    const bearer = `authorization: ${s.bearer.root}\r\n`;
    // Not a byte of the body is ever sent.
    const refused = await raw(head(bearer, limit + 1));
    expect(refused).toMatch(/^HTTP\/1\.1 413 /);
    expect(refused).toContain('"too_large"');
    // Without a credential nothing is read at all, however small it is.
    expect(await raw(head('', 10))).toMatch(/^HTTP\/1\.1 401 /);
  });

  test('a body without a length is cut off at the same limit', async () => {
    const chunk = 'x'.repeat(32 * KIB);
    const chunks = `8000\r\n${chunk}\r\n`.repeat(10);
    const head = `POST /v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: ${s.bearer.alice}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n`;
    expect(await raw(`${head}${chunks}0\r\n\r\n`)).toMatch(/^HTTP\/1\.1 413 /);
  });
});

describe('what is not quite HTTP', () => {
  const get = (headers: string): string =>
    `GET /v1/whoami HTTP/1.1\r\nhost: x\r\nauthorization: ${s.bearer.alice}\r\n${headers}\r\n`;

  test('headers over 16 KiB in all, or a request line of its own, are refused', async () => {
    expect(await raw(get(`x-filler: ${'y'.repeat(17 * KIB)}\r\n`))).toMatch(/^HTTP\/1\.1 431 .*"headers_too_large"/s);
    expect(await raw(`GET /${'a'.repeat(17 * KIB)} HTTP/1.1\r\nhost: x\r\n\r\n`)).toMatch(/^HTTP\/1\.1 431 /);
    expect(await raw('nonsense\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 /);
  });

  test('two lengths, or a length beside chunks, are refused: nothing can be smuggled behind a proxy', async () => {
    for (const headers of [
      'content-length: 5\r\ncontent-length: 6\r\n',
      'content-length: 5\r\ntransfer-encoding: chunked\r\n',
      'transfer-encoding: chunked, identity\r\n',
    ]) {
      expect([headers, /^HTTP\/1\.1 400 /.test(await raw(get(headers)))]).toEqual([headers, true]);
    }
  });

  test('a URL over 2,048 characters is refused', async () => {
    const answer = await s.call('alice', { url: `/v1/tasks?x=${'a'.repeat(2048)}` });
    expect([answer.statusCode, codeOf(answer.body)]).toEqual([414, 'url_too_long']);
  });
});

describe('the depth of JSON', () => {
  const depth = { fine: 100, tooDeep: 101, absurd: 50_000 };

  test('a payload of 100 levels is taken, deeper ones are refused, also absurd ones', async () => {
    for (const [levels, status] of [
      [depth.fine, 201],
      [depth.tooDeep, 400],
      [depth.absurd, 400],
    ] as const) {
      const payload = `{"kind":"other","payload":${nested(levels)}}`;
      const answer = await s.call('alice', { method: 'POST', url: '/v1/tasks', payload });
      expect([levels, answer.statusCode]).toEqual([levels, status]);
    }
  });

  test('the same of a result, which can then be delivered as a failure', async () => {
    await s.post('w1', '/v1/worker/hello', hello());
    const sent = await s.post('alice', '/v1/tasks', { kind: 'training', payload: { profile: 'smoke' } });
    const { taskId } = SubmitAnswer.parse(sent.json());
    await s.post('w1', '/v1/worker/acquire', { count: 100, waitMs: 0 });
    for (const levels of [depth.tooDeep, depth.absurd]) {
      const payload = `{"type":"completed","taskId":"${taskId}","epoch":1,"jobId":"${jobId()}","warnings":[],"result":${nested(levels)}}`;
      const answer = await s.call('w1', { method: 'POST', url: '/v1/worker/outcome', payload });
      expect([levels, answer.statusCode, codeOf(answer.body)]).toEqual([levels, 422, 'invalid_result']);
    }
    const failed = { type: 'failed', taskId, epoch: 1, jobId: jobId(), reason: 'RESULT_INVALID', detail: 'too deep' };
    expect((await s.post('w1', '/v1/worker/outcome', failed)).statusCode).toBe(200);
  });

  test('a parameters schema that is absurdly deep is refused, and the coordinator goes on', async () => {
    for (const levels of [depth.tooDeep, depth.absurd]) {
      const body = JSON.stringify(hello({ profiles: [profile('deep', { const: 'HERE' })] }));
      const payload = body.replace('"HERE"', nested(levels));
      const answer = await s.call('w2', { method: 'POST', url: '/v1/worker/hello', payload });
      expect([levels, answer.statusCode, codeOf(answer.body)]).toEqual([levels, 422, 'invalid_profile']);
    }
    expect((await s.call('viewer', { url: '/v1/profiles' })).statusCode).toBe(200);
  });

  test('a deep body is refused by every route, and by none with an error of its own', async () => {
    for (const route of s.routes().filter((each) => !each.startsWith('GET '))) {
      const url = route
        .replace('POST ', '')
        .replace(':taskId', `task_${'0'.repeat(26)}`)
        .replace(':stepId', `step_${'0'.repeat(26)}`)
        .replace(':id', 'x');
      const answer = await s.call('root', { method: 'POST', url, payload: nested(30_000) });
      expect([route, answer.statusCode < 500]).toEqual([route, true]);
    }
  });
});

test('a method that no route has is not found, whatever it is', async () => {
  for (const method of ['DELETE', 'PUT', 'PATCH', 'OPTIONS', 'TRACE', 'PROPFIND'])
    expect(await raw(`${method} /v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: ${s.bearer.root}\r\n\r\n`)).toMatch(
      /^HTTP\/1\.1 404 /,
    );
});

test('no answer invites another page to read it, or names what serves it', async () => {
  const answer = await httpCall(s.port, { url: '/healthz', headers: { origin: 'https://elsewhere.example' } });
  expect(Object.keys(answer.headers).filter((name) => /^access-control|server|powered/.test(name))).toEqual([]);
});
