import { afterEach } from '@jest/globals';
import type { RankId } from '../../src/gateway/agent-port.js';
import { listenGateway, type Gateway, type GatewayOptions } from '../../src/gateway/gateway.js';
import type { Log } from '../../src/runtime/log.js';
import { Seen } from './agent-process.js';
import { hangUpPeers } from './agent-peer.js';
import { epoch, jobId } from './ids.js';
import { ManualClock } from './manual-clock.js';
import { SeededRandom } from './seeded-random.js';

export interface TestGateway {
  readonly gateway: Gateway;
  readonly seen: Seen;
  readonly clock: ManualClock;
  /** All that was logged, as text. */
  readonly logged: () => string;
}

const opened: Gateway[] = [];
afterEach(async () => {
  hangUpPeers();
  await Promise.all(opened.splice(0).map((gateway) => gateway.close()));
});

/** A gateway on this machine with a manual clock, closed after the test. */
export async function testGateway(
  options: Partial<Pick<GatewayOptions, 'tls' | 'limits' | 'random'>> = {},
): Promise<TestGateway> {
  const clock = new ManualClock();
  const seen = new Seen();
  let text = '';
  const say = (fields: object, message: string): void => void (text += `${message} ${JSON.stringify(fields)}\n`);
  const log: Log = { info: say, warn: say, error: say };
  const here = { host: '127.0.0.1', port: 0, advertise: '127.0.0.1', tls: null, random: new SeededRandom(1) };
  const gateway = await listenGateway({ ...here, clock, log, ...options }, seen.events);
  opened.push(gateway);
  return { gateway, seen, clock, logged: () => text };
}

export const rankId = (rank = 0, job = 1, atEpoch = 1): RankId => {
  return { jobId: jobId(job), epoch: epoch(atEpoch), rank };
};
