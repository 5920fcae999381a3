import { expect, test } from '@jest/globals';
import { runStep, sessionDirectory, startRank, type AgentProcess } from '../support/agent-process.js';
import { closes, join, peer } from '../support/agent-peer.js';
import { certificate } from '../support/certificates.js';
import { rankId, testGateway } from '../support/gateways.js';
import { epoch, jobId } from '../support/ids.js';
import { eventually } from '../support/wait.js';

const LIMIT_MS = 40_000;

const here = certificate('here');
const elsewhere = certificate('elsewhere');

const says = (agent: AgentProcess, words: RegExp): Promise<true> =>
  eventually(() => (words.test(agent.said()) ? true : null), 20_000);

test(
  'an agent comes in over TLS, and runs commands',
  async () => {
    const { gateway, seen } = await testGateway({ tls: here });
    expect(gateway.trust).toBe(here.trust);
    gateway.expect(jobId(), epoch(), 1);
    const session = sessionDirectory(gateway.address, gateway.trust);
    session.give(0, gateway.issue(rankId()));
    const agent = startRank(session, 0);
    const run = runStep(await seen.link(), ['head', '-c', '3000000', '/dev/zero']);
    expect(await run.end).toMatchObject({ kind: 'exited', exitCode: 0 });
    expect(run.outputBytes()).toBe(3_000_000);
    gateway.dismiss(jobId());
    expect(await agent.exit).toEqual({ exitCode: 0, signal: null });
  },
  LIMIT_MS,
);

test(
  'an agent shows its credential to nobody but the gateway that it was told to trust, by its name too',
  async () => {
    const { gateway, seen, logged } = await testGateway({ tls: here });
    const impostor = await testGateway({ tls: elsewhere });
    for (const one of [gateway, impostor.gateway]) one.expect(jobId(), epoch(), 1);
    // The variable turns the check off where a program leaves it to its default.
    const unchecked = { NODE_TLS_REJECT_UNAUTHORIZED: '0' };

    const other = sessionDirectory(gateway.address, elsewhere.trust);
    other.give(0, gateway.issue(rankId()));
    await says(startRank(other, 0, unchecked), /self.signed certificate/);
    await eventually(() => (logged().includes('no TLS') ? true : null));

    const name = sessionDirectory(impostor.gateway.address, elsewhere.trust);
    name.give(0, impostor.gateway.issue(rankId()));
    await says(startRank(name, 0, unchecked), /does not match certificate's altnames/);
    expect([...seen.links, ...impostor.seen.links]).toEqual([]);
  },
  LIMIT_MS,
);

test('the one word is said over TLS too, and who does not speak TLS hears nothing', async () => {
  const { gateway, logged } = await testGateway({ tls: here });
  const wrong = peer({ ...gateway.address, trust: here.trust });
  wrong.say('nonsense');
  await closes(wrong);
  expect(wrong.text()).toBe('refused\n');
  const plain = peer(gateway.address);
  plain.say('v1.nonsense');
  await closes(plain);
  expect(plain.text()).not.toContain('refused');
  expect(logged()).toContain('no TLS');
});

test('connections that stay inside of the TLS handshake are bounded in number and time, and keep nobody out', async () => {
  const { gateway, seen, clock } = await testGateway({ tls: here });
  gateway.expect(jobId(), epoch(), 1);
  const idle = Array.from({ length: 200 }, () => peer(gateway.address));
  await eventually(() => (idle.filter((one) => one.closed()).length === 200 - 64 ? true : null));
  expect(gateway.unfinished).toBe(64);
  await join({ ...gateway.address, trust: here.trust }, gateway.issue(rankId()));
  await seen.link();
  await clock.advance(5_000);
  await eventually(() => (idle.every((one) => one.closed()) ? true : null));
  expect(gateway.unfinished).toBe(0);
  expect(seen.left).toEqual([]);
});
