import { describe, expect, test } from '@jest/globals';
import type { LeaseGrant, OutcomeRequest } from '../../src/coordinator/worker-api.js';
import { StoreError } from '../../src/events/store.js';
import { TaskId } from '../../src/machines/vocabulary.js';
import { epoch, jobId, token } from '../support/ids.js';
import { flush } from '../support/manual-clock.js';
import {
  ADMIN,
  ALICE,
  answered,
  BOB,
  Harness,
  hello,
  problem,
  profile,
  value,
  VIEWER,
  W1,
  W2,
  worker,
} from './harness.js';

const openedItem = (taskId: TaskId, n: number, e = 1) =>
  ({ type: 'opened', taskId, epoch: epoch(e), jobId: jobId(n), token: token(n) }) as const;
const completedBy = (taskId: TaskId, n: number, e = 1): OutcomeRequest => ({
  type: 'completed',
  taskId,
  epoch: epoch(e),
  jobId: jobId(n),
  result: { message: `job ${String(n)}` },
  warnings: [],
});
const lostBy = (taskId: TaskId, n: number, e: number): OutcomeRequest => ({
  type: 'lost',
  taskId,
  epoch: epoch(e),
  jobId: jobId(n),
  reason: 'NODE_FAILED',
  detail: 'gone',
});

/** A matcher where a string is expected. */
const containing = (text: string): unknown => expect.stringContaining(text);

describe('submitting', () => {
  test('the same key from the same submitter is the same task, also after a restart; another submitter has its own', async () => {
    const h = await Harness.start();
    const send = async (who = ALICE) =>
      value(await h.coordinator.client.submit(who, { kind: 'training', payload: { profile: 'smoke' } }, 'key-1'));
    const first = await send();
    expect(first).toMatchObject({ created: true });
    expect(await Promise.all([send(), send()])).toEqual([1, 2].map(() => ({ ...first, created: false })));
    await h.crash();
    expect(await send()).toEqual({ ...first, created: false });
    expect((await send(BOB)).taskId).not.toBe(first.taskId);
    expect(value(await h.coordinator.client.list(ADMIN, { limit: 100 })).tasks).toHaveLength(2);
  });

  test('two submissions with one key that arrive together make one task', async () => {
    const h = await Harness.start();
    const answers = await Promise.all(
      [1, 2, 3, 4].map(() => h.coordinator.client.submit(ALICE, { kind: 'training', payload: { profile: 'a' } }, 'k')),
    );
    expect(answers.filter((one) => value(one).created)).toHaveLength(1);
    expect(await h.store.lastPosition()).toBe(1);
  });

  test('a key that comes with another payload is refused', async () => {
    const h = await Harness.start();
    await h.submit(ALICE, { profile: 'smoke', parameters: { a: 1 } }, 'key');
    const other = { kind: 'training', payload: { profile: 'smoke', parameters: { a: 2 } } };
    expect(problem(await h.coordinator.client.submit(ALICE, other, 'key'))).toBe('key_reused');
  });

  test('without any worker a submission is accepted, and the answer says what is missing', async () => {
    const h = await Harness.start();
    const answer = await h.coordinator.client.submit(ALICE, { kind: 'training', payload: { profile: 'x' } }, null);
    expect(value(answer).waiting).toBe('no worker offers kind "training" yet');
  });

  test('with a worker there, an unknown profile is refused with the known ones', async () => {
    const h = await Harness.start();
    await h.greet(W1, { profiles: [profile('smoke'), profile('train')] });
    const answer = await h.coordinator.client.submit(ALICE, { kind: 'training', payload: { profile: 'x' } }, null);
    expect(answer).toMatchObject({
      ok: false,
      problem: { code: 'unknown_profile', hint: 'known profiles: smoke, train' },
    });
  });

  test('parameters that do not fit the schema of the profile are refused with their path', async () => {
    const h = await Harness.start();
    const schema = { type: 'object', properties: { sleep: { type: 'number' } }, additionalProperties: false };
    await h.greet(W1, { profiles: [profile('smoke', schema)] });
    const send = (parameters: unknown) =>
      h.coordinator.client.submit(ALICE, { kind: 'training', payload: { profile: 'smoke', parameters } }, null);
    expect(await send({ sleep: 'long' })).toMatchObject({
      ok: false,
      problem: { code: 'parameters_invalid', message: containing('parameters/sleep') },
    });
    expect(value(await send({ sleep: 1 })).created).toBe(true);
  });

  test('a worker whose schema is none is refused, and named', async () => {
    const h = await Harness.start();
    const broken = hello({ profiles: [profile('smoke', { type: 'nonsense' })] });
    expect(await h.coordinator.worker.hello(W1, broken)).toMatchObject({
      ok: false,
      problem: { code: 'invalid_profile', message: containing('"smoke"') },
    });
  });

  test('payloads that are too large, too deep, missing or without a profile are refused, and nothing is written', async () => {
    const h = await Harness.start({ payloadLimitBytes: 1000 });
    let deep: unknown = 1;
    for (let i = 0; i < 100_000; i += 1) deep = [deep];
    const send = async (payload: unknown) =>
      problem(await h.coordinator.client.submit(ALICE, { kind: 'training', payload }, null));
    expect(await send({ profile: 'smoke', parameters: 'x'.repeat(1000) })).toBe('too_large');
    expect(await send({ profile: 'smoke', parameters: 'é'.repeat(490) })).toBe('too_large');
    expect(await send({ profile: 'smoke', parameters: deep })).toBe('invalid_request');
    expect(await send(undefined)).toBe('invalid_request');
    expect(await send({ parameters: {} })).toBe('invalid_request');
    expect(await h.store.lastPosition()).toBe(0);
  });
});

describe('leasing', () => {
  test('tasks are given out in the order of submission, also one that came back', async () => {
    const h = await Harness.start({ releaseBackoffMs: 0 });
    await h.greet();
    const ids = [await h.submit(), await h.submit(), await h.submit()];
    const first = await h.lease();
    expect(first).toMatchObject({
      taskId: ids[0],
      epoch: 1,
      kind: 'training',
      payload: { profile: 'smoke' },
      openJobs: [],
    });
    const release = { type: 'released', taskId: first.taskId, epoch: first.epoch, detail: 'no room' } as const;
    value(await h.coordinator.worker.report(W1, [release]));
    await h.tick(1);
    expect((await h.acquire(W1, 10)).map(({ taskId, epoch: e }) => [taskId, e])).toEqual([
      [ids[0], 2],
      [ids[1], 1],
      [ids[2], 1],
    ]);
  });

  test('a worker gets only the kinds and profiles that it offers, and no more than it can hold', async () => {
    const h = await Harness.start();
    await h.submit(ALICE, { profile: 'gpu' });
    const plain = [await h.submit(), await h.submit(), await h.submit()];
    value(await h.coordinator.client.submit(ALICE, { kind: 'report', payload: null }, null));
    await h.greet(W1, { capacity: 2 });
    expect((await h.acquire(W1, 10)).map(({ taskId }) => taskId)).toEqual(plain.slice(0, 2));
    expect(await h.acquire(W1, 10)).toEqual([]);
    await h.greet(W2, { kinds: ['report'], profiles: [] });
    expect((await h.acquire(W2, 10)).map(({ kind }) => kind)).toEqual(['report']);
  });

  test('payloads that are too much for one answer come in several, in the order of submission, and none stays behind', async () => {
    const h = await Harness.start({ releaseBackoffMs: 0 });
    await h.greet();
    const large = { profile: 'smoke', parameters: { text: 'x'.repeat(250 * 1024) } };
    const ids: TaskId[] = [];
    for (let n = 0; n < 12; n += 1) ids.push(await h.submit(ALICE, large));
    const answers: (readonly LeaseGrant[])[] = [];
    for (let n = 0; n < 3; n += 1) answers.push(await h.acquire(W1, 1000));
    expect(answers.map(({ length }) => length)).toEqual([5, 5, 2]);
    expect(answers.flat().map(({ taskId, epoch: e }) => [taskId, e])).toEqual(ids.map((id) => [id, 1]));
    expect(await h.acquire(W1, 1000)).toEqual([]);
  });

  test('one payload that is more than an answer should carry is given out all the same, by itself', async () => {
    const h = await Harness.start({ payloadLimitBytes: 20 * 1024 * 1024 });
    await h.greet();
    const huge = { profile: 'smoke', parameters: { text: 'x'.repeat(9 * 1024 * 1024) } };
    const ids = [await h.submit(ALICE, huge), await h.submit()];
    expect((await h.acquire(W1, 10)).map(({ taskId }) => taskId)).toEqual(ids.slice(0, 1));
    expect((await h.acquire(W1, 10)).map(({ taskId }) => taskId)).toEqual(ids.slice(1));
  });

  test('what did not go into the answer of one worker is there at once for another', async () => {
    const h = await Harness.start();
    await h.greet(W1);
    await h.greet(W2);
    const large = { profile: 'smoke', parameters: { text: 'x'.repeat(250 * 1024) } };
    const ids: TaskId[] = [];
    for (let n = 0; n < 8; n += 1) ids.push(await h.submit(ALICE, large));
    const grants = [await h.acquire(W1, 1000), await h.acquire(W2, 1000)];
    expect(grants.map((given) => given.map(({ taskId }) => taskId))).toEqual([ids.slice(0, 5), ids.slice(5)]);
  });

  test('when a payload can not be read, nothing of the answer is leased, and all of it stays in line', async () => {
    const h = await Harness.start();
    await h.greet();
    const ids = [await h.submit(), await h.submit()];
    const { store } = h;
    const read = store.readStream.bind(store);
    let reads = 0;
    store.readStream = (stream, after) => {
      reads += 1;
      return reads === 2 ? Promise.reject(new StoreError('io', 'the disk is away')) : read(stream, after);
    };
    const port = h.coordinator.workerPort(W1);
    expect(await port.acquire({ count: 10, waitMs: 0 })).toMatchObject({ kind: 'unreachable' });
    expect((await h.acquire(W1, 10)).map(({ taskId, epoch: e }) => [taskId, e])).toEqual(ids.map((id) => [id, 1]));
  });

  test('a worker that has not said hello is told so', async () => {
    const h = await Harness.start();
    expect(problem(await h.coordinator.worker.acquire(W1, { count: 1, waitMs: 0 }))).toBe('hello_needed');
  });

  test('no task is leased twice, however many workers ask at once', async () => {
    const h = await Harness.start();
    const workers = Array.from({ length: 10 }, (_, n) => worker(`many${String(n)}`));
    for (const one of workers) await h.greet(one);
    for (let n = 0; n < 50; n += 1) await h.submit();
    const grants = (await Promise.all(workers.map((one) => h.acquire(one, 7)))).flat();
    expect(grants).toHaveLength(50);
    expect(new Set(grants.map(({ taskId }) => taskId)).size).toBe(50);
  });

  test('a long poll waits, is woken by the task that fits, and ends empty when its time is over', async () => {
    const h = await Harness.start();
    await h.greet(W1, { profiles: [profile('gpu')] });
    await h.greet(W2);
    const forGpu = h.coordinator.worker.acquire(W1, { count: 1, waitMs: 10_000 });
    const forSmoke = h.coordinator.worker.acquire(W2, { count: 1, waitMs: 10_000 });
    await flush();
    const taskId = await h.submit();
    expect(value(await forSmoke).map((grant) => grant.taskId)).toEqual([taskId]);
    await h.clock.advance(10_001);
    expect(value(await forGpu)).toEqual([]);
  });

  test('a caller that has gone is given nothing: the task goes to the next one that waits', async () => {
    const h = await Harness.start();
    await h.greet(W1);
    await h.greet(W2);
    const gone = new AbortController();
    const first = h.coordinator.worker.acquire(W1, { count: 1, waitMs: 10_000 }, gone.signal);
    const second = h.coordinator.worker.acquire(W2, { count: 1, waitMs: 10_000 });
    await flush();
    gone.abort();
    const taskId = await h.submit();
    expect(value(await first)).toEqual([]);
    expect(value(await second).map((grant) => grant.taskId)).toEqual([taskId]);
  });

  test('one that is woken and goes in the same moment leaves the task to the next one that waits', async () => {
    const h = await Harness.start();
    const { dispatch } = h.coordinator.core;
    await h.greet(W1);
    await h.greet(W2);
    const taskId = await h.submit();
    dispatch.remove(taskId);
    const gone = new AbortController();
    const first = h.coordinator.worker.acquire(W1, { count: 1, waitMs: 10_000 }, gone.signal);
    const second = h.coordinator.worker.acquire(W2, { count: 1, waitMs: 10_000 });
    await flush();
    h.coordinator.core.putBack(taskId);
    gone.abort();
    expect(value(await first)).toEqual([]);
    expect(value(await second).map((grant) => grant.taskId)).toEqual([taskId]);
  });

  test('a lease that is not renewed runs out; one that is renewed does not', async () => {
    const h = await Harness.start({ leaseTtlMs: 60_000 });
    await h.greet();
    await h.greet(W2);
    const [kept, forgotten] = [await h.submit(), await h.submit()];
    const grants = await h.acquire(W1, 2);
    expect(grants.map((grant) => grant.ttlMs)).toEqual([60_000, 60_000]);
    for (const grant of grants)
      value(await h.coordinator.worker.report(W1, [openedItem(grant.taskId, grant.taskId === kept ? 1 : 2)]));
    await h.tick(40_000);
    const renewed = answered(await h.coordinator.workerPort(W1).renew([{ taskId: kept, epoch: epoch(1) }]));
    expect(renewed.lost).toEqual([]);
    await h.tick(19_999);
    expect(await h.phase(forgotten)).toBe('Leased');
    await h.tick(1);
    expect([await h.phase(kept), await h.phase(forgotten)]).toEqual(['Leased', 'Queued']);
    const again = answered(await h.coordinator.workerPort(W1).renew([{ taskId: forgotten, epoch: epoch(1) }]));
    expect(again.lost).toEqual([forgotten]);
  });

  test("a lease that ran out while its job is open is still its holder's, until another worker of the site is there", async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet(W1, { site: 'lab' });
    await h.greet(W2, { site: 'elsewhere' });
    const taskId = await h.submit();
    await h.lease();
    value(await h.coordinator.worker.report(W1, [openedItem(taskId, 1)]));
    await h.tick(5000);
    const renewed = answered(await h.coordinator.workerPort(W1).renew([{ taskId, epoch: epoch(1) }]));
    expect(renewed.lost).toEqual([]);
    await h.tick(5000);
    await h.greet(worker('w3'), { site: 'lab' });
    await h.tick(1);
    expect(await h.phase(taskId)).toBe('Queued');
    const late = answered(await h.coordinator.workerPort(W1).renew([{ taskId, epoch: epoch(1) }]));
    expect(late.lost).toEqual([taskId]);
  });

  test('a lease that ran out while its job is open does not go from its holder for a worker that can not take the task', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet(W1);
    const taskId = await h.submit();
    await h.lease();
    value(await h.coordinator.worker.report(W1, [openedItem(taskId, 1)]));
    await h.greet(W2, { profiles: [profile('other')] });
    await h.greet(worker('w3'), { kinds: ['report'] });
    await h.greet(worker('w4'), { site: 'elsewhere' });
    await h.tick(5000);
    const port = h.coordinator.workerPort(W1);
    expect(answered(await port.renew([{ taskId, epoch: epoch(1) }])).lost).toEqual([]);
    await h.tick(5000);
    await h.greet(W2, { profiles: [profile('other'), profile('smoke')] });
    await h.tick(1);
    expect(await h.lease(W2)).toMatchObject({ taskId, epoch: 2 });
  });

  test('after a restart every live lease has its whole time again', async () => {
    const h = await Harness.start({ leaseTtlMs: 60_000 });
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    await h.tick(59_000);
    await h.crash();
    await h.tick(59_000);
    expect(await h.phase(taskId)).toBe('Leased');
    await h.tick(1_001);
    expect(await h.phase(taskId)).toBe('Queued');
  });

  test('a lease whose grant was lost on its way comes back without waiting for its time', async () => {
    const h = await Harness.start({ releaseBackoffMs: 0, unclaimedGraceMs: 30_000 });
    await h.greet();
    const [known, unknown] = [await h.submit(), await h.submit()];
    await h.acquire(W1, 2);
    const renew = async () => answered(await h.coordinator.workerPort(W1).renew([{ taskId: known, epoch: epoch(1) }]));
    await renew();
    await h.tick(29_000);
    await renew();
    expect(await h.phase(unknown)).toBe('Leased');
    await h.tick(1_000);
    await renew();
    await h.tick(1);
    expect([await h.phase(known), await h.phase(unknown)]).toEqual(['Leased', 'Queued']);
    expect(await h.lease()).toMatchObject({ taskId: unknown, epoch: 2 });
  });

  test('a worker that starts anew and has forgotten a lease without a job gives it back by its silence', async () => {
    const h = await Harness.start({ unclaimedGraceMs: 30_000 });
    await h.greet();
    const taskId = await h.submit();
    const { epoch: held } = await h.lease();
    answered(await h.coordinator.workerPort(W1).renew([{ taskId, epoch: held }]));
    await h.greet();
    await h.tick(30_000);
    answered(await h.coordinator.workerPort(W1).renew([]));
    expect(await h.phase(taskId)).toBe('Queued');
  });
});

describe('INV-3 one job at a time', () => {
  test('INV-3: an expired lease with an open job goes to a worker of the same site only, which is told of the job', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet(W1, { site: 'lab' });
    const taskId = await h.submit();
    await h.lease();
    value(await h.coordinator.worker.report(W1, [openedItem(taskId, 1)]));
    const w3 = worker('w3');
    await h.greet(w3, { site: 'lab' });
    await h.tick(1000);
    await h.greet(W2, { site: 'elsewhere' });
    expect(await h.acquire(W2)).toEqual([]);
    const grant = await h.lease(w3);
    expect(grant).toMatchObject({ taskId, epoch: 2, openJobs: [{ jobId: jobId(1), token: token(1), worker: 'w1' }] });
    value(await h.coordinator.worker.report(w3, [openedItem(taskId, 2, 2)]));
    const early = await h.coordinator.worker.outcome(w3, completedBy(taskId, 2, 2));
    expect(problem(early)).toBe('job_open');
    const closed = { type: 'closed', taskId, jobId: jobId(1), phase: 'Cancelled', reason: 'LEASE_LOST' } as const;
    value(await h.coordinator.worker.report(w3, [closed]));
    value(await h.coordinator.worker.outcome(w3, completedBy(taskId, 2, 2)));
    expect(value(await h.coordinator.client.result(ALICE, taskId)).result).toEqual({ message: 'job 2' });
  });

  test('INV-3: once the old job is reported over, any site may have the task', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet(W1, { site: 'lab' });
    const taskId = await h.submit();
    await h.lease();
    value(await h.coordinator.worker.report(W1, [openedItem(taskId, 1)]));
    await h.greet(worker('w3'), { site: 'lab' });
    await h.tick(1000);
    await h.greet(W2, { site: 'elsewhere' });
    const waiting = h.coordinator.worker.acquire(W2, { count: 1, waitMs: 10_000 });
    await flush();
    const closed = { type: 'closed', taskId, jobId: jobId(1), phase: 'Lost', reason: 'NOT_FOUND' } as const;
    expect(value(await h.coordinator.worker.report(W2, [closed])).verdicts).toEqual(['stale']);
    expect(value(await h.coordinator.worker.report(W1, [closed])).verdicts).toEqual(['ok']);
    expect(value(await waiting).map((grant) => grant.epoch)).toEqual([2]);
  });

  test('INV-3: a worker that moved to another site opens no job under the lease of the one before', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet(W1, { site: 'lab' });
    const taskId = await h.submit();
    await h.lease();
    await h.greet(W1, { site: 'elsewhere' });
    expect(value(await h.coordinator.worker.report(W1, [openedItem(taskId, 1)])).verdicts).toEqual(['stale']);
    await h.greet(W1, { site: 'lab' });
    expect(value(await h.coordinator.worker.report(W1, [openedItem(taskId, 1)])).verdicts).toEqual(['ok']);
  });

  test('INV-3: a task that is bound to a site does not stand in the way of other sites', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet(W1, { site: 'lab' });
    await h.greet(worker('w3'), { site: 'lab' });
    const bound = await h.submit();
    await h.lease();
    value(await h.coordinator.worker.report(W1, [openedItem(bound, 1)]));
    await h.tick(1000);
    const free = await h.submit();
    await h.greet(W2, { site: 'elsewhere' });
    expect((await h.acquire(W2, 1)).map(({ taskId }) => taskId)).toEqual([free]);
    expect((await h.acquire(W1, 1)).map(({ taskId }) => taskId)).toEqual([bound]);
  });

  test('INV-3: a second job under one lease is refused', async () => {
    const h = await Harness.start();
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    const { verdicts } = value(
      await h.coordinator.worker.report(W1, [openedItem(taskId, 1), openedItem(taskId, 1), openedItem(taskId, 2)]),
    );
    expect(verdicts).toEqual(['ok', 'ok', 'stale']);
  });
});

describe('INV-7 old incarnations are refused', () => {
  test('INV-7: after a lease has gone to somebody else, every word of the old one is refused and it is told so', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet(W1);
    await h.greet(W2);
    const taskId = await h.submit();
    await h.lease(W1);
    await h.tick(1000);
    await h.lease(W2);
    const port = h.coordinator.workerPort(W1);
    expect(await port.outcome(completedBy(taskId, 1, 1))).toMatchObject({ kind: 'stale' });
    expect(await port.putLogs({ taskId, epoch: epoch(1), stdout: 'x', stderr: '' })).toMatchObject({ kind: 'stale' });
    const progress = { taskId, jobId: jobId(1), phase: 'Running', reason: null, detail: '' } as const;
    const items = [
      openedItem(taskId, 1),
      { type: 'progressed', epoch: epoch(1), ...progress },
      { type: 'released', taskId, epoch: epoch(1), detail: '' },
    ] as const;
    expect(answered(await port.report(items)).verdicts).toEqual(['stale', 'stale', 'stale']);
    expect(answered(await port.renew([{ taskId, epoch: epoch(1) }])).lost).toEqual([taskId]);
    // Another's epoch, guessed right, is not a lease.
    expect(await port.outcome(completedBy(taskId, 1, 2))).toMatchObject({ kind: 'stale' });
    expect(await h.phase(taskId)).toBe('Leased');
    expect(value(await h.coordinator.client.logs(ALICE, taskId)).stdout).toBe('');
  });

  test('INV-7: an outcome repeated is answered like the first, another one for the same job is stale', async () => {
    const h = await Harness.start();
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    const port = h.coordinator.workerPort(W1);
    for (let n = 0; n < 3; n += 1)
      expect(await port.outcome(completedBy(taskId, 1))).toEqual({ kind: 'answered', value: null });
    await h.crash();
    await h.greet();
    expect(await h.coordinator.workerPort(W1).outcome(completedBy(taskId, 1))).toMatchObject({ kind: 'answered' });
    expect(await h.coordinator.workerPort(W1).outcome({ ...lostBy(taskId, 1, 1) })).toMatchObject({ kind: 'stale' });
    expect(await h.coordinator.workerPort(W2).outcome(completedBy(taskId, 1))).toMatchObject({
      kind: 'refused',
      status: 412,
    });
    expect((await h.store.readStream(`task/${taskId}`)).map(({ event }) => event.type)).toEqual([
      'task.submitted',
      'task.leased',
      'task.completed',
    ]);
  });

  test('INV-7: a result that arrives while the lease runs out is either taken or refused, never both', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    await h.clock.advance(1000);
    const [, outcome] = await Promise.all([
      h.coordinator.tick(h.clock.monotonicMs()),
      h.coordinator.workerPort(W1).outcome(completedBy(taskId, 1)),
    ]);
    expect([outcome.kind, await h.phase(taskId)]).toEqual(['stale', 'Queued']);
  });
});

describe('ends', () => {
  test('a lost job is tried again until it was lost too often; the dead letter has the whole history', async () => {
    const h = await Harness.start({ lossesMax: 3 });
    await h.greet();
    const taskId = await h.submit();
    for (const n of [1, 2, 3]) {
      expect(await h.lease()).toMatchObject({ taskId, epoch: n });
      value(await h.coordinator.worker.report(W1, [openedItem(taskId, n, n)]));
      const port = h.coordinator.workerPort(W1);
      expect(await port.outcome(lostBy(taskId, n, n))).toMatchObject({ kind: 'answered' });
      expect(await port.outcome(lostBy(taskId, n, n))).toMatchObject({ kind: 'answered' });
    }
    expect(value(await h.coordinator.client.get(ALICE, taskId))).toMatchObject({ phase: 'DeadLetter', losses: 3 });
    const { changes } = value(await h.coordinator.client.history(ALICE, taskId));
    expect(changes.filter(({ event }) => event === 'task.lost')).toHaveLength(3);
    expect(await h.acquire()).toEqual([]);
  });

  test('cancelled before anything started is over at once; with a lease it is a wish that the next renewal carries', async () => {
    const h = await Harness.start();
    await h.greet();
    const [queued, running] = [await h.submit(), await h.submit()];
    await h.acquire(W1, 1);
    const leasedId = queued;
    const view = value(await h.coordinator.client.cancel(ALICE, running));
    expect(view).toMatchObject({ phase: 'Cancelled', reason: 'USER_CANCELLED' });
    expect(value(await h.coordinator.client.cancel(ADMIN, leasedId))).toMatchObject({ phase: 'Leased' });
    const port = h.coordinator.workerPort(W1);
    expect(answered(await port.renew([{ taskId: leasedId, epoch: epoch(1) }])).cancel).toEqual([
      { taskId: leasedId, by: 'admin', asAdmin: true },
    ]);
    value(
      await h.coordinator.worker.outcome(W1, {
        type: 'cancelled',
        taskId: leasedId,
        epoch: epoch(1),
        jobId: null,
        reason: 'ADMIN_CANCELLED',
      }),
    );
    expect(await h.phase(leasedId)).toBe('Cancelled');
    expect(value(await h.coordinator.client.cancel(ALICE, leasedId))).toMatchObject({ phase: 'Cancelled' });
  });

  test('a cancel that finds a job left behind waits until its end is reported', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    value(await h.coordinator.worker.report(W1, [openedItem(taskId, 1)]));
    await h.greet(W2);
    await h.tick(1000);
    expect(value(await h.coordinator.client.cancel(ALICE, taskId))).toMatchObject({
      phase: 'Queued',
      openJobs: [jobId(1)],
    });
    const closed = { type: 'closed', taskId, jobId: jobId(1), phase: 'Cancelled', reason: 'LEASE_LOST' } as const;
    value(await h.coordinator.worker.report(W1, [closed]));
    expect(await h.phase(taskId)).toBe('Cancelled');
  });

  test('an abandon ends a task without a lease at once, names the job that may live on, and is logged loudly', async () => {
    const h = await Harness.start({ leaseTtlMs: 1000 });
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    value(await h.coordinator.worker.report(W1, [openedItem(taskId, 1)]));
    await h.tick(1000);
    expect(value(await h.coordinator.client.abandon(ALICE, taskId))).toMatchObject({
      phase: 'Failed',
      reason: 'ABANDONED',
      forgottenJobs: [jobId(1)],
    });
    expect(h.logged.filter(({ level }) => level === 'error')).toHaveLength(1);
  });

  test('an abandon with a lease is a wish; the loss that follows from it ends the task', async () => {
    const h = await Harness.start();
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    expect(value(await h.coordinator.client.abandon(ALICE, taskId)).phase).toBe('Leased');
    const { abandon } = answered(await h.coordinator.workerPort(W1).renew([{ taskId, epoch: epoch(1) }]));
    expect(abandon).toEqual([{ taskId, by: 'alice' }]);
    value(await h.coordinator.worker.outcome(W1, lostBy(taskId, 1, 1)));
    expect(value(await h.coordinator.client.get(ALICE, taskId))).toMatchObject({
      phase: 'Failed',
      reason: 'ABANDONED',
    });
  });

  test('a job that was cancelled for its lost lease, though nobody wished it, is tried again', async () => {
    const h = await Harness.start();
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    value(
      await h.coordinator.worker.outcome(W1, {
        type: 'cancelled',
        taskId,
        epoch: epoch(1),
        jobId: jobId(1),
        reason: 'LEASE_LOST',
      }),
    );
    expect(value(await h.coordinator.client.get(ALICE, taskId))).toMatchObject({ phase: 'Queued', losses: 1 });
  });

  test('a result that is too large is refused as such, and the job can still be delivered as failed', async () => {
    const h = await Harness.start({ resultLimitBytes: 100 });
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    const large = { ...completedBy(taskId, 1), result: 'x'.repeat(100) };
    expect(await h.coordinator.workerPort(W1).outcome(large)).toMatchObject({ kind: 'refused', status: 413 });
    expect(await h.phase(taskId)).toBe('Leased');
  });
});

describe('who may know what', () => {
  test('a submitter sees its own tasks only, a viewer all, and only owner and admin decide', async () => {
    const h = await Harness.start();
    const taskId = await h.submit(ALICE);
    const { client } = h.coordinator;
    for (const call of [
      client.get(BOB, taskId),
      client.result(BOB, taskId),
      client.logs(BOB, taskId),
      client.history(BOB, taskId),
      client.cancel(BOB, taskId),
      client.abandon(BOB, taskId),
      client.watch(BOB, { taskId, after: null }, new AbortController().signal),
      client.get(W1, taskId),
    ]) {
      expect(problem(await call)).toBe('not_found');
    }
    expect(problem(await client.cancel(VIEWER, taskId))).toBe('forbidden');
    expect(value(await client.get(VIEWER, taskId)).taskId).toBe(taskId);
    const count = async (who: typeof BOB) => value(await client.list(who, { limit: 10 })).tasks.length;
    expect([await count(ALICE), await count(BOB), await count(VIEWER), await count(ADMIN)]).toEqual([1, 0, 1, 1]);
  });
});

describe('lists, watches, output', () => {
  test('pages go from the newest to the oldest without gap or repetition, and filter by phase', async () => {
    const h = await Harness.start();
    const ids: TaskId[] = [];
    for (let n = 0; n < 25; n += 1) ids.push(await h.submit());
    const cancelled = ids.filter((_, n) => n % 5 === 0);
    for (const id of cancelled) value(await h.coordinator.client.cancel(ALICE, id));
    const seen: TaskId[] = [];
    let cursor: number | undefined;
    do {
      const query = { limit: 10, ...(cursor === undefined ? {} : { cursor }) };
      const page = value(await h.coordinator.client.list(ALICE, query));
      seen.push(...page.tasks.map(({ taskId }) => taskId));
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
    expect(seen).toEqual([...ids].reverse());
    const page = value(await h.coordinator.client.list(ALICE, { limit: 100, phase: 'Cancelled' }));
    expect(page.tasks.map(({ taskId }) => taskId)).toEqual([...cancelled].reverse());
  });

  test('a watch of one task tells it from its beginning; from a position, only what came after; another sees nothing', async () => {
    const h = await Harness.start();
    await h.greet();
    const taskId = await h.submit();
    await h.submit(BOB);
    await h.lease();
    const over = new AbortController();
    const read = async (after: number | null, count: number) => {
      const { changes } = value(await h.coordinator.client.watch(ALICE, { taskId, after }, over.signal));
      const found: string[] = [];
      for await (const change of changes) {
        found.push(`${String(change.position)} ${change.event} ${change.phase}`);
        if (found.length === count) break;
      }
      return found;
    };
    const all = read(null, 3);
    await flush();
    value(await h.coordinator.worker.outcome(W1, completedBy(taskId, 1)));
    const expected = ['1 task.submitted Queued', '3 task.leased Leased', '4 task.completed Completed'];
    expect(await all).toEqual(expected);
    expect(await read(1, 2)).toEqual(expected.slice(1));
    await h.crash();
    expect(await read(1, 2)).toEqual(expected.slice(1));
  });

  test('a watch of everything that falls behind what is kept in memory reads the log, and misses nothing', async () => {
    const h = await Harness.start({ changesKept: 3 });
    const over = new AbortController();
    const { changes } = value(await h.coordinator.client.watch(ADMIN, { taskId: null, after: 0 }, over.signal));
    const first = await h.submit();
    expect((await changes.next()).value).toMatchObject({ position: 1, taskId: first });
    await h.greet();
    for (let n = 0; n < 20; n += 1) await h.submit();
    await h.acquire(W1, 5);
    value(await h.coordinator.client.cancel(ALICE, first));
    const positions: number[] = [];
    for await (const change of changes) {
      positions.push(change.position);
      if (change.position === (await h.store.lastPosition())) break;
    }
    expect(positions).toEqual(Array.from({ length: positions.length }, (_, n) => n + 2));
    over.abort();
    expect((await changes.next()).done).toBe(true);
  });

  test('somebody who reads the output of a running task makes its worker hand over more', async () => {
    const h = await Harness.start();
    await h.greet();
    const taskId = await h.submit();
    await h.lease();
    const port = h.coordinator.workerPort(W1);
    const wanted = async () => answered(await port.renew([{ taskId, epoch: epoch(1) }])).wantLogs;
    expect(await wanted()).toEqual([]);
    expect(value(await h.coordinator.client.logs(ALICE, taskId))).toMatchObject({ stdout: '', updatedAtMs: null });
    expect(await wanted()).toEqual([taskId]);
    answered(await port.putLogs({ taskId, epoch: epoch(1), stdout: 'step 1', stderr: 'warn' }));
    expect(value(await h.coordinator.client.logs(ALICE, taskId))).toMatchObject({ stdout: 'step 1', stderr: 'warn' });
    await h.tick(60_000);
    expect(await wanted()).toEqual([]);
  });
});

describe('storage', () => {
  test('INV-12: everything is there after a restart, from the log alone and from a checkpoint with its tail', async () => {
    for (const checkpointEvery of [1_000_000, 5]) {
      const h = await Harness.start({ checkpointEvery, leaseTtlMs: 1000 });
      await h.greet();
      const ids: TaskId[] = [];
      for (let n = 0; n < 6; n += 1) ids.push(await h.submit());
      const grants = await h.acquire(W1, 3);
      for (const [n, { taskId }] of grants.entries()) {
        value(await h.coordinator.worker.report(W1, [openedItem(taskId, n + 1)]));
      }
      await h.tick();
      const [first, second] = grants;
      if (first === undefined || second === undefined) throw new Error('not leased');
      value(await h.coordinator.worker.outcome(W1, completedBy(first.taskId, 1)));
      value(await h.coordinator.client.cancel(ALICE, second.taskId));
      const before = value(await h.coordinator.client.list(ADMIN, { limit: 100 }));
      await h.crash();
      expect((await h.store.loadCheckpoint('coordinator/tasks')) === null).toBe(checkpointEvery > 5);
      expect(value(await h.coordinator.client.list(ADMIN, { limit: 100 }))).toEqual(before);
      expect(
        answered(await h.coordinator.workerPort(W1).renew([{ taskId: second.taskId, epoch: epoch(1) }])).cancel,
      ).toHaveLength(1);
      expect((await h.acquire(W1, 10)).map(({ taskId }) => taskId)).toEqual(ids.slice(3));
    }
  });

  test('a checkpoint of another version is passed over, and the log is folded', async () => {
    const h = await Harness.start();
    const taskId = await h.submit();
    await h.store.saveCheckpoint('coordinator/tasks', { position: 1, data: { v: 99 } });
    await h.crash();
    expect(await h.phase(taskId)).toBe('Queued');
  });

  test('INV-12: when the storage refuses, nothing has changed; when it fails after writing, the log counts', async () => {
    const h = await Harness.start();
    await h.greet();
    const taskId = await h.submit();
    const port = h.coordinator.workerPort(W1);
    const failOnce = (at: 'before' | 'after') => {
      h.fault = (when) => {
        if (when !== at) return;
        h.fault = () => undefined;
        throw new StoreError('full', 'the disk is full');
      };
    };
    failOnce('before');
    expect(await port.acquire({ count: 1, waitMs: 0 })).toMatchObject({ kind: 'unreachable' });
    expect(await h.phase(taskId)).toBe('Queued');
    expect(await h.lease()).toMatchObject({ taskId, epoch: 1 });
    failOnce('after');
    expect(await port.outcome(completedBy(taskId, 1))).toMatchObject({ kind: 'unreachable' });
    expect(await port.outcome(completedBy(taskId, 1))).toMatchObject({ kind: 'answered' });
    expect(await h.phase(taskId)).toBe('Completed');
    expect(await h.store.lastPosition()).toBe(3);
  });

  test('INV-12: a log with an event that its task can not take stops the start', async () => {
    const h = await Harness.start();
    const taskId = await h.submit();
    const expired = { type: 'task.leaseExpired', v: 1, atMs: 1, epoch: epoch(1) } as const;
    await h.store.append({ stream: `task/${taskId}`, expectedVersion: 1, events: [expired] });
    await expect(h.crash()).rejects.toThrow('task.leaseExpired is illegal in Queued');
  });

  test('a lost grant costs no task: what became durable without an answer is leased again after its time', async () => {
    const h = await Harness.start({ leaseTtlMs: 60_000, unclaimedGraceMs: 5_000, releaseBackoffMs: 0 });
    await h.greet();
    const taskId = await h.submit();
    h.fault = (when) => {
      if (when === 'after') throw new StoreError('io', 'the answer is lost');
    };
    expect(await h.coordinator.workerPort(W1).acquire({ count: 1, waitMs: 0 })).toMatchObject({ kind: 'unreachable' });
    h.fault = () => undefined;
    expect(await h.acquire()).toEqual([]);
    await h.tick(5_000);
    answered(await h.coordinator.workerPort(W1).renew([]));
    await h.tick(1);
    expect(await h.lease()).toMatchObject({ taskId, epoch: 2 });
  });

  test('memory stays bounded: tasks that are over leave it, and are still found', async () => {
    const h = await Harness.start({ finishedMax: 50 });
    const ids: TaskId[] = [];
    for (let n = 0; n < 200; n += 1) {
      const id = await h.submit();
      value(await h.coordinator.client.cancel(ALICE, id));
      ids.push(id);
    }
    expect(h.coordinator.core.book.live.size).toBe(0);
    expect(h.coordinator.core.index.entries.length).toBeLessThanOrEqual(60);
    expect(h.coordinator.core.countOf('Cancelled')).toBe(200);
    const [oldest] = ids;
    expect(await h.phase(TaskId.parse(oldest))).toBe('Cancelled');
  });
});
