import type { Epoch, JobId } from '../machines/vocabulary.js';
import type { Random } from '../runtime/random.js';
import type { RankId } from './agent-port.js';
import { mintCredential, verifyCredential } from './credential.js';

/** One awaited rank: the one credential that lets its agent in, and who is in. */
export interface Place<Occupant> {
  readonly id: RankId;
  credential: { readonly nonce: string; readonly expiresAtMs: number } | null;
  burnedNonce: string | null;
  occupant: Occupant | null;
}

export type Admission<Occupant> =
  | { readonly kind: 'admitted'; readonly place: Place<Occupant> }
  /** The reason is for the log: whoever knocked learns nothing from it. */
  | { readonly kind: 'refused'; readonly reason: string; readonly id: RankId | null };

const REASONS = {
  malformed: 'the first line is no credential',
  forged: 'the credential was not made by this process, or was changed',
};

interface Expected<Occupant> {
  readonly epoch: Epoch;
  readonly places: readonly Place<Occupant>[];
}

/** Who is awaited, and who may come in. Does no I/O. */
export class Roster<Occupant> {
  readonly #key: Uint8Array;
  readonly #random: Random;
  readonly #ttlMs: number;
  readonly #jobs = new Map<JobId, Expected<Occupant>>();

  /** `ttlMs`: how long a credential is good for. Its key is chance: credentials do not outlive the process. */
  constructor(random: Random, ttlMs: number) {
    this.#random = random;
    this.#ttlMs = ttlMs;
    this.#key = random.bytes(32);
  }

  /** Gives the places of an older epoch of the job, which nobody awaits any more. Throws where time would go back. */
  expect(jobId: JobId, epoch: Epoch, ranks: number): readonly Place<Occupant>[] {
    if (!Number.isInteger(ranks) || ranks < 1) throw new Error(`${jobId} cannot have ${ranks} ranks`);
    const before = this.#jobs.get(jobId);
    if (before !== undefined && before.epoch > epoch) {
      throw new Error(`${jobId} is expected at epoch ${before.epoch} already, not at ${epoch} (INV-7)`);
    }
    if (before?.epoch === epoch) {
      if (before.places.length !== ranks) throw new Error(`${jobId} is expected with ${before.places.length} ranks`);
      return [];
    }
    const places = Array.from({ length: ranks }, (_, rank): Place<Occupant> => {
      return { id: { jobId, epoch, rank }, credential: null, burnedNonce: null, occupant: null };
    });
    this.#jobs.set(jobId, { epoch, places });
    return before?.places ?? [];
  }

  dismiss(jobId: JobId): readonly Place<Occupant>[] {
    const { places = [] } = this.#jobs.get(jobId) ?? {};
    this.#jobs.delete(jobId);
    return places;
  }

  /** Throws for a rank that is not awaited. */
  issue(id: RankId, nowMs: number): string {
    const place = this.#placeOf(id);
    if (typeof place === 'string') throw new Error(`no credential for rank ${id.rank} of ${id.jobId}: ${place}`);
    const nonce = Buffer.from(this.#random.bytes(16)).toString('base64url');
    const expiresAtMs = Math.round(nowMs) + this.#ttlMs;
    place.credential = { nonce, expiresAtMs };
    return mintCredential({ ...id, nonce, expiresAtMs }, this.#key);
  }

  /** Burns the credential when it lets it in: shown again, it is refused. */
  admit(credential: string, nowMs: number): Admission<Occupant> {
    const verified = verifyCredential(credential, this.#key);
    if (verified.kind !== 'ok') return { kind: 'refused', reason: REASONS[verified.kind], id: null };
    const { jobId, epoch, rank, nonce, expiresAtMs } = verified.claim;
    const id = { jobId, epoch, rank };
    const refused = (reason: string): Admission<Occupant> => ({ kind: 'refused', reason, id });
    if (nowMs >= expiresAtMs) return refused('the credential has expired');
    const place = this.#placeOf(id);
    if (typeof place === 'string') return refused(place);
    if (place.credential?.nonce !== nonce) {
      const wasUsed = place.burnedNonce === nonce;
      return refused(wasUsed ? 'the credential was used before' : 'the credential is void: it was replaced or used');
    }
    place.burnedNonce = nonce;
    place.credential = null;
    return { kind: 'admitted', place };
  }

  /** Whether somebody still awaits the agent of that place. */
  holds(place: Place<Occupant>): boolean {
    return this.#placeOf(place.id) === place;
  }

  /** Ranks that are not in and can not come in for much longer: a node may take half of the time to boot its agent. */
  lacking(nowMs: number): RankId[] {
    const places = this.places();
    return places
      .filter(({ occupant, credential }) => {
        return occupant === null && (credential === null || credential.expiresAtMs - nowMs <= this.#ttlMs / 2);
      })
      .map(({ id }) => id);
  }

  places(): Place<Occupant>[] {
    return [...this.#jobs.values()].flatMap(({ places }) => places);
  }

  /** Or why there is none. */
  #placeOf({ jobId, epoch, rank }: RankId): Place<Occupant> | string {
    const expected = this.#jobs.get(jobId);
    if (expected === undefined) return 'nobody expects this job';
    if (expected.epoch !== epoch) return `it is of epoch ${epoch}; epoch ${expected.epoch} is in force (INV-7)`;
    return expected.places[rank] ?? `there is no rank ${rank}: the job has ${expected.places.length}`;
  }
}
