import { beforeEach, expect, jest, test } from '@jest/globals';
import * as crypto from 'node:crypto';
import { MemoryCredentials } from '../../src/coordinator/credential-store.js';
import { ManualClock } from '../support/manual-clock.js';
import { SeededRandom } from '../support/seeded-random.js';

const compared: (readonly number[])[] = [];

// The real comparison, watched: how long it takes can not be measured on a machine that does other things as well.
jest.unstable_mockModule('node:crypto', () => ({
  ...crypto,
  timingSafeEqual: (a: Buffer, b: Buffer): boolean => {
    compared.push([a.length, b.length]);
    return crypto.timingSafeEqual(a, b);
  },
}));
const { Credentials } = await import('../../src/coordinator/credentials.js');

beforeEach(() => {
  compared.length = 0;
});

test('a secret is compared once, in constant time and as a hash of one length, whatever is wrong with it', async () => {
  const credentials = await Credentials.open(new MemoryCredentials(), new ManualClock(), new SeededRandom(1));
  const { id, secret } = await credentials.create({ role: 'admin', name: 'root' });
  const gone = await credentials.create({ role: 'admin', name: 'gone' });
  await credentials.revoke(gone.id);
  const almost = `${secret.slice(0, -1)}${secret.endsWith('A') ? 'E' : 'A'}`;
  for (const [token, kind] of [
    [`${id}.${secret}`, 'ok'],
    [`${id}.${almost}`, 'wrong'],
    [`${id}.x`, 'wrong'],
    [`${id}.`, 'wrong'],
    [`${id}.${secret.repeat(5)}`, 'wrong'],
    [`nobody.${secret}`, 'wrong'],
    [`.${secret}`, 'wrong'],
    [secret, 'wrong'],
    [`${gone.id}.${gone.secret}`, 'revoked'],
    [`${gone.id}.${secret}`, 'wrong'],
  ] as const) {
    compared.length = 0;
    expect([token, credentials.authenticate(`Bearer ${token}`).kind]).toEqual([token, kind]);
    expect([token, compared]).toEqual([token, [[32, 32]]]);
  }
});
