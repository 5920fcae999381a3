import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { chmod, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer, type AddressInfo, type Server as NetServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoordinatorClient, type ClientAnswer, type WatchItem } from '../../src/coordinator/client.js';
import { MemoryCredentials } from '../../src/coordinator/credential-store.js';
import {
  readCredentialsFile,
  writeCredentialsFile,
  type CredentialsFile,
} from '../../src/coordinator/credentials-file.js';
import { Credentials } from '../../src/coordinator/credentials.js';
import { createHttp } from '../../src/coordinator/http.js';
import { startServer, type Server } from '../../src/coordinator/server.js';
import { eventData } from '../../src/coordinator/sse-client.js';
import { WorkerClient } from '../../src/coordinator/worker-client.js';
import { MemoryEventStore } from '../../src/events/memory-store.js';
import { systemClock } from '../../src/runtime/clock.js';
import { silentLog } from '../../src/runtime/log.js';
import { systemRandom } from '../../src/runtime/random.js';
import { epoch, jobId, stepId, taskId, token } from '../support/ids.js';
import { eventually } from '../support/wait.js';
import { ADMIN, answered, Harness, hello, profile, sessionView, value } from './harness.js';
import { hangUp } from './http-call.js';

const deps = { clock: systemClock, random: systemRandom };
const newStore = (): MemoryEventStore => new MemoryEventStore({ writer: 'test', nowMs: () => systemClock.nowMs() });

function given<T>(answer: ClientAnswer<T>): T {
  if (answer.kind === 'answered') return answer.value;
  throw new Error(answer.kind === 'refused' ? `${answer.code}: ${answer.message}` : answer.detail);
}

const sessionOfNobody = taskId(9);
const portOf = (server: NetServer): number => (server.address() as AddressInfo).port;
const listen = (server: NetServer): Promise<void> =>
  new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'coordinator-'));
});
afterAll(() => rm(scratch, { recursive: true }));

describe('a coordinator and its clients', () => {
  let stateDir: string;
  let store: MemoryEventStore;
  let server: Server;
  let admin: CredentialsFile;
  const open = (port: number): Promise<Server> =>
    startServer({ ...deps, stateDir, store, log: silentLog, version: '1', host: '127.0.0.1', port, publicUrl: null });
  const credential = async (role: 'submitter' | 'worker' | 'viewer', name: string): Promise<CredentialsFile> => {
    const { id, secret } = await server.credentials.create({ role, name });
    return { url: server.url, id, secret };
  };

  beforeAll(async () => {
    stateDir = await mkdtemp(join(scratch, 'state-'));
    store = newStore();
    server = await open(0);
    admin = await readCredentialsFile(join(stateDir, 'admin.json'));
  });
  afterAll(() => server.close());

  test('the first start writes a private file for the administrator, and only the first', async () => {
    expect(server.adminFile).toBe(join(stateDir, 'admin.json'));
    expect(((await stat(join(stateDir, 'admin.json'))).mode & 0o777).toString(8)).toBe('600');
    expect(((await stat(join(stateDir, 'credentials.json'))).mode & 0o777).toString(8)).toBe('600');
    expect(await readFile(join(stateDir, 'credentials.json'), 'utf8')).not.toContain(admin.secret);
    const client = new CoordinatorClient(admin, deps);
    expect(given(await client.whoami())).toMatchObject({ name: 'admin', role: 'admin' });
    client.close();
  });

  test('a task goes from a client to a worker and back; a long poll and a watch hear of it at once', async () => {
    const worker = new WorkerClient(await credential('worker', 'w1'), systemClock);
    const client = new CoordinatorClient(await credential('submitter', 'alice'), deps);
    expect(answered(await worker.hello(hello()))).toMatchObject({ worker: 'w1' });
    const waiting = worker.acquire({ count: 5, waitMs: 30_000 });
    const { taskId } = given(await client.submit({ kind: 'training', payload: { profile: 'smoke' } }));
    const [grant] = answered(await waiting);
    expect(grant).toMatchObject({ taskId, epoch: 1 });
    const seen: string[] = [];
    const watching = (async () => {
      for await (const item of client.watchTask(taskId, new AbortController().signal)) {
        seen.push(item.kind === 'change' ? `${item.change.event} ${item.change.phase}` : item.kind);
      }
    })();
    const opened = { type: 'opened', taskId, epoch: epoch(), jobId: jobId(), token: token() } as const;
    expect(answered(await worker.report([opened])).verdicts).toEqual(['ok']);
    answered(await worker.putLogs({ taskId, epoch: epoch(), stdout: 'out', stderr: 'err' }));
    const outcome = { type: 'completed', taskId, jobId: jobId(), result: { message: 'hi' } } as const;
    expect(await worker.outcome({ ...outcome, epoch: epoch(2), warnings: [] })).toMatchObject({ kind: 'stale' });
    expect(answered(await worker.outcome({ ...outcome, epoch: epoch(), warnings: [] }))).toBeNull();
    await watching;
    expect(seen).toEqual([
      'task.submitted Queued',
      'task.leased Leased',
      'task.jobOpened Leased',
      'task.completed Completed',
    ]);
    expect(given(await client.result(taskId))).toEqual({ taskId, result: { message: 'hi' }, warnings: [] });
    expect(given(await client.logs(taskId))).toMatchObject({ stdout: 'out', stderr: 'err' });
    expect(given(await client.list({ phase: 'Completed', limit: 5 })).tasks.map((task) => task.taskId)).toEqual([
      taskId,
    ]);
    expect(given(await client.history(taskId)).changes).toHaveLength(4);
    expect(given(await client.cancel(taskId)).phase).toBe('Completed');
    expect(await client.listCredentials()).toMatchObject({ kind: 'refused', status: 403, code: 'forbidden' });
    expect(((await stat(join(stateDir, 'output', `${taskId}.json`))).mode & 0o777).toString(8)).toBe('600');
    worker.close();
    client.close();
  });

  test('a step goes from a client to a worker and its output back, byte for byte; input as well', async () => {
    const worker = new WorkerClient(await credential('worker', 'w9'), systemClock);
    const client = new CoordinatorClient(await credential('submitter', 'carol'), deps);
    const kinds = ['session'];
    answered(await worker.hello(hello({ kinds, profiles: [profile('desk', null, kinds)] })));
    const { taskId } = given(await client.submit({ kind: 'session', payload: { profile: 'desk' } }));
    answered(await worker.acquire({ count: 1, waitMs: 30_000 }));
    const opened = { type: 'opened', taskId, epoch: epoch(), jobId: jobId(), token: token() } as const;
    answered(await worker.report([opened]));
    const view = sessionView({ taskId, profile: 'desk' });
    answered(await worker.sessions.report({ views: [{ epoch: epoch(), view }], steps: [] }));
    expect(given(await client.session(taskId)).session).toEqual(view);
    expect(given(await client.sessions()).sessions).toHaveLength(1);

    const polling = worker.sessions.calls({ desk: null, after: 0, waitMs: 30_000 });
    const id = stepId();
    const request = { mode: 'exec', stepId: id, argv: ['cat'], timeLimitS: null, rank: 1, stdin: true } as const;
    const step = { ...request, argv: ['cat', 'ä\n'], outputLimitBytes: 1000 };
    expect(given(await client.requestStep(taskId, step))).toEqual({ stepId: id, created: true, epoch: 1 });
    expect(given(await client.requestStep(taskId, step, epoch()))).toMatchObject({ created: false });
    const { desk, calls } = answered(await polling);
    expect(calls).toEqual([{ seq: 1, call: { type: 'step', taskId, by: 'carol', request: step } }]);
    const bytes = Buffer.from([0, 255, 10, 27, 128]).toString('base64');
    expect(given(await client.stepInput(taskId, id, { offset: 0, data: bytes, end: true }))).toEqual({ taken: 5 });
    expect(given(await client.cancelStep(taskId, id))).toEqual({ stepId: id, ended: false });
    const more = answered(await worker.sessions.calls({ desk, after: 1, waitMs: 0 }));
    expect(more.calls.map(({ seq, call }) => [seq, call.type])).toEqual([
      [2, 'stdin'],
      [3, 'cancel'],
    ]);
    const reading = client.stepOutput(taskId, id, { stdout: 0, stderr: 0, waitMs: 30_000 });
    const piece = { stream: 'stdout', offset: 0, data: bytes } as const;
    const end = { how: 'exited', exitCode: 0, signal: null, detail: '', droppedBytes: 0 } as const;
    const news = { taskId, epoch: epoch(), stepId: id, pieces: [piece], notice: null, stdinTaken: 0, sizes: null, end };
    expect(answered(await worker.sessions.report({ views: [], steps: [news] })).taken).toEqual([
      { stdout: 5, stderr: 0, ended: true },
    ]);
    expect(given(await reading)).toEqual({ pieces: [piece], notice: null, waiting: null, end, sizes: null });
    expect(await client.session(sessionOfNobody)).toMatchObject({ kind: 'refused', status: 404 });
    worker.close();
    client.close();
  });

  test('a watch goes on over a restart of the coordinator, and tells every change once', async () => {
    const client = new CoordinatorClient(admin, deps);
    const over = new AbortController();
    const seen: WatchItem[] = [];
    const watching = (async () => {
      for await (const item of client.watchAll(over.signal, await store.lastPosition())) seen.push(item);
    })();
    const submit = async () => given(await client.submit({ kind: 'other', payload: 1 })).taskId;
    const first = await submit();
    await eventually(() => (seen.length === 1 ? true : null));
    await server.close();
    store = store.reopen();
    server = await open(Number(new URL(server.url).port));
    expect(server.adminFile).toBeNull();
    const second = await submit();
    await eventually(() => (seen.filter(({ kind }) => kind === 'change').length === 2 ? true : null));
    over.abort();
    await watching;
    expect(seen.flatMap((item) => (item.kind === 'change' ? [item.change.taskId] : []))).toEqual([first, second]);
    expect(seen.some(({ kind }) => kind === 'interrupted')).toBe(true);
    client.close();
  });

  test('a worker that the coordinator has forgotten says hello by itself', async () => {
    const worker = new WorkerClient(await credential('worker', 'forgotten'), systemClock);
    answered(await worker.hello(hello({ kinds: ['none'] })));
    const [forgotten] = server.credentials.list().filter(({ name }) => name === 'forgotten');
    await server.coordinator.core.workers.forget(forgotten?.id ?? '');
    expect(answered(await worker.acquire({ count: 1, waitMs: 0 }))).toEqual([]);
    worker.close();
  });

  test('a revoked credential ends the watch that it opened, and everything else', async () => {
    const file = await credential('viewer', 'leaving');
    const client = new CoordinatorClient(file, deps);
    const items = client.watchAll(new AbortController().signal);
    const ending = (async () => {
      const kinds: string[] = [];
      for await (const item of items) kinds.push(item.kind === 'refused' ? item.code : item.kind);
      return kinds;
    })();
    await eventually(async () => ((await watchers(server.url, admin)) === 1 ? true : null));
    await server.credentials.revoke(file.id);
    expect(await ending).toEqual(['interrupted', 'credential_revoked']);
    expect(await client.list()).toMatchObject({ kind: 'refused', status: 401, code: 'credential_revoked' });
    client.close();
  });

  test('a submission whose answer is lost is sent again with its key, and is one task', async () => {
    let cuts = 1;
    const proxy = createServer((socket) => {
      const upstream = connect(Number(new URL(server.url).port), '127.0.0.1');
      socket.pipe(upstream);
      upstream.on('data', (data) => {
        if (cuts > 0) {
          cuts -= 1;
          socket.destroy();
          upstream.destroy();
        } else socket.write(data);
      });
      for (const one of [socket, upstream])
        one.on('error', () => undefined).on('close', () => (socket.destroy(), upstream.destroy()));
    });
    await listen(proxy);
    const before = await store.lastPosition();
    const client = new CoordinatorClient({ ...admin, url: `http://127.0.0.1:${String(portOf(proxy))}` }, deps);
    const sent = given(await client.submit({ kind: 'other', payload: { lost: true } }));
    expect([cuts, sent.created]).toEqual([0, false]);
    expect(await store.lastPosition()).toBe(before + 1);
    client.close();
    proxy.close();
  });

  test('payloads that together are more than the client reads of one answer all arrive', async () => {
    const worker = new WorkerClient(await credential('worker', 'bulk'), systemClock);
    answered(await worker.hello(hello({ kinds: ['bulk'], profiles: [] })));
    const task = { kind: 'bulk', payload: 'x'.repeat(255 * 1024) };
    const ids: string[] = [];
    for (let n = 0; n < 270; n += 1) ids.push(value(await server.coordinator.client.submit(ADMIN, task, null)).taskId);
    const arrived: string[] = [];
    for (let grants; (grants = answered(await worker.acquire({ count: 1000, waitMs: 0 }))).length > 0;)
      arrived.push(...grants.map((grant) => grant.taskId));
    expect(arrived).toEqual(ids);
    worker.close();
  });

  test('a result of four megabytes passes, one over the limit is refused with its status', async () => {
    const worker = new WorkerClient(await credential('worker', 'large'), systemClock);
    const client = new CoordinatorClient(admin, deps);
    answered(await worker.hello(hello({ kinds: ['large'], profiles: [] })));
    const { taskId } = given(await client.submit({ kind: 'large', payload: null }));
    answered(await worker.acquire({ count: 1, waitMs: 0 }));
    const outcome = (size: number) =>
      worker.outcome({
        type: 'completed',
        taskId,
        epoch: epoch(),
        jobId: jobId(3),
        result: 'x'.repeat(size),
        warnings: [],
      });
    expect(await outcome(4 * 1024 * 1024)).toMatchObject({ kind: 'refused', status: 413 });
    expect(await outcome(6 * 1024 * 1024)).toMatchObject({ kind: 'refused', status: 413 });
    expect(answered(await outcome(4 * 1024 * 1024 - 2))).toBeNull();
    expect(given(await client.result(taskId)).result).toHaveLength(4 * 1024 * 1024 - 2);
    worker.close();
    client.close();
  });
});

async function watchers(url: string, { id, secret }: CredentialsFile): Promise<number> {
  const answer = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${id}.${secret}` } });
  const [, count] = /^open_compute_watchers (\d+)$/m.exec(await answer.text()) ?? [];
  return Number(count);
}

describe('what a client makes of answers that do not count', () => {
  test('nobody there, a page of HTML, an answer of another shape, and silence are all unreachable', async () => {
    const pages = createHttpServer((request, response) => {
      if (request.url?.endsWith('/renew') === true) return;
      response.writeHead(request.url?.endsWith('/report') === true ? 502 : 200, { 'content-type': 'text/html' });
      response.end(request.url?.endsWith('/hello') === true ? '{"hello":"world"}' : '<html>welcome</html>');
    });
    await listen(pages);
    const file = { id: 'a', secret: 'b' };
    const h = await Harness.start();
    const worker = new WorkerClient({ ...file, url: `http://127.0.0.1:${String(portOf(pages))}` }, h.clock);
    expect(await worker.hello(hello())).toMatchObject({ kind: 'unreachable' });
    expect(await worker.acquire({ count: 1, waitMs: 0 })).toMatchObject({ kind: 'unreachable' });
    expect(await worker.report([])).toMatchObject({ kind: 'unreachable' });
    const silent = worker.renew([]);
    await eventually(() => (h.clock.nextWakeAtMs() === null ? null : true));
    await h.clock.advance(30_000);
    expect(await silent).toMatchObject({ kind: 'unreachable', detail: 'no answer within 30000 ms' });
    worker.close();
    pages.closeAllConnections();
    pages.close();
    const nobody = new WorkerClient({ ...file, url: 'http://127.0.0.1:9' }, systemClock);
    expect(await nobody.hello(hello())).toMatchObject({
      kind: 'unreachable',
      detail: expect.stringContaining('ECONNREFUSED') as unknown,
    });
    nobody.close();
  });

  test('a result and an output may take as long on their way as the coordinator listens, two minutes', async () => {
    const mute = createHttpServer(() => undefined);
    await listen(mute);
    const h = await Harness.start();
    const file = { id: 'a', secret: 'b', url: `http://127.0.0.1:${String(portOf(mute))}` };
    const worker = new WorkerClient(file, h.clock);
    const lease = { taskId: taskId(), epoch: epoch() };
    for (const send of [
      () => worker.outcome({ type: 'completed', ...lease, jobId: jobId(), result: null, warnings: [] }),
      () => worker.putLogs({ ...lease, stdout: '', stderr: '' }),
    ]) {
      const answer = send();
      await eventually(() => (h.clock.nextWakeAtMs() === null ? null : true));
      await h.clock.advance(120_000);
      expect(await answer).toMatchObject({ kind: 'unreachable', detail: 'no answer within 120000 ms' });
    }
    worker.close();
    mute.closeAllConnections();
    mute.close();
  });

  test('events are read whatever the pieces they arrive in', async () => {
    const text =
      'retry: 2000\n\nid: 1\nevent: change\ndata: {"a":1}\n\n: still here\n\nid: 2\ndata: {"b":\ndata: 2}\n\n';
    for (const size of [1, 2, 3, 7, 1000]) {
      const pieces = (async function* () {
        for (let at = 0; at < text.length; at += size) yield await Promise.resolve(text.slice(at, at + size));
      })();
      const found: string[] = [];
      for await (const data of eventData(pieces)) found.push(data);
      expect(found).toEqual(['{"a":1}', '{"b":\n2}']);
    }
  });
});

describe('clients that are slow or broken', () => {
  const raw = (port: number, text: string): Promise<{ socket: Socket; answer: Promise<string> }> =>
    new Promise((resolve) => {
      const socket = connect(port, '127.0.0.1', () => {
        socket.write(text);
        resolve({ socket, answer });
      });
      const answer = new Promise<string>((done) => {
        let heard = '';
        socket.on('data', (data) => (heard += data.toString()));
        socket.on('error', () => undefined);
        socket.on('close', () => {
          done(heard);
        });
      });
    });

  test('one that never finishes its headers or its body is cut off; too many headers are refused', async () => {
    const h = await Harness.start();
    const credentials = await Credentials.open(new MemoryCredentials(), h.clock, h.random);
    const { id, secret } = await credentials.create({ role: 'admin', name: 'root' });
    const timeouts = { headersMs: 200, requestMs: 400, checkMs: 50 };
    const { coordinator, clock, log } = h;
    const app = await createHttp({ coordinator, credentials, clock, log, version: '1', timeouts });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const port = portOf(app.server);
    const headers = await raw(port, 'GET /healthz HTTP/1.1\r\nhost: x\r\n');
    const head = `POST /v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${id}.${secret}\r\n`;
    const body = await raw(port, `${head}content-type: application/json\r\ncontent-length: 50\r\n\r\n{"kind":`);
    expect(await headers.answer).toMatch(/^HTTP\/1\.1 408 .*"the request came too slowly"/s);
    expect(await body.answer).toMatch(/^HTTP\/1\.1 408 /);
    const many = await raw(port, `GET /healthz HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`);
    expect(await many.answer).toMatch(/^HTTP\/1\.1 431 .*"headers_too_large"/s);
    const nonsense = await raw(port, 'HELLO\r\n\r\n');
    expect(await nonsense.answer).toMatch(/^HTTP\/1\.1 400 .*"invalid_request"/s);
    await app.close();
  });

  test('one that watches and does not read is dropped; what waits for it stays bounded', async () => {
    const h = await Harness.start({ changesKept: 100 });
    const credentials = await Credentials.open(new MemoryCredentials(), h.clock, h.random);
    const { id, secret } = await credentials.create({ role: 'admin', name: 'root' });
    const { coordinator, clock, log } = h;
    const app = await createHttp({ coordinator, credentials, clock, log, version: '1' });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const url = `http://127.0.0.1:${String(portOf(app.server))}`;
    const bearer = `authorization: Bearer ${id}.${secret}\r\n`;
    const { socket, answer } = await raw(portOf(app.server), `GET /v1/changes HTTP/1.1\r\nhost: x\r\n${bearer}\r\n`);
    socket.pause();
    await eventually(async () => ((await watchers(url, { url, id, secret })) === 1 ? true : null));
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    const detail = 'x'.repeat(1900);
    for (let n = 0; n < 8000; n += 200) {
      const items = Array.from({ length: 200 }, (_, i) => ({
        type: 'progressed' as const,
        taskId,
        epoch: epoch(),
        jobId: jobId(),
        phase: 'Running' as const,
        reason: null,
        detail: `${String(n + i)} ${detail}`,
      }));
      await h.coordinator.workerPort({ id: 'w1-1', name: 'w1', role: 'worker' }).report(items);
    }
    await eventually(() => (h.clock.nextWakeAtMs() === null ? null : true));
    expect(await watchers(url, { url, id, secret })).toBe(1);
    await eventually(async () => {
      await h.clock.advance(31_000);
      return (await watchers(url, { url, id, secret })) === 0 ? true : null;
    });
    socket.resume();
    expect((await answer).length).toBeLessThan(8000 * 2000);
    await app.close();
  });
});

describe('a credentials file', () => {
  const good: CredentialsFile = { url: 'http://127.0.0.1:1', id: 'a-1', secret: 'marker-secret' };

  test('is written with mode 0600, read back, and never overwritten', async () => {
    const path = join(scratch, 'good.json');
    await writeCredentialsFile(path, good);
    expect(((await stat(path)).mode & 0o777).toString(8)).toBe('600');
    expect(await readCredentialsFile(path)).toEqual(good);
    await expect(writeCredentialsFile(path, { ...good, id: 'other' })).rejects.toThrow(`${path} exists already`);
    expect(await readCredentialsFile(path)).toEqual(good);
    const link = join(scratch, 'link.json');
    await symlink(join(scratch, 'elsewhere.json'), link);
    await expect(writeCredentialsFile(link, good)).rejects.toThrow('exists already');
  });

  test.each([
    ['missing', null, 0o600, 'does not exist'],
    ['readable by others', JSON.stringify(good), 0o640, 'chmod 600'],
    ['not JSON', 'marker-secret{', 0o600, 'is not JSON'],
    ['of another shape', '{"url":"http://x","secret":"marker-secret"}', 0o600, 'id: invalid_type'],
    ['with a URL that is none', JSON.stringify({ ...good, url: 'ftp://x' }), 0o600, 'url'],
    ['with more keys', JSON.stringify({ ...good, more: 1 }), 0o600, 'unrecognized_keys'],
  ])(
    'that is %s is refused; the message names the file and quotes nothing of it',
    async (what, text, mode, message) => {
      const path = join(scratch, `${what.replaceAll(' ', '-')}.json`);
      if (text !== null) await writeFile(path, text);
      if (text !== null) await chmod(path, mode);
      const error = await readCredentialsFile(path).then(
        () => new Error('it was read'),
        (thrown: unknown) => (thrown instanceof Error ? thrown : new Error('not an Error')),
      );
      expect(error.message).toContain(path);
      expect(error.message).toContain(message);
      expect(`${error.message} ${String(error.stack)}`).not.toContain('marker-secret');
    },
  );

  test('of a first start that died before it kept the credential is let in by the next start', async () => {
    const stateDir = await mkdtemp(join(scratch, 'died-'));
    await writeCredentialsFile(join(stateDir, 'admin.json'), { ...good, id: 'admin-half', secret: 's'.repeat(43) });
    const options = { ...deps, stateDir, store: newStore(), log: silentLog, version: '1', host: '127.0.0.1', port: 0 };
    const server = await startServer({ ...options, publicUrl: null });
    const client = new CoordinatorClient({ url: server.url, id: 'admin-half', secret: 's'.repeat(43) }, deps);
    expect(given(await client.whoami()).role).toBe('admin');
    client.close();
    hangUp();
    await server.close();
  });
});
