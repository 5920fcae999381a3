import { beforeEach, describe, expect, test } from '@jest/globals';
import type { SessionReport, StepEnd, StepRequest } from '../../src/coordinator/session-api.js';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { epoch, jobId, stepId, token } from '../support/ids.js';
import { flush } from '../support/manual-clock.js';
import { ADMIN, ALICE, BOB, Harness, problem, profile, sessionView, value, VIEWER, W1, W2, worker } from './harness.js';

const run = (n = 1): StepRequest => ({
  mode: 'run',
  stepId: stepId(n),
  argv: ['hostname'],
  timeLimitS: null,
  outputLimitBytes: 1000,
  nodes: 2,
  tasks: 2,
  cpusPerTask: null,
});
const exited: StepEnd = { how: 'exited', exitCode: 0, signal: null, detail: '', droppedBytes: 0 };
const kinds = ['training', 'session'];
const offer = { kinds, profiles: [profile('smoke', null, kinds)] };
const at = { stdout: 0, stderr: 0, waitMs: 0 };
const said = (text: string) => [{ stream: 'stdout' as const, offset: 0, data: Buffer.from(text).toString('base64') }];

let h: Harness;
let id: TaskId;
beforeEach(async () => {
  h = await Harness.start();
  id = await h.session();
});

const sessions = () => h.coordinator.sessions;
const report = async (over: Partial<SessionReport>, who = W1) =>
  value(await sessions().report(who, { views: [], steps: [], ...over }));
const view = (words: string, n = 1) => ({ epoch: epoch(n), view: sessionView({ taskId: id, words }) });
const news = (end: StepEnd | null, text = 'n0', n = 1) => ({
  ...{
    taskId: id,
    epoch: epoch(n),
    stepId: stepId(),
    pieces: said(text),
    notice: null,
    stdinTaken: 0,
    sizes: null,
    end,
  },
});
const lose = async (who = W1, n = 1) =>
  value(
    await h.coordinator.worker.outcome(who, {
      ...{ type: 'lost', taskId: id, epoch: epoch(n), jobId: jobId(n), reason: 'NODE_FAILED', detail: 'n0 is down' },
    }),
  );
const refusal = async (step = run()) => {
  const given = await sessions().ask(ALICE, id, step);
  return given.ok ? 'none' : `${given.problem.code}: ${given.problem.message}`;
};

describe('a step', () => {
  test('goes to the worker that holds the session, and its output to whoever asked', async () => {
    const port = h.coordinator.sessionPort(W1);
    const polling = port.calls({ desk: null, after: 0, waitMs: 30_000 });
    expect(value(await sessions().ask(ALICE, id, run()))).toEqual({ stepId: stepId(), created: true, epoch: 1 });
    const polled = await polling;
    expect(polled).toMatchObject({
      kind: 'answered',
      value: { calls: [{ seq: 1, call: { type: 'step', taskId: id, by: 'alice', request: run() } }] },
    });
    const reading = sessions().output(ALICE, id, stepId(), { ...at, waitMs: 30_000 });
    expect(await port.report({ views: [], steps: [news(exited)] })).toMatchObject({
      kind: 'answered',
      value: { stale: [], taken: [{ stdout: 2, stderr: 0, ended: true }] },
    });
    expect(value(await reading)).toEqual({ pieces: said('n0'), notice: null, waiting: null, end: exited, sizes: null });
  });

  test('a long poll for calls and one for output end without anything after their time', async () => {
    value(await sessions().ask(ALICE, id, run()));
    const reading = sessions().output(ALICE, id, stepId(), { ...at, waitMs: 5_000 });
    await flush();
    await h.tick(5_000);
    expect(value(await reading)).toEqual({
      pieces: [],
      notice: null,
      waiting: 'its worker has not taken the step up yet',
      end: null,
      sizes: null,
    });
    const polling = sessions().calls(W2, { desk: null, after: 0, waitMs: 5_000 });
    expect(problem(await polling)).toBe('hello_needed');
    await h.greet(W2, offer);
    const second = sessions().calls(W2, { desk: null, after: 0, waitMs: 5_000 });
    await flush();
    await h.tick(5_000);
    expect(value(await second).calls).toEqual([]);
  });

  test('a coordinator that closes lets long polls go', async () => {
    value(await sessions().ask(ALICE, id, run()));
    const reading = sessions().output(ALICE, id, stepId(), { ...at, waitMs: 30_000 });
    await h.coordinator.close();
    expect(value(await reading).end).toBeNull();
  });

  test('others see neither session nor step; a viewer looks and does not decide; an admin may', async () => {
    value(await sessions().ask(ALICE, id, run()));
    await report({ steps: [news(exited)] });
    for (const given of [
      await sessions().get(BOB, id),
      await sessions().ask(BOB, id, run(2)),
      await sessions().output(BOB, id, stepId(), at),
      await sessions().input(BOB, id, stepId(), { offset: 0, data: '', end: true }),
      await sessions().cancel(BOB, id, stepId()),
    ])
      expect(problem(given)).toBe('not_found');
    expect(value(await sessions().list(BOB, { all: 'true', limit: 10 })).sessions).toEqual([]);
    expect(value(await sessions().output(VIEWER, id, stepId(), at)).pieces).toHaveLength(1);
    expect(problem(await sessions().ask(VIEWER, id, run(2)))).toBe('forbidden');
    expect(problem(await sessions().cancel(VIEWER, id, stepId()))).toBe('forbidden');
    expect(problem(await sessions().ask(ADMIN, id, run(2)))).toBe('none');
    expect(problem(await sessions().ask(ADMIN, id, run()))).toBe('key_reused');
    // The step of somebody else is not used up by looking.
    expect(value(await sessions().output(ALICE, id, stepId(), at)).pieces).toHaveLength(1);
  });

  test('input is for a step that was asked for with it', async () => {
    value(await sessions().ask(ALICE, id, run()));
    const piece = { offset: 0, data: '', end: true };
    expect(problem(await sessions().input(ALICE, id, stepId(), piece))).toBe('invalid_request');
    expect(problem(await sessions().input(ALICE, id, stepId(2), piece))).toBe('not_found');
  });
});

describe('INV-4 a step is refused where no allocation is held', () => {
  test('while the session waits for a worker', async () => {
    const sent = await h.coordinator.client.submit(ALICE, { kind: 'session', payload: { profile: 'smoke' } }, null);
    id = value(sent).taskId;
    expect(await refusal()).toMatch(
      /^no_allocation: the session task_\w+ is waiting for a worker \(waits for a worker with room\); a step runs only inside an allocation that the session holds$/,
    );
    await h.lease(W1);
    expect(await refusal()).toMatch(/^no_allocation: .* has no job yet: worker w1 has just taken it/);
  });

  test('once its end was wished, and after it, with the reason', async () => {
    value(await h.coordinator.client.cancel(ALICE, id));
    expect(await refusal()).toMatch(/^no_allocation: .* is being ended, and takes no new steps/);
    const reason = 'SESSION_IDLE_TIMEOUT';
    const outcome = { type: 'cancelled', taskId: id, epoch: epoch(), jobId: jobId(), reason } as const;
    value(await h.coordinator.worker.outcome(W1, outcome));
    expect(await refusal()).toMatch(
      /^no_allocation: .* has ended: Cancelled\(SESSION_IDLE_TIMEOUT\); a step runs only/,
    );
    expect(value(await sessions().calls(W1, { desk: null, after: 0, waitMs: 0 })).calls).toEqual([]);
  });

  test('a task of another kind is no session', async () => {
    id = await h.submit();
    expect(await refusal()).toMatch(/^not_found: task_\w+ is a task of kind "training", and no session/);
  });
});

describe('INV-7 old incarnations', () => {
  test('views and output of an old epoch, of another worker and of no session are named, and change nothing', async () => {
    value(await sessions().ask(ALICE, id, run()));
    await report({ views: [view('ready')] });
    const before = value(await sessions().get(ALICE, id));
    await h.greet(W2, offer);
    for (const [who, n] of [
      [W2, 1],
      [W1, 2],
    ] as const) {
      const answer = await report({ views: [view('forged', n)], steps: [news(exited, 'forged', n)] }, who);
      expect(answer).toMatchObject({ stale: [id], taken: [null] });
    }
    expect(value(await sessions().get(ALICE, id))).toEqual(before);
    expect(value(await sessions().output(ALICE, id, stepId(), at)).pieces).toEqual([]);
    expect(h.coordinator.core.counters.staleRefused).toBe(2);
  });

  test('a lost job ends its steps as unknown; the next job is another epoch, and the old one is refused', async () => {
    value(await sessions().ask(ALICE, id, run()));
    value(await sessions().calls(W1, { desk: null, after: 0, waitMs: 0 }));
    await report({ views: [view('ready')] });
    await lose();
    expect(value(await sessions().output(ALICE, id, stepId(), at)).end).toMatchObject({ how: 'unknown' });
    expect(value(await sessions().get(ALICE, id)).session).toMatchObject({ state: 'Interrupted', ranksIn: [] });
    await h.openJob(W1);
    expect(await report({ views: [view('ready', 1)], steps: [news(exited)] })).toMatchObject({ stale: [id] });
    await report({ views: [view('ready again', 2)] });
    expect(value(await sessions().get(ALICE, id)).session?.words).toBe('ready again');
  });

  test('a step is never handed to a later job than the one it was asked of', async () => {
    value(await sessions().ask(ALICE, id, run()));
    await lose();
    await h.openJob(W1);
    await h.crash();
    const again = await sessions().ask(ALICE, id, run(), 1);
    expect(again.ok ? '' : again.problem.message).toContain('has come back as a new job (epoch 2, and not 1)');
    expect(problem(await sessions().ask(ALICE, id, run(), 2))).toBe('none');
  });
});

describe('a session', () => {
  test('may be lost four times: it comes back at most three times', async () => {
    for (let n = 1; n <= 3; n += 1) {
      await lose(W1, n);
      expect(await h.phase(id)).toBe('Queued');
      await h.openJob(W1);
    }
    await lose(W1, 4);
    expect(await h.phase(id)).toBe('DeadLetter');
  });

  test('whose worker is silent is not said to be ready, and one that is asked to end says so', async () => {
    await report({ views: [{ epoch: epoch(), view: sessionView({ taskId: id, state: 'Ready', words: 'ready' }) }] });
    const shown = async () => value(await sessions().get(ALICE, id)).session;
    expect(await shown()).toMatchObject({ state: 'Ready', words: 'ready' });
    await h.tick(29_000);
    expect(await shown()).toMatchObject({ state: 'Ready' });
    await h.tick(11_000);
    expect(await shown()).toMatchObject({
      state: 'Starting',
      readiness: { agent: false },
      words: 'worker w1 has not been heard for 40 s; last heard: ready',
    });
    value(await h.coordinator.client.cancel(ALICE, id));
    expect((await shown())?.words).toBe(
      'asked to end by alice; worker w1 has not been heard for 40 s; last heard: ready',
    );
  });

  test('has the last words of its worker; without them nobody claims that it goes on', async () => {
    value(await sessions().ask(ALICE, id, run()));
    value(await sessions().calls(W1, { desk: null, after: 0, waitMs: 0 }));
    const step = {
      ...{ stepId: stepId(), mode: 'run' as const, rank: null, argv: ['hostname'], by: 'alice', requestedAtMs: 1 },
      ...{ end: null, endedAtMs: null },
    };
    await report({ views: [{ epoch: epoch(), view: sessionView({ taskId: id, steps: [step] }) }] });
    const outcome = { type: 'failed', taskId: id, epoch: epoch(), jobId: jobId(), reason: 'EXIT_NONZERO' } as const;
    value(await h.coordinator.worker.outcome(W1, { ...outcome, detail: 'rank 1 left' }));
    expect(value(await sessions().get(ALICE, id)).session).toMatchObject({
      state: 'Ended',
      words: 'ended: Failed(EXIT_NONZERO)',
      readiness: { allocation: false, agent: false },
      steps: [{ end: { how: 'unknown' } }],
    });
    expect(await report({ steps: [news({ ...exited, how: 'cancelled' })] })).toMatchObject({
      stale: [],
      taken: [{ ended: true }],
    });
    const last = { ...sessionView({ taskId: id, state: 'Ended', words: 'rank 1 left' }) };
    await report({ views: [{ epoch: epoch(), view: last }] });
    expect(value(await sessions().get(ALICE, id)).session?.words).toBe('rank 1 left');
    expect(value(await sessions().output(ALICE, id, stepId(), at)).end?.how).toBe('cancelled');
  });

  test('is listed while it goes on, or with all; also after a restart from a checkpoint', async () => {
    await h.submit();
    const ids = async (all: 'true' | 'false') =>
      value(await sessions().list(ALICE, { all, limit: 10 })).sessions.map(({ task }) => task.taskId);
    expect([await ids('false'), await ids('true')]).toEqual([[id], [id]]);
    const outcome = {
      type: 'cancelled',
      taskId: id,
      epoch: epoch(),
      jobId: jobId(),
      reason: 'USER_CANCELLED',
    } as const;
    value(await h.coordinator.worker.outcome(W1, outcome));
    expect([await ids('false'), await ids('true')]).toEqual([[], [id]]);
    await h.coordinator.close();
    await h.crash();
    expect([await ids('false'), await ids('true')]).toEqual([[], [id]]);
  });

  test('is the same after a restart: its view comes with the next report, its steps when they are asked for again', async () => {
    value(await sessions().ask(ALICE, id, run()));
    const { desk } = value(await sessions().calls(W1, { desk: null, after: 0, waitMs: 0 }));
    await report({ views: [view('ready')] });
    await h.crash();
    expect(value(await sessions().get(ALICE, id)).session).toBeNull();
    expect(problem(await sessions().output(ALICE, id, stepId(), at))).toBe('not_found');
    expect((await report({ views: [view('ready')], steps: [news(null)] })).taken).toEqual([null]);
    expect(value(await sessions().ask(ALICE, id, run(), 1)).created).toBe(true);
    const calls = value(await sessions().calls(W1, { desk, after: 1, waitMs: 0 }));
    expect(calls.desk).not.toBe(desk);
    expect(calls.calls).toHaveLength(1);
  });
});

describe('who gets a session', () => {
  const submit = (name = 'smoke') =>
    h.coordinator.client.submit(ALICE, { kind: 'session', payload: { profile: name } }, null);
  const why = async (name: string, kind = 'session') => {
    const given = await h.coordinator.client.submit(ALICE, { kind, payload: { profile: name } }, null);
    return given.ok ? given.value.waiting : given.problem.message;
  };

  test('a worker that offers sessions, with a profile that serves them', async () => {
    const third = worker('w3');
    await h.greet(third, {
      kinds,
      profiles: [profile('batch', null, ['training']), profile('desk', null, ['session'])],
    });
    value(await submit('desk'));
    expect(await h.acquire(W1, 10)).toEqual([]);
    expect(await h.acquire(third, 10)).toHaveLength(1);
    expect(await why('batch')).toBe('profile "batch" serves tasks of kind "training" only');
    expect(await why('desk', 'training')).toBe('profile "desk" serves sessions only');
    expect(await why('nothing')).toBe('no worker offers a profile "nothing"');
  });

  test('while no worker offers sessions it waits, and says what is missing', async () => {
    h = await Harness.start();
    await h.greet(W1);
    expect(await why('smoke')).toBe('profile "smoke" serves tasks of kind "training" only');
    await h.greet(W1, { profiles: [profile('smoke', null, kinds)] });
    expect(await why('smoke')).toBe('no worker offers sessions: one has to run with --session-listen');
    expect(problem(await h.coordinator.client.submit(ALICE, { kind: 'session', payload: {} }, null))).toBe(
      'invalid_request',
    );
  });
});

test('a worker takes one job of a session at a time', async () => {
  const item = { type: 'opened', taskId: id, epoch: epoch(), jobId: jobId(9), token: token(9) } as const;
  expect(value(await h.coordinator.worker.report(W1, [item])).verdicts).toEqual(['stale']);
});
