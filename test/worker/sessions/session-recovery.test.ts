import { describe, expect, test } from '@jest/globals';
import { LEAVE_RUNNING } from '../../../src/backend.js';
import { contextOf, phaseOf } from '../../../src/machines/job-aggregate.js';
import { sessionContextOf, sessionStateOf } from '../../../src/machines/session-aggregate.js';
import { NO_WISHES } from '../../support/fake-coordinator.js';
import { stepId, taskId } from '../../support/ids.js';
import { exec, run, SessionWorld } from '../../support/session-world.js';

const RUNNING = { phase: 'Running', ending: false } as const;
const UNKNOWN = { how: 'unknown', detail: expect.stringContaining('the worker restarted') };

/** A session whose job was lost with its node, told to the coordinator. */
async function lost(world: SessionWorld): Promise<SessionWorld> {
  world.backend.setAll({ phase: 'Lost', reason: 'NODE_FAILED' });
  for (const { id } of [...world.gateway.agents.values()]) world.gateway.leave(id, 'the node is gone');
  await world.untilState('Interrupted');
  await world.sees(() => world.coordinator.outcomes.length > 0);
  return world;
}

async function comesBack(world: SessionWorld): Promise<void> {
  world.backend.setAll(null);
  world.offer(1, 2);
  await world.untilPhase('Pending');
  world.backend.setAll(RUNNING);
  await world.untilState('Starting');
  await world.joinAll();
}

describe('a session whose job was lost', () => {
  test('is interrupted, not ended, and the task is told as lost', async () => {
    const world = await new SessionWorld().ready();
    const jobId = await world.jobId();
    await lost(world);
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'lost', reason: 'NODE_FAILED', jobId }]);
    expect((await world.events()).at(-1)).toMatchObject({ type: 'session.interrupted', jobId, reason: 'NODE_FAILED' });
    expect(world.gateway.dismissed).toEqual([jobId]);
    await world.sees(() => world.port.view(taskId())?.state === 'Interrupted');
    world.ask(exec());
    expect((await world.untilEnded()).how).toBe('refused');
  });

  test('INV-7 comes back as a new job at a higher epoch, in the same stream, and only its agents are awaited', async () => {
    const world = await lost(await new SessionWorld().ready());
    const former = await world.jobId();
    await comesBack(world);
    const jobId = await world.jobId();
    expect(jobId).not.toBe(former);
    expect([...world.gateway.awaited]).toEqual([[jobId, { epoch: 2, ranks: 2 }]]);
    expect(sessionContextOf(await world.session())).toMatchObject({ jobId, epoch: 2, recoveries: 1 });
    expect((await world.sessionTypes()).filter((type) => type === 'session.requested')).toHaveLength(1);
    await world.sees(() => world.port.view(taskId())?.recoveries === 1);
    expect(world.port.reports.at(-1)?.views.at(-1)?.epoch).toBe(2);
  });

  test('tells its users with the first step, once, that what was in memory is gone', async () => {
    const world = await lost(await new SessionWorld().ready());
    await comesBack(world);
    for (const n of [1, 2]) {
      world.ask(exec({ stepId: stepId(n) }));
      const agent = await world.agent();
      await world.sees(() => agent.commands.length === n);
      agent.commands.at(-1)?.exit();
      await world.untilEnded(stepId(n));
    }
    expect(world.port.step(stepId(1)).notices).toEqual([
      'this session came back as a new job (NODE_FAILED): what its processes had in memory is gone',
    ]);
    expect(world.port.step(stepId(2)).notices).toEqual([]);
  });

  test('keeps the size and the limits with which it began, whatever its profile says by now', async () => {
    const world = await lost(await new SessionWorld({ idleLimitS: 100 }).ready());
    const gang = world.profiles.get('gang');
    if (!gang?.session) throw new Error('no such profile');
    world.profiles.set('gang', { ...gang, nodes: 4, session: { ...gang.session, idleLimitS: 7 } });
    await comesBack(world);
    expect(world.backend.submissions.at(-1)).toMatchObject({ profile: { nodes: 2 }, session: { ranks: 2 } });
    expect(sessionContextOf(await world.session())).toMatchObject({ ranks: 2, idleLimitMs: 100_000 });
  });

  test('closes the steps that ran in it: nobody can say how they ended', async () => {
    const world = await new SessionWorld().ready();
    world.stepsObeyCancel = false;
    world.ask(exec());
    world.ask(run({ stepId: stepId(2) }));
    const agent = await world.agent();
    await world.sees(() => agent.commands.length === 1 && world.steps.length === 1);
    await lost(world);
    expect(await world.untilEnded()).toMatchObject({ how: 'unknown', detail: 'the node is gone' });
    world.steps[0]?.end({ kind: 'unreachable', detail: 'no such job' });
    expect((await world.untilEnded(stepId(2))).how).toBe('unknown');
    expect(sessionContextOf(await world.session()).openSteps).toEqual([]);
  });
});

test('a session whose lease was lost is interrupted here, not ended: it may go on elsewhere', async () => {
  const world = await new SessionWorld().ready();
  world.coordinator.wishes = { ...NO_WISHES, lost: [taskId()] };
  await world.untilPhase('Cancelled');
  await world.untilState('Interrupted');
  await world.sees(async () => (await world.newest()).aftermath.delivered);
  await world.run(5_000);
  expect(world.coordinator.outcomes).toEqual([]);
  expect(await world.sessionTypes()).not.toContain('session.ended');
});

test('a session whose lease was lost is interrupted as soon as its job is over, though nobody can be told', async () => {
  const world = await new SessionWorld().ready();
  world.backend.obeysCancel = false;
  world.coordinator.wishes = { ...NO_WISHES, lost: [taskId()] };
  await world.sees(async () => contextOf(await world.newest()).cancel !== null);
  world.coordinator.trouble = { kind: 'unreachable', detail: 'away' };
  world.backend.setAll({ phase: 'Cancelled', reason: 'ADMIN_CANCELLED' });
  await world.untilState('Interrupted');
  expect((await world.newest()).aftermath.delivered).toBe(false);
});

describe('a worker that restarts', () => {
  test.each([
    ['was told to end', (world: SessionWorld) => world.stop()],
    ['crashed', (world: SessionWorld) => world.crash()],
  ])('after it %s finds its agents again, and says which steps it can not speak for', async (_, end) => {
    const world = await new SessionWorld().ready();
    world.ask(exec());
    world.ask(run({ stepId: stepId(2) }));
    const agent = await world.agent();
    await world.sees(() => agent.commands.length === 1 && world.steps.length === 1);
    const { prepared, credentials } = world.sessionDirectories;
    const before = [prepared.length, credentials.length];
    const jobId = await world.jobId();
    await end(world);
    await world.start();
    expect(await world.untilEnded()).toMatchObject(UNKNOWN);
    expect(await world.untilEnded(stepId(2))).toMatchObject(UNKNOWN);
    const since = (await world.events()).slice(-4);
    expect(since.map((event) => `${event.type} ${'rank' in event ? String(event.rank) : ''}`).sort()).toEqual([
      'rank.left 0',
      'rank.left 1',
      'step.ended ',
      'step.ended ',
    ]);
    // The gateway may be at another address, and its key is another one.
    expect(world.gateways).toHaveLength(2);
    expect([...world.gateway.awaited]).toEqual([[jobId, { epoch: 1, ranks: 2 }]]);
    expect([prepared.length, credentials.slice(before[1]).map(({ rank }) => rank)]).toEqual([
      (before[0] ?? 0) + 1,
      [0, 1],
    ]);
    await world.joinAll();
    world.ask(exec({ stepId: stepId(3) }));
    const back = await world.agent();
    await world.sees(() => back.commands.length === 1);
    expect([phaseOf(await world.newest()), world.backend.submissions.length]).toEqual(['Running', 1]);
  });

  test('leaves what runs on the nodes running', async () => {
    const world = await new SessionWorld().ready();
    world.ask(run());
    await world.sees(() => world.steps.length === 1);
    await world.stop();
    expect(world.steps[0]?.request.signal.reason).toBe(LEAVE_RUNNING);
    expect(await world.sessionTypes()).not.toContain('step.ended');
    expect(world.gateway.isClosed).toBe(true);
  });

  test('does not run a step a second time that its former life ran, also when many have ended since', async () => {
    const world = await new SessionWorld().ready();
    const agent = await world.agent();
    for (let n = 1; n <= 22; n += 1) {
      world.ask(exec({ stepId: stepId(n) }));
      await world.sees(() => agent.commands.length === n);
      agent.commands.at(-1)?.exit(n);
      await world.untilEnded(stepId(n));
    }
    expect(sessionContextOf(await world.session()).pastSteps).toHaveLength(20);
    await world.crash();
    world.port.restart();
    await world.start();
    await world.joinAll();
    for (const n of [1, 22]) {
      world.ask(exec({ stepId: stepId(n) }));
      expect((await world.untilEnded(stepId(n))).exitCode).toBe(n);
    }
    expect((await world.agent()).commands).toEqual([]);
  });

  test('lets no clock end a session before its users had 30 s to come back', async () => {
    const world = await new SessionWorld({ idleLimitS: 60 }).ready();
    await world.crash();
    await world.run(10 * 60_000);
    await world.start();
    const backAtMs = world.clock.nowMs();
    await world.joinAll();
    await world.run(backAtMs + 28_000 - world.clock.nowMs());
    expect(sessionStateOf(await world.session())).toBe('Ready');
    await world.untilState('Ended');
    const ending = (await world.events()).find(({ type }) => type === 'session.ending');
    expect(ending).toMatchObject({ reason: 'SESSION_IDLE_TIMEOUT' });
    expect((ending?.atMs ?? 0) - backAtMs).toBeLessThan(32_000);
  });

  test('goes on with a session that was ending, for the same reason', async () => {
    const world = await new SessionWorld().ready();
    world.stepsObeyCancel = false;
    world.ask(run());
    await world.sees(() => world.steps.length === 1);
    const cancel = [{ taskId: taskId(), by: 'alice', asAdmin: false }];
    world.coordinator.wishes = { ...NO_WISHES, cancel };
    await world.untilState('Ending');
    expect(contextOf(await world.newest()).cancel).toBeNull();
    await world.crash();
    world.coordinator.wishes = NO_WISHES;
    await world.start();
    await world.untilState('Ended');
    expect(contextOf(await world.newest()).cancel).toMatchObject({ reason: 'USER_CANCELLED', by: 'alice' });
  });

  test('takes up a session of which it had recorded no more than the request, and submits its job once', async () => {
    const world = new SessionWorld();
    world.sessionDirectories.prepareReply = { kind: 'io', detail: 'EIO' };
    await world.start();
    world.offer();
    await world.sees(async () => (await world.sessionTypes()).includes('session.jobAssigned'));
    await world.crash();
    world.sessionDirectories.prepareReply = { kind: 'ok' };
    await world.start();
    await world.untilPhase('Pending');
    expect(sessionStateOf(await world.session())).toBe('Waiting');
    expect((await world.sessionTypes()).filter((type) => type.startsWith('session.'))).toEqual([
      'session.requested',
      'session.jobAssigned',
    ]);
    expect(world.backend.submissions).toHaveLength(1);
  });
});
