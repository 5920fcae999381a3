import { describe, expect, test } from '@jest/globals';
import { contextOf, phaseOf } from '../../../src/machines/job-aggregate.js';
import { sessionContextOf, sessionStateOf } from '../../../src/machines/session-aggregate.js';
import { grant } from '../../support/fake-coordinator.js';
import { taskId } from '../../support/ids.js';
import { SessionWorld } from '../../support/session-world.js';
import { WorkerWorld } from '../../support/worker-world.js';

const PING_AGAIN_MS = 2_000;
const SUPPLY_AGAIN_MS = 5_000;

describe('before its job is submitted', () => {
  test('the stream of a session knows the request, the job and the workspace, and its agents are awaited', async () => {
    const world = new SessionWorld({ idleLimitS: 60, maxLifetimeS: 600 });
    await world.start();
    world.offer();
    await world.sees(() => world.backend.submissions.length > 0);
    const job = await world.newest();
    const { jobId } = contextOf(job);
    const written = (await world.recorded()).filter(({ stream }) => !stream.startsWith('backend/'));
    expect(written.slice(0, 5).map(({ stream, event }) => `${stream.split('/')[0] ?? ''} ${event.type}`)).toEqual([
      'job job.created',
      'session session.requested',
      'session session.jobAssigned',
      'session workspace.prepared',
      'job submission.started',
    ]);
    const [requested, assigned] = await world.events();
    expect(requested).toMatchObject({ profile: 'gang', ranks: 2, idleLimitMs: 60_000, maxLifetimeMs: 600_000 });
    expect(assigned).toMatchObject({ jobId, epoch: 1 });
    expect(world.gateway.awaited.get(jobId)).toEqual({ epoch: 1, ranks: 2 });
  });

  test('INV-9 the directory holds what agents need, and the submission names files and no credential', async () => {
    const world = new SessionWorld({ idleLimitS: 7_200 });
    await world.start();
    world.offer();
    await world.sees(() => world.backend.submissions.length > 0);
    const jobId = await world.jobId();
    expect(world.sessionDirectories.prepared).toEqual([
      {
        jobId,
        content: {
          agentSource: '/dist/agent.js',
          parameters: { dataset: 'a' },
          settings: { host: 'gate', port: 7_000, trust: null, aloneLimitS: 7_200 },
        },
      },
    ]);
    expect(world.sessionDirectories.credentials.map(({ rank, text }) => [rank, text])).toEqual([
      [0, 'credential-1'],
      [1, 'credential-2'],
    ]);
    const [submission] = world.backend.submissions;
    expect(submission?.session).toEqual({
      ranks: 2,
      command: ['/usr/bin/node', `/runs/${jobId}/agent.mjs`, `/runs/${jobId}/agent.json`],
      credentials: `/runs/${jobId}/credentials/rank-{rank}`,
    });
    expect(JSON.stringify(submission)).not.toContain('credential-1');
    expect(world.directories.prepared.size).toBe(0);
  });

  test('a file system that does not answer is asked again, and an agent that is not there ends the session', async () => {
    const world = new SessionWorld();
    world.sessionDirectories.prepareReply = { kind: 'io', detail: 'EIO' };
    await world.start();
    world.offer();
    await world.run(5_000);
    expect([world.backend.submissions.length, phaseOf(await world.newest())]).toEqual([0, 'Submitting']);
    expect(world.sessionDirectories.prepared.length).toBeGreaterThan(1);
    world.sessionDirectories.prepareReply = { kind: 'invalidSpec', detail: 'the agent is missing' };
    await world.untilPhase('Failed');
    expect(contextOf(await world.newest())).toMatchObject({ reason: 'INVALID_SPEC', detail: 'the agent is missing' });
    await world.untilState('Ended');
    expect(sessionContextOf(await world.session()).end).toMatchObject({ phase: 'Failed', reason: 'INVALID_SPEC' });
    expect(world.backend.submissions).toEqual([]);
  });

  test('a profile with an agent of its own gets no copy, and agents wait for a worker ten minutes at least', async () => {
    const world = new SessionWorld({ idleLimitS: 30 });
    const gang = world.profiles.get('gang');
    if (!gang?.session) throw new Error('no such profile');
    world.profiles.set('gang', { ...gang, session: { ...gang.session, agentPath: '/opt/agent.mjs' } });
    await world.start();
    world.offer();
    await world.sees(() => world.backend.submissions.length > 0);
    const [prepared] = world.sessionDirectories.prepared;
    expect(prepared?.content).toMatchObject({ agentSource: null, settings: { aloneLimitS: 600 } });
    expect(world.backend.submissions[0]?.session?.command[1]).toBe('/opt/agent.mjs');
  });
});

describe('while it begins', () => {
  test('the allocation is granted when the backend says that the job runs, and withdrawn when it queues it again', async () => {
    const world = new SessionWorld();
    await world.start();
    world.offer();
    await world.untilPhase('Pending');
    await world.run(5_000);
    expect(await world.sessionTypes()).not.toContain('allocation.granted');
    world.backend.setAll({ phase: 'Running', ending: false });
    await world.untilState('Starting');
    await world.joinAll();
    world.backend.setAll({ phase: 'Pending', waiting: 'queued' });
    for (const { id } of [...world.gateway.agents.values()]) world.gateway.leave(id);
    await world.untilState('Waiting');
    expect((await world.sessionTypes()).filter((type) => type.startsWith('allocation'))).toEqual([
      'allocation.granted',
      'allocation.withdrawn',
    ]);
    expect(sessionContextOf(await world.session())).toMatchObject({ grantedAtMs: null, ranksIn: [], recoveries: 1 });
  });

  test('agents that have come since the job was queued again are taken up, and have to answer anew', async () => {
    const world = await new SessionWorld().ready();
    world.backend.setAll({ phase: 'Pending', waiting: 'queued' });
    await world.sees(async () => (await world.sessionTypes()).includes('allocation.withdrawn'));
    world.backend.setAll({ phase: 'Running', ending: false });
    await world.untilState('Ready');
    const types = await world.sessionTypes();
    const since = types.slice(types.indexOf('allocation.withdrawn'));
    expect(since.filter((type) => type === 'rank.answered')).toHaveLength(2);
  });

  test('a gang that is in before the backend has said that the job runs is reason to ask it at once', async () => {
    const world = new SessionWorld({}, { pollMs: 30_000 });
    await world.start();
    world.offer();
    await world.untilPhase('Pending');
    await world.run(60_000);
    const asked = (): number => world.backend.callCounts()['observe'] ?? 0;
    const before = asked();
    const jobId = await world.jobId();
    world.gateway.join(jobId, 0);
    await world.run(1_000);
    expect(asked()).toBe(before);
    world.gateway.join(jobId, 1);
    world.backend.setAll({ phase: 'Running', ending: false });
    await world.sees(() => asked() > before, 2_000);
    await world.untilState('Ready');
  });

  test('INV-5 a session is ready when each rank is in and has answered, and not any more when one leaves', async () => {
    const world = await new SessionWorld().running();
    const jobId = await world.jobId();
    world.gateway.join(jobId, 1);
    await world.sees(async () => (await world.sessionTypes()).includes('rank.answered'));
    expect(sessionStateOf(await world.session())).toBe('Starting');
    expect(world.port.view(taskId())).toMatchObject({
      words: '1 of 2 ranks; waiting for rank 0',
      readiness: { allocation: true, workspace: true, ranks: false, agent: false },
      ranksIn: [{ rank: 1, node: 'n2' }],
    });
    const agent = world.gateway.join(jobId, 0);
    await world.untilState('Ready');
    await world.sees(() => world.port.view(taskId())?.state === 'Ready');
    world.gateway.leave(agent.id, 'the node is gone');
    await world.untilState('Starting');
    expect((await world.events()).at(-1)).toMatchObject({ type: 'rank.left', rank: 0, detail: 'the node is gone' });
    world.gateway.join(jobId, 0);
    await world.untilState('Ready');
  });

  test('INV-5 an agent that does not answer is asked again, and is no rank that takes commands until it does', async () => {
    const world = await new SessionWorld().running();
    const jobId = await world.jobId();
    world.gateway.join(jobId, 0);
    const silent = world.gateway.join(jobId, 1, (agent) => (agent.answers = false));
    await world.run(3 * PING_AGAIN_MS);
    expect(silent.pings).toBeGreaterThanOrEqual(3);
    expect(silent.pings).toBeLessThanOrEqual(5);
    expect(sessionStateOf(await world.session())).toBe('Starting');
    expect(world.port.view(taskId())?.words).toBe('2 of 2 ranks; waiting for an answer of rank 1');
    silent.answers = true;
    await world.untilState('Ready');
    const asked = silent.pings;
    await world.run(10 * PING_AGAIN_MS);
    expect(silent.pings).toBe(asked);
  });

  test('an agent that has left is not asked any more', async () => {
    const world = await new SessionWorld().running();
    const silent = world.gateway.join(await world.jobId(), 1, (agent) => (agent.answers = false));
    await world.run(PING_AGAIN_MS);
    world.gateway.leave(silent.id);
    await world.run(PING_AGAIN_MS);
    const asked = silent.pings;
    await world.run(10 * PING_AGAIN_MS);
    expect(silent.pings).toBe(asked);
    expect(await world.sessionTypes()).not.toContain('rank.answered');
  });

  test('a credential that was burned is followed by another one; one that can not be written is tried again after a pause', async () => {
    const world = await new SessionWorld().ready();
    const { sessionDirectories: directories, gateway } = world;
    directories.trouble = 'EDQUOT';
    directories.tries = 0;
    const before = directories.credentials.length;
    gateway.leave((await world.agent(1)).id);
    await world.sees(() => directories.tries === 1);
    await world.run(SUPPLY_AGAIN_MS - 1_000);
    expect(directories.tries).toBe(1);
    await world.run(2 * SUPPLY_AGAIN_MS);
    expect(directories.tries).toBeLessThanOrEqual(4);
    directories.trouble = null;
    await world.run(SUPPLY_AGAIN_MS + 1_000);
    expect(directories.credentials.slice(before).map(({ rank }) => rank)).toEqual([1]);
    await world.run(2 * SUPPLY_AGAIN_MS);
    expect(directories.credentials).toHaveLength(before + 1);
  });

  test('INV-7 nobody awaits the agents of a job that is over, and none of them gets a credential any more', async () => {
    const world = await new SessionWorld().ready();
    const { gateway, backend, sessionDirectories: directories } = world;
    directories.trouble = 'EDQUOT';
    gateway.leave((await world.agent(1)).id);
    await world.sees(() => directories.tries > 2);
    backend.setAll({ phase: 'Failed', reason: 'EXIT_NONZERO' });
    await world.untilState('Ended');
    directories.trouble = null;
    const before = directories.credentials.length;
    await world.run(3 * SUPPLY_AGAIN_MS);
    expect(gateway.dismissed).toEqual([await world.jobId()]);
    expect(directories.credentials).toHaveLength(before);
    expect(world.logged.filter((line) => line.startsWith('part of a round failed'))).toEqual([]);
  });
});

describe('a worker that serves no sessions', () => {
  test('offers no such kind, and refuses such a task without submitting anything', async () => {
    const served = new SessionWorld();
    const world = new WorkerWorld();
    for (const [name, profile] of served.profiles) world.profiles.set(name, profile);
    await world.start();
    expect(world.coordinator.hellos.at(-1)?.kinds).toEqual(['training']);
    world.coordinator.grants.push(grant({ kind: 'session', payload: { profile: 'gang' } }));
    await world.until((jobs) => jobs.some((job) => job.aftermath.delivered));
    expect(world.coordinator.outcomes).toMatchObject([{ type: 'failed', reason: 'INVALID_SPEC' }]);
    expect(world.backend.submissions).toEqual([]);
    await served.start();
    expect(served.coordinator.hellos.at(-1)?.kinds).toEqual(['training', 'session']);
  });

  test('a session that it leased when it still did becomes INVALID_SPEC, and not a job without agents', async () => {
    const world = new SessionWorld();
    world.sessionDirectories.prepareReply = { kind: 'io', detail: 'EIO' };
    await world.start();
    world.offer();
    await world.sees(() => world.sessionDirectories.prepared.length > 0);
    await world.stop();
    world.withoutSessions = true;
    await world.start();
    await world.untilPhase('Failed');
    expect(contextOf(await world.newest())).toMatchObject({ reason: 'INVALID_SPEC' });
    expect(contextOf(await world.newest()).detail).toContain('serves no sessions any more');
    expect(world.backend.submissions).toEqual([]);
  });
});
