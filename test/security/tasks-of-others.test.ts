import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { ErrorBody, SubmitAnswer, TaskView } from '../../src/coordinator/api.js';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { jobId, stepId, taskId, token } from '../support/ids.js';
import { hello, profile, sessionView } from '../coordinator/harness.js';
import type { Call } from '../coordinator/http-call.js';
import { WireSite } from './wire-site.js';

// On a machine that may be busy.
jest.setTimeout(60_000);

const NOBODYS = taskId(99);
const STEP = stepId(9);
const RUN = {
  ...{ mode: 'run', stepId: STEP, argv: ['true'], timeLimitS: null, outputLimitBytes: 1 },
  ...{ nodes: null, tasks: null, cpusPerTask: null },
};

let s: WireSite;
beforeAll(async () => {
  s = await WireSite.start();
});
afterAll(() => s.close());

const kindOf = (route: string): string => (route.includes('/sessions') ? 'session' : 'training');

const submitted = async (kind = 'training'): Promise<TaskId> => {
  const sent = await s.post('alice', '/v1/tasks', { kind, payload: { profile: 'smoke' } });
  return SubmitAnswer.parse(sent.json()).taskId;
};

describe('a submitter sees its own tasks only', () => {
  /** Every route that names a task for people, as it is called. A new one without a row fails the test below. */
  const ROUTES: Readonly<Record<string, (id: TaskId) => Call>> = {
    'GET /v1/tasks/:taskId': (id) => ({ url: `/v1/tasks/${id}` }),
    'GET /v1/tasks/:taskId/result': (id) => ({ url: `/v1/tasks/${id}/result` }),
    'GET /v1/tasks/:taskId/logs': (id) => ({ url: `/v1/tasks/${id}/logs` }),
    'GET /v1/tasks/:taskId/history': (id) => ({ url: `/v1/tasks/${id}/history` }),
    'GET /v1/tasks/:taskId/changes': (id) => ({ url: `/v1/tasks/${id}/changes` }),
    'POST /v1/tasks/:taskId/cancel': (id) => ({ method: 'POST', url: `/v1/tasks/${id}/cancel` }),
    'POST /v1/tasks/:taskId/abandon': (id) => ({ method: 'POST', url: `/v1/tasks/${id}/abandon` }),
    'GET /v1/sessions/:taskId': (id) => ({ url: `/v1/sessions/${id}` }),
    'POST /v1/sessions/:taskId/steps': (id) => ({ method: 'POST', url: `/v1/sessions/${id}/steps`, payload: RUN }),
    'GET /v1/sessions/:taskId/steps/:stepId/output': (id) => ({ url: `/v1/sessions/${id}/steps/${STEP}/output` }),
    'POST /v1/sessions/:taskId/steps/:stepId/stdin': (id) => ({
      method: 'POST',
      url: `/v1/sessions/${id}/steps/${STEP}/stdin`,
      payload: { offset: 0, data: '', end: true },
    }),
    'POST /v1/sessions/:taskId/steps/:stepId/cancel': (id) => ({
      method: 'POST',
      url: `/v1/sessions/${id}/steps/${STEP}/cancel`,
    }),
  };

  test('every route that names a task has a row', () => {
    expect(
      s
        .routes()
        .filter((route) => route.includes(':taskId'))
        .sort(),
    ).toEqual(Object.keys(ROUTES).sort());
  });

  test.each(Object.entries(ROUTES))(
    "%s: another's task is as if it were not there, to the last word",
    async (route, call) => {
      const theirs = await submitted(kindOf(route));
      const before = await s.call('alice', { url: `/v1/tasks/${theirs}` });
      const refused = await s.call('bob', call(theirs));
      const nothing = await s.call('bob', call(NOBODYS));
      expect([refused.statusCode, ErrorBody.parse(refused.json()).error.code]).toEqual([404, 'not_found']);
      expect(refused.body.replaceAll(theirs, NOBODYS)).toBe(nothing.body);
      expect((await s.call('alice', { url: `/v1/tasks/${theirs}` })).json()).toEqual(before.json());
    },
  );

  test('its list has its own tasks; the same key of somebody else is another task', async () => {
    const theirs = await submitted();
    expect((await s.call('bob', { url: '/v1/tasks' })).body).not.toContain(theirs);
    expect((await s.call('viewer', { url: '/v1/tasks' })).body).toContain(theirs);
    const request = { kind: 'training', payload: { profile: 'smoke' } };
    const ids = await Promise.all(
      (['alice', 'bob', 'root'] as const).map(async (who) => {
        const sent = await s.call(who, {
          method: 'POST',
          url: '/v1/tasks',
          payload: request,
          headers: { 'idempotency-key': 'one-key' },
        });
        expect(sent.statusCode).toBe(201);
        return SubmitAnswer.parse(sent.json()).taskId;
      }),
    );
    expect(new Set(ids).size).toBe(3);
  });

  test('a viewer may look at a task and not decide about it', async () => {
    const id = await submitted();
    expect((await s.call('viewer', { url: `/v1/tasks/${id}` })).statusCode).toBe(200);
    for (const verb of ['cancel', 'abandon']) {
      const refused = await s.call('viewer', { method: 'POST', url: `/v1/tasks/${id}/${verb}` });
      expect([verb, refused.statusCode]).toEqual([verb, 403]);
    }
    expect(TaskView.parse((await s.call('alice', { url: `/v1/tasks/${id}` })).json()).cancelRequested).toBeNull();
  });
});

describe('INV-7 a worker reaches its own leases only', () => {
  /** What each route that is about a lease answers to somebody who does not hold it. */
  const LEASE_ROUTES: Readonly<Record<string, (id: TaskId, epoch: number) => { payload: object; refused: unknown }>> = {
    'POST /v1/worker/renew': (id, epoch) => ({
      payload: { leases: [{ taskId: id, epoch }] },
      refused: { status: 200, body: expect.objectContaining({ lost: [id], cancel: [], abandon: [], wantLogs: [] }) },
    }),
    'POST /v1/worker/report': (id, epoch) => ({
      payload: {
        items: [
          { type: 'opened', taskId: id, epoch, jobId: jobId(8), token: token(8) },
          { type: 'progressed', taskId: id, epoch, jobId: jobId(8), phase: 'Running', reason: null, detail: 'mine' },
          { type: 'released', taskId: id, epoch, detail: 'give it back' },
        ],
      },
      refused: { status: 200, body: { verdicts: ['stale', 'stale', 'stale'] } },
    }),
    'POST /v1/worker/outcome': (id, epoch) => ({
      payload: { type: 'completed', taskId: id, epoch, jobId: jobId(8), result: 'forged', warnings: [] },
      refused: { status: 409, body: expect.objectContaining({ error: expect.objectContaining({ code: 'stale' }) }) },
    }),
    'POST /v1/worker/logs': (id, epoch) => ({
      payload: { taskId: id, epoch, stdout: 'forged', stderr: '' },
      refused: { status: 409, body: expect.objectContaining({ error: expect.objectContaining({ code: 'stale' }) }) },
    }),
    'POST /v1/worker/sessions/report': (id, epoch) => ({
      payload: {
        views: [{ epoch, view: sessionView({ taskId: id, words: 'forged' }) }],
        steps: [
          { taskId: id, epoch, stepId: STEP, pieces: [], notice: 'forged', stdinTaken: 0, sizes: null, end: null },
        ],
      },
      refused: { status: 200, body: expect.objectContaining({ stale: [id], taken: [null] }) },
    }),
  };
  /** A mailbox is its worker's own: there is no naming another one. */
  const OTHERS = ['POST /v1/worker/hello', 'POST /v1/worker/acquire', 'POST /v1/worker/sessions/calls'];

  const both = () =>
    hello({ kinds: ['training', 'session'], profiles: [profile('smoke', null, ['training', 'session'])] });

  test('every route of workers has a row, or is about no lease', () => {
    const served = s.routes().filter((route) => route.includes('/worker/'));
    expect(served.sort()).toEqual([...OTHERS, ...Object.keys(LEASE_ROUTES)].sort());
  });

  const leased = async (kind = 'training'): Promise<TaskId> => {
    for (const who of ['w1', 'w2'] as const) await s.post(who, '/v1/worker/hello', both());
    for (;;) {
      const id = await submitted(kind);
      const { body } = await s.post('w1', '/v1/worker/acquire', { count: 100, waitMs: 0 });
      if (body.includes(id)) return id;
    }
  };

  test.each(Object.entries(LEASE_ROUTES))(
    '%s: with the epoch of another, an older and a newer one',
    async (route, row) => {
      const id = await leased(kindOf(route));
      const before = (await s.call('alice', { url: `/v1/tasks/${id}` })).json();
      const url = route.replace('POST ', '');
      for (const [who, epoch] of [
        ['w2', 1],
        ['w2', 2],
        ['root', 1],
        ['w1', 2],
      ] as const) {
        const { payload, refused } = row(id, epoch);
        if (who === 'root') await s.post('root', '/v1/worker/hello', both());
        const answer = await s.post(who, url, payload);
        expect({ who, epoch, status: answer.statusCode, body: answer.json() }).toEqual(
          expect.objectContaining({ who, epoch, ...(refused as object) }),
        );
        expect((await s.call('alice', { url: `/v1/tasks/${id}` })).json()).toEqual(before);
      }
      expect((await s.call('alice', { url: `/v1/tasks/${id}/logs` })).body).not.toContain('forged');
      expect((await s.call('alice', { url: `/v1/sessions/${id}` })).body).not.toContain('forged');
      // Its holder is as welcome as before.
      const holder = await s.post('w1', url, row(id, 1).payload);
      expect(holder.statusCode).toBe(200);
      expect(holder.body.replace('"stale":[]', '')).not.toMatch(/stale|"lost":\["/);
    },
  );

  test.each(Object.entries(LEASE_ROUTES))('%s: after the lease has gone to somebody else', async (route, row) => {
    const id = await leased(kindOf(route));
    await s.post('w1', '/v1/worker/report', { items: [{ type: 'released', taskId: id, epoch: 1, detail: '' }] });
    await s.h.tick(10_000);
    await s.post('w2', '/v1/worker/acquire', { count: 100, waitMs: 0 });
    const before = TaskView.parse((await s.call('alice', { url: `/v1/tasks/${id}` })).json());
    expect([before.epoch, before.worker]).toEqual([2, 'w2']);
    for (const epoch of [1, 2]) {
      const { payload, refused } = row(id, epoch);
      const answer = await s.post('w1', route.replace('POST ', ''), payload);
      expect({ epoch, status: answer.statusCode, body: answer.json() }).toEqual(
        expect.objectContaining({ epoch, ...(refused as object) }),
      );
    }
    expect((await s.call('alice', { url: `/v1/tasks/${id}` })).json()).toEqual(before);
  });

  test('the end of a job that another worker runs is not for a worker to report', async () => {
    const id = await leased();
    const opened = { type: 'opened', taskId: id, epoch: 1, jobId: jobId(7), token: token(7) };
    await s.post('w1', '/v1/worker/report', { items: [opened] });
    const closed = { type: 'closed', taskId: id, jobId: jobId(7), phase: 'Lost', reason: null };
    await s.post('w2', '/v1/worker/hello', hello({ site: 'elsewhere' }));
    const answer = await s.post('w2', '/v1/worker/report', { items: [closed] });
    expect(answer.json()).toEqual({ verdicts: ['stale'] });
    expect(TaskView.parse((await s.call('alice', { url: `/v1/tasks/${id}` })).json()).openJobs).toEqual([jobId(7)]);
    await s.post('w2', '/v1/worker/hello', both());
  });

  test('nothing that a worker asks shows it a task that it was not given', async () => {
    const id = await leased();
    for (const url of [`/v1/tasks/${id}`, '/v1/tasks', `/v1/tasks/${id}/result`, '/v1/changes', '/metrics'])
      expect([url, (await s.call('w1', { url })).statusCode]).toEqual([url, 403]);
  });
});
