import { createHash, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../runtime/clock.js';
import { uniquePart, type Random } from '../runtime/random.js';
import type { CreateCredential, CredentialView, NewCredential } from './api.js';
import type { CredentialStore, StoredCredential } from './credential-store.js';
import type { Principal } from './principal.js';
import { answer, no, type Answer } from './problems.js';

const SECRET_BYTES = 32;

/**
 * A plain hash is enough: the secret is 256 bits of chance, so there is no dictionary to try, and a slow hash would only
 * make every request slow.
 */
const hashOf = (secret: string): Buffer => createHash('sha256').update(secret).digest();

/** What an unknown id is compared with, so that it takes as long as a known one. */
const NOBODY = Buffer.alloc(32);

export type Authentication =
  | { readonly kind: 'ok'; readonly principal: Principal }
  | { readonly kind: 'missing' }
  | { readonly kind: 'wrong' }
  | { readonly kind: 'revoked'; readonly id: string };

/** Who may come in. Only hashes are kept; a secret is told once, when it is made. */
export class Credentials {
  readonly #store: CredentialStore;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #byId: Map<string, StoredCredential>;
  readonly #listeners = new Set<(id: string) => void>();
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(store: CredentialStore, clock: Clock, random: Random, loaded: readonly StoredCredential[]) {
    this.#store = store;
    this.#clock = clock;
    this.#random = random;
    this.#byId = new Map(loaded.map((credential) => [credential.id, credential]));
  }

  static async open(store: CredentialStore, clock: Clock, random: Random): Promise<Credentials> {
    return new Credentials(store, clock, random, await store.load());
  }

  get isEmpty(): boolean {
    return this.#byId.size === 0;
  }

  /** `header`: the value of `Authorization`, `Bearer <id>.<secret>`. Takes the same time whatever is wrong with it. */
  authenticate(header: string | undefined): Authentication {
    if (header === undefined) return { kind: 'missing' };
    const [, token] = /^Bearer ([\x21-\x7e]{1,500})$/i.exec(header) ?? [];
    if (token === undefined) return { kind: 'wrong' };
    const dot = token.lastIndexOf('.');
    const credential = dot < 1 ? undefined : this.#byId.get(token.slice(0, dot));
    const expected = credential === undefined ? NOBODY : Buffer.from(credential.hash, 'hex');
    const matches = timingSafeEqual(hashOf(token.slice(dot + 1)), expected);
    if (!matches || credential === undefined) return { kind: 'wrong' };
    const { id, name, role, revokedAtMs } = credential;
    return revokedAtMs === null ? { kind: 'ok', principal: { id, name, role } } : { kind: 'revoked', id };
  }

  /** A new id and secret for somebody; nothing is kept before `adopt`. */
  mint({ role, name }: CreateCredential): NewCredential {
    const id = `${name}-${uniquePart(this.#clock.nowMs(), this.#random).slice(-8)}`;
    return { id, secret: Buffer.from(this.#random.bytes(SECRET_BYTES)).toString('base64url'), role, name };
  }

  /** Lets a minted credential in. Durable when it resolves. */
  async adopt({ id, secret, role, name }: NewCredential): Promise<void> {
    const stored: StoredCredential = {
      id,
      name,
      role,
      createdAtMs: this.#clock.nowMs(),
      revokedAtMs: null,
      hash: hashOf(secret).toString('hex'),
    };
    await this.#change((credentials) => {
      if (credentials.has(id)) throw new Error(`credential ${id} exists already`);
      credentials.set(id, stored);
    });
  }

  async create(request: CreateCredential): Promise<NewCredential> {
    const minted = this.mint(request);
    await this.adopt(minted);
    return minted;
  }

  list(): CredentialView[] {
    return [...this.#byId.values()].map(viewOf);
  }

  /** For good. Repeating it changes nothing. The last admin stays: nobody could make another one. */
  async revoke(id: string): Promise<Answer<CredentialView>> {
    const given = await this.#change((credentials): Answer<CredentialView> => {
      const known = credentials.get(id);
      if (known === undefined) return no('not_found', `no credential ${id}`, 'list the credentials');
      const admins = [...credentials.values()].filter((one) => one.role === 'admin' && one.revokedAtMs === null);
      if (known.revokedAtMs === null && known.role === 'admin' && admins.length === 1) {
        return no('last_admin', `${id} is the last admin`, 'create another admin first');
      }
      const revoked = { ...known, revokedAtMs: known.revokedAtMs ?? this.#clock.nowMs() };
      credentials.set(id, revoked);
      return answer(viewOf(revoked));
    });
    if (given.ok) for (const listener of [...this.#listeners]) listener(id);
    return given;
  }

  /** Calls back with the id of every credential that is revoked from now on; gives a function that ends it. */
  onRevoked(listener: (id: string) => void): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }

  /** One change after the other; memory follows what is durable. */
  async #change<T>(edit: (credentials: Map<string, StoredCredential>) => T): Promise<T> {
    const mine = this.#turn.then(async () => {
      const next = new Map(this.#byId);
      const result = edit(next);
      await this.#store.save([...next.values()]);
      for (const [id, credential] of next) this.#byId.set(id, credential);
      return result;
    });
    this.#turn = mine.then(
      () => undefined,
      () => undefined, // told to its own caller
    );
    return mine;
  }
}

const viewOf = ({ id, name, role, createdAtMs, revokedAtMs }: StoredCredential): CredentialView => ({
  id,
  name,
  role,
  createdAtMs,
  revokedAtMs,
});
