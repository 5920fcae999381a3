import { describe, expect, test } from '@jest/globals';
import { listenGateway } from '../../src/gateway/gateway.js';
import { StepId } from '../../src/machines/vocabulary.js';
import { systemClock } from '../../src/runtime/clock.js';
import { silentLog } from '../../src/runtime/log.js';
import { systemRandom } from '../../src/runtime/random.js';
import { runStep, Seen } from '../support/agent-process.js';
import { closes, HELLO, join, lineOf, peer, type Peer } from '../support/agent-peer.js';
import { rankId, testGateway } from '../support/gateways.js';
import { epoch, jobId } from '../support/ids.js';
import { flush } from '../support/manual-clock.js';
import { eventually } from '../support/wait.js';

const messages = (one: Peer): unknown[] =>
  one
    .lines()
    .slice(1)
    .map((line) => JSON.parse(line) as unknown);
const say = (one: Peer, message: object): void => one.say(JSON.stringify(message));

describe('credentials', () => {
  test('are issued only for ranks that are awaited', async () => {
    const { gateway } = await testGateway();
    expect(() => gateway.issue(rankId())).toThrow(/nobody expects this job/);
    gateway.expect(jobId(), epoch(2), 2);
    expect(() => gateway.issue(rankId(0, 1, 1))).toThrow(/epoch 2 is in force \(INV-7\)/);
    expect(() => gateway.issue(rankId(2, 1, 2))).toThrow(/no rank 2/);
    expect(() => gateway.expect(jobId(), epoch(1), 2)).toThrow(/INV-7/);
    expect(() => gateway.expect(jobId(), epoch(2), 3)).toThrow(/2 ranks/);
    expect(() => gateway.expect(jobId(2), epoch(1), 0)).toThrow(/0 ranks/);
    gateway.expect(jobId(), epoch(2), 2);
    expect(gateway.lacking()).toEqual([rankId(0, 1, 2), rankId(1, 1, 2)]);
  });

  test('are lacking where a rank has none, used it and went, or has not half of its time left', async () => {
    const { gateway, clock, seen } = await testGateway();
    gateway.expect(jobId(), epoch(), 2);
    expect(gateway.lacking()).toEqual([rankId(0), rankId(1)]);
    const credential = gateway.issue(rankId(0));
    gateway.issue(rankId(1));
    expect(gateway.lacking()).toEqual([]);
    const one = await join(gateway.address, credential);
    await seen.link();
    await clock.advance(0);
    clock.step(1_800_000 - 1);
    expect(gateway.lacking()).toEqual([]);
    clock.step(1);
    expect(gateway.lacking()).toEqual([rankId(1)]);
    one.socket.destroy();
    await eventually(() => seen.left[0] ?? null);
    expect(gateway.lacking()).toEqual([rankId(0), rankId(1)]);
    gateway.dismiss(jobId());
    expect(gateway.lacking()).toEqual([]);
  });
});

describe('a rank', () => {
  test('that registers again with a fresh credential takes the place of its old connection', async () => {
    const { gateway, seen } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    const old = await join(gateway.address, gateway.issue(rankId()));
    const run = runStep(await seen.link(1), ['sleep', '1']);
    await join(gateway.address, gateway.issue(rankId()));
    const link = await seen.link(2);
    await closes(old);
    expect(seen.left).toEqual([{ id: rankId(), detail: 'the rank registered again' }]);
    expect(await run.end).toEqual({ kind: 'lost', detail: 'the rank registered again' });
    const ping = link.ping(1_000);
    await flush();
    expect(seen.left).toHaveLength(1);
    gateway.dismiss(jobId());
    expect(await ping).toBe(false);
  });

  test('of an older epoch is told to end as soon as a newer one is expected (INV-7)', async () => {
    const { gateway, seen } = await testGateway();
    gateway.expect(jobId(), epoch(1), 1);
    const old = await join(gateway.address, gateway.issue(rankId()));
    await seen.link();
    gateway.expect(jobId(), epoch(2), 1);
    await closes(old);
    expect(messages(old)).toEqual([{ type: 'end' }]);
    expect(gateway.lacking()).toEqual([rankId(0, 1, 2)]);
  });

  test('is told to end when its job is dismissed, and nobody hears of it any more', async () => {
    const { gateway, seen } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    gateway.expect(jobId(2), epoch(), 1);
    const [one, other] = [
      await join(gateway.address, gateway.issue(rankId())),
      await join(gateway.address, gateway.issue(rankId(0, 2))),
    ];
    await seen.link(2);
    gateway.dismiss(jobId());
    await closes(one);
    expect(messages(one)).toEqual([{ type: 'end' }]);
    expect(seen.left).toEqual([]);
    expect(other.closed()).toBe(false);
  });

  test('is told nothing when the gateway closes: a worker that restarts goes on with its sessions', async () => {
    const { gateway, seen } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    const one = await join(gateway.address, gateway.issue(rankId()));
    await seen.link();
    await gateway.close();
    await closes(one);
    expect(messages(one)).toEqual([]);
    expect(seen.left).toEqual([]);
  });

  test('whose job is dismissed between its welcome and its first message finds no place', async () => {
    const { gateway, seen } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    const one = peer(gateway.address);
    one.say(gateway.issue(rankId()));
    await lineOf(one);
    gateway.dismiss(jobId());
    one.say(HELLO);
    await closes(one);
    expect(messages(one)).toEqual([{ type: 'end' }]);
    expect(seen.links).toEqual([]);
  });

  test('that says nothing after its welcome is closed after a time, and may come again; one that is in stays', async () => {
    const { gateway, seen, clock, logged } = await testGateway();
    gateway.expect(jobId(), epoch(), 2);
    await join(gateway.address, gateway.issue(rankId(1)));
    await seen.link();
    const one = peer(gateway.address);
    one.say(gateway.issue(rankId()));
    await lineOf(one);
    expect(gateway.lacking()).toEqual([]);
    await clock.advance(10_000);
    await closes(one);
    expect(logged()).toContain('it said nothing for 10000 ms after its welcome');
    expect(gateway.lacking()).toEqual([rankId(0)]);
    expect(seen.left).toEqual([]);
  });

  test('that does not answer pings for 45 s is given up; one that answers stays', async () => {
    const { gateway, seen, clock } = await testGateway();
    gateway.expect(jobId(), epoch(), 2);
    const mute = await join(gateway.address, gateway.issue(rankId(0)));
    await seen.link(1);
    const alive = await join(gateway.address, gateway.issue(rankId(1)));
    await seen.link(2);
    for (let i = 1; i <= 4; i += 1) {
      expect(seen.left).toEqual([]);
      await clock.advance(15_000);
      if (i === 4) break;
      await lineOf(alive, 1 + i);
      say(alive, { type: 'pong', id: i - 1 });
      await flush();
    }
    await closes(mute);
    expect(seen.left).toEqual([{ id: rankId(0), detail: 'no answer to 3 pings, 15000 ms apart' }]);
    for (let i = 5; i <= 8; i += 1) {
      await lineOf(alive, i);
      say(alive, { type: 'pong', id: i - 2 });
      await flush();
      await clock.advance(15_000);
    }
    expect(alive.closed()).toBe(false);
  });

  test('answers a ping in time or it does not', async () => {
    const { gateway, seen, clock } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    const one = await join(gateway.address, gateway.issue(rankId()));
    const link = await seen.link();
    const first = link.ping(1_000);
    await lineOf(one, 2);
    say(one, { type: 'pong', id: 0 });
    expect(await first).toBe(true);
    const second = link.ping(1_000);
    await lineOf(one, 3);
    await clock.advance(1_000);
    expect(await second).toBe(false);
    one.socket.destroy();
    await eventually(() => seen.left[0] ?? null);
    expect(await link.ping(1_000)).toBe(false);
  });
});

describe('an agent that says', () => {
  const STEP = 'step_00000000000000000000000000';
  const output = (data: string) => ({ type: 'output', stepId: STEP, stream: 'stdout', data });
  test.each([
    ['no JSON', 'hello?'],
    ['a message of no type', '{}'],
    ['an unknown message', '{"type":"sing"}'],
    ['bytes that are no base64', JSON.stringify(output('*'))],
    ['more than a piece holds', JSON.stringify(output(Buffer.alloc(65_537).toString('base64')))],
    ['a line without an end', 'x'.repeat(100_000)],
    ['a negative count', `{"type":"inputTaken","stepId":"${STEP}","bytes":-1}`],
  ])('%s is cut off, with a reason', async (_, line) => {
    const { gateway, seen, logged } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    const one = await join(gateway.address, gateway.issue(rankId()));
    await seen.link();
    one.say(line);
    await closes(one);
    expect(seen.left).toEqual([
      { id: rankId(), detail: expect.stringMatching(/makes no sense|longer than a message can be/) },
    ]);
    expect(logged()).toContain(seen.left[0]?.detail.slice(0, 40));
  });

  test('more output than its step may have, or took more input than there was, is cut off', async () => {
    const { gateway, seen } = await testGateway();
    gateway.expect(jobId(), epoch(), 2);
    const [first, second] = [
      await join(gateway.address, gateway.issue(rankId(0))),
      await join(gateway.address, gateway.issue(rankId(1))),
    ];
    await seen.link(2);
    const links = [...seen.links].sort((a, b) => a.id.rank - b.id.rank);
    const runs = links.map((link) => runStep(link, ['x'], { outputLimitBytes: 2, stdin: true }));
    const stepOf = async (one: Peer): Promise<string> =>
      (JSON.parse(await lineOf(one, 2)) as { stepId: string }).stepId;
    say(first, { type: 'output', stepId: await stepOf(first), stream: 'stdout', data: 'YWI=' });
    say(first, { type: 'output', stepId: await stepOf(first), stream: 'stderr', data: 'Yw==' });
    say(second, { type: 'inputTaken', stepId: await stepOf(second), bytes: 1 });
    expect(await Promise.all(runs.map(({ end }) => end))).toMatchObject([
      { kind: 'lost', detail: expect.stringContaining('more output') },
      { kind: 'lost', detail: expect.stringContaining('more input') },
    ]);
    expect(runs[0]?.stdout()).toBe('ab');
    expect(runs[0]?.stderr()).toBe('');
  });

  test('the biggest piece is heard, and what it says of a step that is over is not', async () => {
    const { gateway, seen } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    const one = await join(gateway.address, gateway.issue(rankId()));
    const link = await seen.link();
    const run = runStep(link, ['x']);
    const { stepId } = JSON.parse(await lineOf(one, 2)) as { stepId: string };
    expect(() => runStep(link, ['x'], { stepId: StepId.parse(stepId) })).toThrow(/runs at rank 0 already/);
    say(one, { type: 'output', stepId, stream: 'stdout', data: Buffer.alloc(65_536, 'y').toString('base64') });
    const end = { exitCode: 0, signal: null, stoppedBy: 'itself', droppedBytes: 3 };
    say(one, { type: 'ended', stepId, ...end });
    say(one, { type: 'ended', stepId, ...end });
    say(one, { type: 'output', stepId, stream: 'stdout', data: 'YWI=' });
    expect(await run.end).toEqual({ kind: 'exited', ...end });
    const ping = link.ping(1_000);
    await lineOf(one, 3);
    say(one, { type: 'pong', id: 0 });
    expect(await ping).toBe(true);
    expect(run.outputBytes()).toBe(65_536);
    run.control.cancel();
    run.control.write(Buffer.from('late'));
    run.control.endInput();
    await flush();
    expect(one.lines()).toHaveLength(3);
  });

  test('goodbye and leaves has its steps lost, and what is started after that is not started', async () => {
    const { gateway, seen } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    const one = await join(gateway.address, gateway.issue(rankId()));
    const link = await seen.link();
    const run = runStep(link, ['x']);
    one.socket.destroy();
    expect(await run.end).toMatchObject({ kind: 'lost' });
    expect(await runStep(link, ['y']).end).toMatchObject({ kind: 'notStarted' });
  });
});

test('a gateway that cannot listen says where and why', async () => {
  const { gateway } = await testGateway();
  const options = { host: '127.0.0.1', advertise: 'x', tls: null, clock: systemClock, log: silentLog };
  const again = listenGateway({ ...options, random: systemRandom, port: gateway.address.port }, new Seen().events);
  await expect(again).rejects.toThrow(/cannot listen on 127\.0\.0\.1:\d+: .*EADDRINUSE/);
});
