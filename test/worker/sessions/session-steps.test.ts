import { describe, expect, test } from '@jest/globals';
import type { StepReply } from '../../../src/backend.js';
import { StoreError } from '../../../src/events/store.js';
import { contextOf, phaseOf } from '../../../src/machines/job-aggregate.js';
import { sessionContextOf } from '../../../src/machines/session-aggregate.js';
import type { StepEnd } from '../../../src/machines/session-events.js';
import { stepId, taskId } from '../../support/ids.js';
import { exec, run, SessionWorld } from '../../support/session-world.js';

const READY_WAIT_MS = 30_000;
const NOTHING = { exitCode: null, signal: null, detail: '', droppedBytes: 0 } as const;
const stepEvents = async (world: SessionWorld): Promise<readonly string[]> =>
  (await world.sessionTypes()).filter((type) => type.startsWith('step.'));

describe('what is started', () => {
  test('a command of a rank is run by its agent, and its intention and end are events', async () => {
    const world = await new SessionWorld().ready();
    world.ask(exec({ rank: 1, argv: ['echo', 'hi'], stdin: true, timeLimitS: 5 }), { by: 'bob' });
    const agent = await world.agent(1);
    await world.sees(() => agent.commands.length > 0);
    const [command] = agent.commands;
    expect(command?.step).toEqual({
      stepId: stepId(),
      argv: ['echo', 'hi'],
      stdin: true,
      timeLimitMs: 5_000,
      outputLimitBytes: 1_000_000,
    });
    expect(sessionContextOf(await world.session()).openSteps).toMatchObject([{ stepId: stepId(), by: 'bob', rank: 1 }]);
    command?.say('hi\n');
    command?.exit(3);
    expect(await world.untilEnded()).toEqual({ ...NOTHING, how: 'exited', exitCode: 3 });
    expect(world.port.text(stepId())).toBe('hi\n');
    expect((await world.events()).at(-1)).toMatchObject({ type: 'step.ended', how: 'exited', exitCode: 3 });
  });

  test('INV-4 a command on the nodes is run by the backend inside the handle of the job, with its sizes said', async () => {
    const world = await new SessionWorld().ready();
    world.ask(run({ argv: ['hostname'], nodes: 2, timeLimitS: 1.5 }));
    await world.sees(() => world.steps.length > 0);
    const job = contextOf(await world.newest());
    const directory = `/runs/${job.jobId}`;
    expect(world.steps[0]?.request).toMatchObject({
      handle: job.handle,
      argv: ['hostname'],
      nodes: 2,
      tasks: 2,
      cpusPerTask: 1,
      directory,
      environment: { SITE: 'lab', OPEN_COMPUTE_DIRECTORY: directory },
      timeLimitMs: 1_500,
    });
    expect(world.backend.submissions).toHaveLength(1);
    world.steps[0]?.end({ kind: 'ended', exitCode: 0, signal: null });
    expect((await world.untilEnded()).exitCode).toBe(0);
  });

  test.each<readonly [StepReply, Partial<StepEnd>]>([
    [
      { kind: 'ended', exitCode: null, signal: '9' },
      { how: 'exited', signal: '9' },
    ],
    [{ kind: 'stopped', by: 'timeLimit' }, { how: 'timeLimit' }],
    [{ kind: 'stopped', by: 'cancel' }, { how: 'cancelled' }],
    [
      { kind: 'refused', detail: 'no such node' },
      { how: 'refused', detail: 'no such node' },
    ],
    [{ kind: 'unreachable', detail: 'no answer' }, { how: 'unknown' }],
    [{ kind: 'timedOut', afterMs: 1, detail: 'no answer' }, { how: 'unknown' }],
  ])('an answer of the backend, %j, ends a step as %j', async (reply, end) => {
    const world = await new SessionWorld().ready();
    world.ask(run());
    await world.sees(() => world.steps.length > 0);
    world.steps[0]?.end(reply);
    expect(await world.untilEnded()).toMatchObject({ ...NOTHING, detail: expect.any(String), ...end });
  });

  test('steps run at once, and one that is cancelled leaves the others and the allocation', async () => {
    const world = await new SessionWorld().ready();
    world.ask(exec());
    world.ask(run({ stepId: stepId(2) }));
    const agent = await world.agent();
    await world.sees(() => agent.commands.length === 1 && world.steps.length === 1);
    world.port.ask({ type: 'cancel', taskId: taskId(), stepId: stepId(), by: 'alice' });
    expect((await world.untilEnded()).how).toBe('cancelled');
    expect(agent.commands[0]?.cancels).toBe(1);
    world.port.ask({ type: 'cancel', taskId: taskId(), stepId: stepId(2), by: 'alice' });
    expect((await world.untilEnded(stepId(2))).how).toBe('cancelled');
    expect(await stepEvents(world)).toEqual([
      'step.requested',
      'step.requested',
      'step.cancelRequested',
      'step.ended',
      'step.cancelRequested',
      'step.ended',
    ]);
    expect([phaseOf(await world.newest()), world.backend.cancels]).toEqual(['Running', []]);
  });

  test('what a command could not be started for is its end, and so is an agent that goes', async () => {
    const world = await new SessionWorld().ready();
    world.ask(exec());
    const agent = await world.agent();
    await world.sees(() => agent.commands.length === 1);
    agent.commands[0]?.end({ kind: 'notStarted', detail: 'ENOENT' });
    expect(await world.untilEnded()).toEqual({ ...NOTHING, how: 'refused', detail: 'ENOENT' });
    world.ask(exec({ stepId: stepId(2) }));
    await world.sees(() => agent.commands.length === 2);
    world.gateway.leave(agent.id, 'the node is gone');
    expect(await world.untilEnded(stepId(2))).toEqual({ ...NOTHING, how: 'unknown', detail: 'the node is gone' });
  });

  test('an agent that is in and does not answer gets no command, and its session goes on', async () => {
    const world = await new SessionWorld().ready();
    const agent = await world.agent(1);
    agent.answers = false;
    world.ask(exec({ rank: 1 }));
    const detail = 'the agent of rank 1 does not answer; nothing was started';
    expect(await world.untilEnded()).toEqual({ ...NOTHING, how: 'refused', detail });
    expect(agent.commands).toEqual([]);
    world.ask(exec({ stepId: stepId(2), rank: 0 }));
    const other = await world.agent(0);
    await world.sees(() => other.commands.length === 1);
  });
});

describe('the intention', () => {
  test.each([
    ['at an agent', exec()],
    ['on the nodes', run()],
  ])('of a step %s is durable before anything is started', async (_, request) => {
    const world = await new SessionWorld().ready();
    let release = (): void => undefined;
    const written = new Promise<void>((resolve) => (release = resolve));
    world.beforeAppend = ({ events }) =>
      events.some(({ type }) => type === 'step.requested') ? written : Promise.resolve();
    world.ask(request);
    await world.run(5_000);
    const started = async (): Promise<number> => (await world.agent()).commands.length + world.steps.length;
    expect([await started(), await stepEvents(world)]).toEqual([0, []]);
    release();
    await world.sees(async () => (await started()) === 1);
    expect(await stepEvents(world)).toEqual(['step.requested']);
  });

  test('that can not be recorded starts nothing, and whoever asked is told', async () => {
    const world = await new SessionWorld().ready();
    world.onAppend = (when, appends) => {
      const asks = appends.some(({ events }) => events.some(({ type }) => type === 'step.requested'));
      if (when === 'before' && asks) throw new StoreError('full', 'no space');
    };
    world.ask(exec());
    expect(await world.untilEnded()).toMatchObject({
      how: 'refused',
      detail: expect.stringContaining('could not record it'),
    });
    expect([(await world.agent()).commands, await stepEvents(world)]).toEqual([[], []]);
  });

  test('INV-4 a job that ended while it was being written gives no handle to start anything in', async () => {
    const world = await new SessionWorld().ready();
    let release = (): void => undefined;
    const written = new Promise<void>((resolve) => (release = resolve));
    world.beforeAppend = () => written;
    world.ask(run());
    await world.run(2_000);
    world.backend.setAll({ phase: 'Failed', reason: 'EXIT_NONZERO' });
    await world.untilPhase('Failed');
    release();
    await world.sees(() => world.steps.length > 0);
    expect(world.steps[0]?.request.handle).toBeNull();
  });
});

test('a step that is asked for twice runs once, also when it has ended and was taken by then', async () => {
  const world = await new SessionWorld().ready();
  world.ask(exec());
  world.ask(exec());
  const agent = await world.agent();
  await world.sees(() => agent.commands.length > 0);
  agent.commands[0]?.exit(3);
  await world.untilEnded();
  await world.run(1_000);
  world.ask(exec());
  const offers = world.port.offers.length;
  await world.sees(() => world.port.offers.length > offers);
  expect(world.port.offers.at(-1)?.news.end).toMatchObject({ how: 'exited', exitCode: 3 });
  expect([agent.commands.length, await stepEvents(world)]).toEqual([1, ['step.requested', 'step.ended']]);
});

describe('the end', () => {
  test('is recorded before anybody is told, also when the disk is full for a while', async () => {
    const world = await new SessionWorld().ready();
    world.ask(exec());
    const agent = await world.agent();
    await world.sees(() => agent.commands.length === 1);
    world.onAppend = (when, appends) => {
      const ends = appends.some(({ events }) => events.some(({ type }) => type === 'step.ended'));
      if (when === 'before' && ends) throw new StoreError('full', 'no space');
    };
    agent.commands[0]?.exit();
    await world.run(5_000);
    expect([world.port.step(stepId()).end, await stepEvents(world)]).toEqual([null, ['step.requested']]);
    world.onAppend = () => undefined;
    await world.untilEnded();
    expect(await stepEvents(world)).toEqual(['step.requested', 'step.ended']);
  });
});

describe('INV-5 a step that is asked for while a rank is on its way back', () => {
  test('waits for it, and starts nothing meanwhile', async () => {
    const world = await new SessionWorld().ready();
    const { id } = await world.agent(1);
    world.gateway.leave(id);
    await world.untilState('Starting');
    world.ask(run());
    await world.run(READY_WAIT_MS / 2);
    expect([world.steps.length, await stepEvents(world)]).toEqual([0, []]);
    world.gateway.join(id.jobId, 1);
    await world.sees(() => world.steps.length === 1);
  });

  test('is refused after half a minute, with what is missing', async () => {
    const world = await new SessionWorld().ready();
    world.gateway.leave((await world.agent(1)).id);
    await world.untilState('Starting');
    world.ask(run());
    await world.run(READY_WAIT_MS - 2_000);
    expect(world.port.step(stepId()).end).toBeNull();
    await world.run(4_000);
    expect(world.port.step(stepId()).end).toMatchObject({
      how: 'refused',
      detail: expect.stringContaining('waiting for rank 1'),
    });
    expect([world.steps, await stepEvents(world)]).toEqual([[], []]);
  });

  test('is given up when it is cancelled, or when the session ends', async () => {
    const world = await new SessionWorld().ready();
    world.gateway.leave((await world.agent(1)).id);
    await world.untilState('Starting');
    world.ask(run());
    world.ask(exec({ stepId: stepId(2) }));
    await world.run(1_000);
    world.port.ask({ type: 'cancel', taskId: taskId(), stepId: stepId(), by: 'alice' });
    expect(await world.untilEnded()).toMatchObject({ how: 'refused', detail: expect.stringContaining('cancelled') });
    world.coordinator.wishes = {
      lost: [],
      cancel: [{ taskId: taskId(), by: 'alice', asAdmin: false }],
      abandon: [],
      wantLogs: [],
    };
    expect((await world.untilEnded(stepId(2))).how).toBe('refused');
    expect([world.steps, await stepEvents(world)]).toEqual([[], []]);
  });
});
