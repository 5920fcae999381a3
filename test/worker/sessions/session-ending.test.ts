import { describe, expect, test } from '@jest/globals';
import { contextOf, phaseOf } from '../../../src/machines/job-aggregate.js';
import { sessionContextOf, sessionStateOf } from '../../../src/machines/session-aggregate.js';
import type { CancelReason } from '../../../src/machines/vocabulary.js';
import { NO_WISHES } from '../../support/fake-coordinator.js';
import { stepId, taskId } from '../../support/ids.js';
import { exec, run, SessionWorld, type Limits } from '../../support/session-world.js';

const MINUTE = 60_000;
const DRAIN_MS = 15_000;

/** A session with a command at its agent and one on its nodes. */
async function busy(limits: Limits = {}, watchLimitMs = 24 * 60 * MINUTE, queuedMs = 0): Promise<SessionWorld> {
  const world = await new SessionWorld(limits, { watchLimitMs }).ready(queuedMs);
  world.ask(exec());
  world.ask(run({ stepId: stepId(2) }));
  const agent = await world.agent();
  await world.sees(() => agent.commands.length === 1 && world.steps.length === 1);
  return world;
}

/** What happened in the session and to its job's end, in the order of the log. */
async function order(world: SessionWorld): Promise<readonly string[]> {
  const told = ['session.ending', 'step.cancelRequested', 'step.ended', 'cancel.requested', 'session.ended'];
  return (await world.recorded()).map(({ event }) => event.type).filter((type) => told.includes(type));
}

const timeOf = async (world: SessionWorld, type: string): Promise<number> => {
  const found = (await world.recorded()).find(({ event }) => event.type === type);
  if (found === undefined) throw new Error(`there is no ${type}`);
  return found.event.atMs;
};

const cancelled = (world: SessionWorld, asAdmin = false): void => {
  world.coordinator.wishes = { ...NO_WISHES, cancel: [{ taskId: taskId(), by: 'alice', asAdmin }] };
};

describe('a session that is to end', () => {
  test.each<readonly [string, CancelReason, () => Promise<SessionWorld>, (world: SessionWorld) => void]>([
    ['its user wants it', 'USER_CANCELLED', () => busy(), (world) => cancelled(world)],
    ['an administrator wants it', 'ADMIN_CANCELLED', () => busy(), (world) => cancelled(world, true)],
    [
      'its lease is lost',
      'LEASE_LOST',
      () => busy(),
      (world) => (world.coordinator.wishes = { ...NO_WISHES, lost: [taskId()] }),
    ],
    [
      'the watch limit is reached',
      'WATCH_LIMIT_EXCEEDED',
      () => busy({ maxLifetimeS: 60 }, 100, 8_000),
      () => undefined,
    ],
    ['its lifetime is over', 'SESSION_MAX_LIFETIME_EXCEEDED', () => busy({ maxLifetimeS: 60 }), () => undefined],
  ])('because %s takes no new steps, ends those that run, and then its job, for %s', async (_, reason, begin, wish) => {
    const world = await begin();
    world.backend.obeysCancel = false;
    wish(world);
    await world.sees(async () => (await order(world)).includes('cancel.requested'));
    expect(await order(world)).toEqual([
      'session.ending',
      'step.cancelRequested',
      'step.cancelRequested',
      'step.ended',
      'step.ended',
      'cancel.requested',
    ]);
    expect(sessionContextOf(await world.session()).ending?.reason).toBe(reason);
    expect(contextOf(await world.newest()).cancel?.reason).toBe(reason);
    world.ask(exec({ stepId: stepId(3) }));
    expect(await world.untilEnded(stepId(3))).toMatchObject({ how: 'refused' });
    world.backend.obeysCancel = true;
    await world.untilPhase('Cancelled', 'Failed');
  });

  test('whose user wanted it is Ended, with the reason, when the coordinator has taken the outcome', async () => {
    const world = await busy();
    cancelled(world);
    await world.untilState('Ended');
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'cancelled', reason: 'USER_CANCELLED' }]);
    expect(sessionContextOf(await world.session()).end).toMatchObject({ phase: 'Cancelled', reason: 'USER_CANCELLED' });
    await world.sees(() => world.port.view(taskId())?.state === 'Ended');
    expect(world.gateway.dismissed).toEqual([await world.jobId()]);
  });

  test('waits for a step that does not end for 15 s and no longer; then the allocation goes, and the step with it', async () => {
    const world = await busy();
    world.stepsObeyCancel = false;
    cancelled(world);
    await world.sees(async () => (await order(world)).includes('session.ending'));
    await world.run(DRAIN_MS - 1_000);
    expect([contextOf(await world.newest()).cancel, world.backend.cancels]).toEqual([null, []]);
    await world.run(2_000);
    const waitedMs = (await timeOf(world, 'cancel.requested')) - (await timeOf(world, 'session.ending'));
    expect(waitedMs).toBeGreaterThanOrEqual(DRAIN_MS);
    expect(waitedMs).toBeLessThan(DRAIN_MS + 1_000);
    await world.untilPhase('Cancelled');
    await world.untilState('Ended');
  });

  test('before it has nodes ends at once, and never was ready', async () => {
    const world = new SessionWorld();
    await world.start();
    world.offer();
    await world.untilPhase('Pending');
    cancelled(world);
    await world.untilState('Ended');
    expect(await order(world)).toEqual(['session.ending', 'cancel.requested', 'session.ended']);
  });
});

describe('the idle clock', () => {
  test('runs out although agents answer, leave and come back all the time', async () => {
    const world = await new SessionWorld({ idleLimitS: 60 }).ready();
    for (let n = 0; n < 5; n += 1) {
      world.gateway.leave((await world.agent(1)).id);
      await world.run(4_000);
      world.gateway.join(await world.jobId(), 1);
      await world.run(6_000);
    }
    expect(sessionStateOf(await world.session())).toBe('Ready');
    await world.untilState('Ended');
    const grantedAtMs = await timeOf(world, 'allocation.granted');
    const idleMs = (await timeOf(world, 'session.ending')) - grantedAtMs;
    expect(idleMs).toBeGreaterThanOrEqual(MINUTE);
    expect(idleMs).toBeLessThan(MINUTE + 1_000);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'cancelled', reason: 'SESSION_IDLE_TIMEOUT' }]);
  });

  test('stands still while a step runs, and begins anew when it has ended', async () => {
    const world = await new SessionWorld({ idleLimitS: 60 }).ready();
    await world.run(30_000);
    world.ask(exec());
    await world.run(5 * MINUTE);
    expect(sessionStateOf(await world.session())).toBe('Ready');
    (await world.agent()).commands[0]?.exit();
    await world.untilEnded();
    await world.untilState('Ending');
    const idleMs = (await timeOf(world, 'session.ending')) - (await timeOf(world, 'step.ended'));
    expect(idleMs).toBeGreaterThanOrEqual(MINUTE);
    expect(idleMs).toBeLessThan(MINUTE + 1_000);
  });

  test('does not run while the session waits for its nodes', async () => {
    const world = new SessionWorld({ idleLimitS: 60, maxLifetimeS: 60 });
    await world.start();
    world.offer();
    await world.untilPhase('Pending');
    await world.run(10 * MINUTE);
    expect(sessionStateOf(await world.session())).toBe('Waiting');
  });

  test('that ran out is why the task ends, also when the job is then lost', async () => {
    const world = await new SessionWorld({ idleLimitS: 60 }).ready();
    world.backend.obeysCancel = false;
    await world.sees(async () => contextOf(await world.newest()).cancel !== null);
    world.backend.setAll({ phase: 'Lost', reason: 'NODE_FAILED' });
    await world.untilPhase('Lost');
    await world.sees(async () => (await world.newest()).aftermath.delivered);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'cancelled', reason: 'SESSION_IDLE_TIMEOUT' }]);
    // Nobody wants another job for it: it does not wait for one.
    await world.untilState('Ended');
    expect(sessionContextOf(await world.session()).end).toMatchObject({
      phase: 'Cancelled',
      reason: 'SESSION_IDLE_TIMEOUT',
    });
  });
});

describe('a job that ends by itself', () => {
  test('ends its session and its steps, of which nobody can say how they ended', async () => {
    const world = await busy();
    world.stepsObeyCancel = false;
    world.backend.setAll({ phase: 'Failed', reason: 'EXIT_NONZERO' });
    for (const { id } of [...world.gateway.agents.values()]) world.gateway.leave(id, 'the gang has ended');
    expect(await world.untilEnded()).toMatchObject({ how: 'unknown', detail: 'the gang has ended' });
    await world.untilPhase('Failed');
    world.steps[0]?.end({ kind: 'unreachable', detail: 'no such job' });
    await world.untilState('Ended');
    expect(sessionContextOf(await world.session()).end).toMatchObject({ phase: 'Failed', reason: 'EXIT_NONZERO' });
    expect(sessionContextOf(await world.session()).openSteps).toEqual([]);
    expect(phaseOf(await world.newest())).toBe('Failed');
  });
});
