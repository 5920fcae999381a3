import { describe, expect, test } from '@jest/globals';
import { mintCredential } from '../../src/gateway/credential.js';
import { closes, HELLO, join, lineOf, peer, type Peer } from '../support/agent-peer.js';
import { rankId, testGateway, type TestGateway } from '../support/gateways.js';
import { epoch, jobId } from '../support/ids.js';
import { flush } from '../support/manual-clock.js';
import { SeededRandom } from '../support/seeded-random.js';
import { eventually } from '../support/wait.js';

/** What each gateway of these tests has as its key: its chance comes from the same seed. */
const KEY = new SeededRandom(1).bytes(32);
const forAll = async (peers: readonly Peer[], holds: (one: Peer) => boolean): Promise<void> => {
  await eventually(() => (peers.every(holds) ? true : null));
};

describe('whoever is not let in', () => {
  const claim = { ...rankId(), expiresAtMs: 1_800_000_500_000, nonce: 'n'.repeat(22) };
  const cases: readonly (readonly [string, (world: TestGateway) => string | Promise<string>, string])[] = [
    ['shows something else', () => 'GET / HTTP/1.1', 'the first line is no credential'],
    ['shows nothing', () => '', 'the first line is no credential'],
    ['shows a line that is too long', () => 'v1.'.padEnd(513, 'x'), 'longer than a credential can be'],
    [
      'shows a credential that another process made',
      () => mintCredential(claim, new Uint8Array(32)),
      'not made by this process, or was changed',
    ],
    [
      'changed the rank of its credential',
      ({ gateway }) => gateway.issue(rankId(0)).replace(/(\.1\.)0\./, '$11.'),
      'not made by this process, or was changed',
    ],
    [
      'shows it when its time is over',
      async ({ gateway, clock }) => {
        const credential = gateway.issue(rankId());
        await clock.advance(3_600_000);
        return credential;
      },
      'has expired',
    ],
    [
      'shows one that was replaced by a newer one',
      ({ gateway }) => {
        const credential = gateway.issue(rankId());
        gateway.issue(rankId());
        return credential;
      },
      'is void',
    ],
    ['shows one that was never issued', () => mintCredential(claim, KEY), 'is void'],
    [
      'shows one for a job that nobody expects any more',
      ({ gateway }) => {
        const credential = gateway.issue(rankId());
        gateway.dismiss(jobId());
        return credential;
      },
      'nobody expects this job',
    ],
    ['shows one for a rank that there is not', () => mintCredential({ ...claim, rank: 2 }, KEY), 'there is no rank 2'],
    [
      'is of an old epoch (INV-7)',
      ({ gateway }) => {
        const credential = gateway.issue(rankId());
        gateway.expect(jobId(), epoch(2), 2);
        gateway.issue(rankId(0, 1, 2));
        return credential;
      },
      'it is of epoch 1; epoch 2 is in force (INV-7)',
    ],
  ];

  test.each(cases)('because it %s gets one word, and the log the reason', async (_, credentialIn, reason) => {
    const world = await testGateway();
    world.gateway.expect(jobId(), epoch(), 2);
    const credential = await credentialIn(world);
    const one = peer(world.gateway.address);
    // What comes along with it is not read.
    one.say(`${credential}\n${HELLO}`);
    await closes(one);
    expect(one.text()).toBe('refused\n');
    expect(world.logged()).toContain(reason);
    if (credential !== '') expect(world.logged()).not.toContain(credential);
    const mac = credential.split('.').at(-1) ?? '';
    if (mac.length === 43) expect(world.logged()).not.toContain(mac);
    expect(world.seen.links).toEqual([]);
  });

  test('replays a credential: it is burned by its first use, before anything else is read', async () => {
    const { gateway, seen, logged } = await testGateway();
    gateway.expect(jobId(), epoch(), 1);
    const credential = gateway.issue(rankId());
    const first = peer(gateway.address);
    first.say(credential);
    expect(await lineOf(first)).toBe('welcome');
    // The first one has not said hello: its credential is used all the same.
    const second = peer(gateway.address);
    second.say(credential);
    await closes(second);
    expect(second.text()).toBe('refused\n');
    first.say(HELLO);
    await seen.link();
    const third = peer(gateway.address);
    third.say(credential);
    await closes(third);
    expect(third.text()).toBe('refused\n');
    expect(logged().split('was used before')).toHaveLength(3);
    expect(logged()).not.toContain(credential);
    expect(first.closed()).toBe(false);
    expect(seen.left).toEqual([]);
  });

  test('says too little for too long: a byte now and then does not stretch the deadline', async () => {
    const { gateway, clock, logged } = await testGateway();
    const [silent, slow] = [peer(gateway.address), peer(gateway.address)];
    await eventually(() => (gateway.unfinished === 2 ? true : null));
    for (let i = 0; i < 4; i += 1) {
      slow.socket.write('v');
      await clock.advance(1_000);
    }
    expect([silent, slow].map((one) => one.closed())).toEqual([false, false]);
    await clock.advance(1_000);
    await forAll([silent, slow], (one) => one.closed());
    expect([silent.text(), slow.text()]).toEqual(['refused\n', 'refused\n']);
    expect(gateway.unfinished).toBe(0);
    expect(logged()).toContain('no credential within 5000 ms');
  });

  test('sends without an end: it is refused as soon as the line is too long', async () => {
    const { gateway } = await testGateway();
    const one = peer(gateway.address);
    one.socket.write('x'.repeat(100_000));
    await closes(one);
    expect(one.text()).toBe('refused\n');
  });
});

describe('connections that say nothing', () => {
  test('do not keep an agent out: of 500, no more than 64 stay, and it still gets in', async () => {
    const { gateway, seen, logged } = await testGateway();
    gateway.expect(jobId(), epoch(), 2);
    await join(gateway.address, gateway.issue(rankId(0)));
    await seen.link(1);
    const idle = Array.from({ length: 500 }, () => peer(gateway.address));
    await forAll(idle, (one) => !one.socket.connecting);
    await eventually(() => (idle.filter((one) => one.closed()).length >= 500 - 64 ? true : null));
    expect(gateway.unfinished).toBe(64);
    await join(gateway.address, gateway.issue(rankId(1)));
    expect((await seen.link(2)).id).toEqual(rankId(1));
    expect(await eventually(() => (gateway.unfinished <= 64 ? true : null))).toBe(true);
    // Those that are in were never counted, and never closed.
    expect(seen.left).toEqual([]);
    expect(logged().split('\n').length).toBeLessThan(80);
  });

  test('push out those of their own address first, not an agent that is slow elsewhere', async () => {
    const { gateway, seen } = await testGateway({ limits: { unfinishedMax: 4 } });
    gateway.expect(jobId(), epoch(), 1);
    const slow = peer({ ...gateway.address, localAddress: '127.0.0.2' });
    await eventually(() => (gateway.unfinished === 1 ? true : null));
    const idle = Array.from({ length: 20 }, () => peer(gateway.address));
    await eventually(() => (idle.filter((one) => one.closed()).length === 17 ? true : null));
    expect(slow.closed()).toBe(false);
    slow.say(gateway.issue(rankId()));
    expect(await lineOf(slow)).toBe('welcome');
    slow.say(HELLO);
    await seen.link();
  });

  test('and do not hang up after their refusal are cut off', async () => {
    const { gateway, clock } = await testGateway();
    const one = peer({ ...gateway.address, allowHalfOpen: true });
    one.say('nonsense');
    await lineOf(one);
    await clock.advance(999);
    one.say('it is still read, and dropped');
    await flush();
    expect(one.closed()).toBe(false);
    await clock.advance(1);
    await eventually(() => {
      // Only who writes notices that the other end has gone for good.
      if (!one.closed()) one.say('anybody?');
      return one.closed() ? true : null;
    });
    expect(one.text()).toBe('refused\n');
  });
});
