import { createHmac, timingSafeEqual } from 'node:crypto';
import { Epoch, JobId } from '../machines/vocabulary.js';

/** What a credential says: who may come in, and until when. */
export interface Claim {
  readonly jobId: JobId;
  readonly epoch: Epoch;
  readonly rank: number;
  /** Unix epoch ms. */
  readonly expiresAtMs: number;
  /** 22 characters of base64url: what makes it good for one time. */
  readonly nonce: string;
}

export type Verified =
  | { readonly kind: 'ok'; readonly claim: Claim }
  /** It does not look like one. */
  | { readonly kind: 'malformed' }
  /** It looks like one, but not this process made it, or it was changed. */
  | { readonly kind: 'forged' };

const FORM = /^(v1\.(job_[0-9a-z]{26})\.([1-9]\d{0,15})\.(0|[1-9]\d{0,5})\.(\d{1,16})\.([\w-]{22}))\.([\w-]{43})$/;

/** Over the text and not over the parts: nothing is written in two ways. */
const macOf = (text: string, key: Uint8Array): string => createHmac('sha256', key).update(text).digest('base64url');

/** `v1.<jobId>.<epoch>.<rank>.<expiry, ms>.<nonce>.<HMAC-SHA256 over all before it>`: one line, no blanks. */
export function mintCredential(claim: Claim, key: Uint8Array): string {
  const text = `v1.${claim.jobId}.${claim.epoch}.${claim.rank}.${claim.expiresAtMs}.${claim.nonce}`;
  return `${text}.${macOf(text, key)}`;
}

/** Whether this key made that text. Says nothing about its time or whether it was used before. */
export function verifyCredential(credential: string, key: Uint8Array): Verified {
  const [, text, jobId, epoch, rank, expiresAtMs, nonce, mac] = FORM.exec(credential) ?? [];
  if (text === undefined || mac === undefined || nonce === undefined) return { kind: 'malformed' };
  // The MACs are compared as texts: the last character of base64url has bits that decoding ignores.
  if (!timingSafeEqual(Buffer.from(mac), Buffer.from(macOf(text, key)))) return { kind: 'forged' };
  const claim = {
    jobId: JobId.parse(jobId),
    epoch: Epoch.parse(Number(epoch)),
    rank: Number(rank),
    expiresAtMs: Number(expiresAtMs),
    nonce,
  };
  return { kind: 'ok', claim };
}
