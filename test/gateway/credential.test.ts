import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { mintCredential, verifyCredential, type Claim } from '../../src/gateway/credential.js';
import { epoch, jobId } from '../support/ids.js';

const NONCE = /^[\w-]{22}$/;
const claims: fc.Arbitrary<Claim> = fc.record({
  jobId: fc.integer({ min: 1, max: 1e9 }).map(jobId),
  epoch: fc.integer({ min: 1, max: 1e9 }).map(epoch),
  rank: fc.integer({ min: 0, max: 999_999 }),
  expiresAtMs: fc.integer({ min: 0, max: 9e15 }),
  nonce: fc.stringMatching(NONCE),
});
const keys = fc.uint8Array({ minLength: 32, maxLength: 32 });
const kindOf = (credential: string, key: Uint8Array): string => verifyCredential(credential, key).kind;

describe('a credential', () => {
  test('is one line without blanks that says what was put in, to whoever has the key', () => {
    fc.assert(
      fc.property(claims, keys, (claim, key) => {
        const credential = mintCredential(claim, key);
        expect(credential).toMatch(/^[\w.-]{1,511}$/);
        expect(verifyCredential(credential, key)).toEqual({ kind: 'ok', claim });
      }),
    );
  });

  test('is refused after any change of any character, and with anything added or left out', () => {
    fc.assert(
      fc.property(claims, keys, fc.nat(), fc.string({ minLength: 1, maxLength: 1 }), (claim, key, where, letter) => {
        const credential = mintCredential(claim, key);
        const at = where % credential.length;
        const [before, after] = [credential.slice(0, at), credential.slice(at + 1)];
        fc.pre(letter !== credential[at]);
        expect(kindOf(before + letter + after, key)).not.toBe('ok');
        expect(kindOf(before + after, key)).not.toBe('ok');
        expect(kindOf(`${credential}${letter}`, key)).not.toBe('ok');
        expect(kindOf(letter + credential, key)).not.toBe('ok');
      }),
      { numRuns: 1_000 },
    );
  });

  test('has one form only: no other last character, though base64 would decode to the same bytes', () => {
    const key = new Uint8Array(32);
    const claim = { jobId: jobId(), epoch: epoch(), rank: 0, expiresAtMs: 5, nonce: 'n'.repeat(22) };
    const credential = mintCredential(claim, key);
    const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const taken = Array.from(letters).filter((last) => kindOf(credential.slice(0, -1) + last, key) === 'ok');
    expect(taken).toEqual([credential.at(-1)]);
  });

  test('of another process, with another key, is forged', () => {
    fc.assert(
      fc.property(claims, keys, keys, (claim, key, other) => {
        fc.pre(Buffer.compare(key, other) !== 0);
        expect(kindOf(mintCredential(claim, key), other)).toBe('forged');
      }),
    );
  });

  test('is malformed, and nothing is thrown, whatever the text is', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ maxLength: 600 }), fc.constant('v1.job_.1.0.5.n.m')), (text) => {
        expect(kindOf(text, new Uint8Array(32))).toBe('malformed');
      }),
    );
  });
});
