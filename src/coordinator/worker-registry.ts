import { z } from 'zod';
import type { EventStore } from '../events/store.js';
import { namesProfile, SESSION_KIND } from '../machines/task-context.js';
import { parametersCheck } from '../parameters.js';
import type { OfferedProfile, ProfileList } from './api.js';
import { fits, offerOf, type Offer, type Waiting } from './dispatch.js';
import { errorMessage } from './error-facts.js';
import { isDeeperThan } from './json-limits.js';
import { answer, no, type Answer } from './problems.js';
import { Hello, type PublicProfile } from './worker-api.js';

const CHECKPOINT = 'coordinator/workers';
const Saved = z.strictObject({ workers: z.array(z.strictObject({ id: z.string(), name: z.string(), hello: Hello })) });

/** Schema texts kept for sharing; a worker's own stay with it. */
const SCHEMAS_MAX = 2000;
const SCHEMA_DEPTH_MAX = 100;

export interface Registration {
  readonly id: string;
  readonly name: string;
  readonly hello: Hello;
  readonly offer: Offer;
}

interface Heard extends Registration {
  /** Monotonic ms. */
  heardAtMs: number;
}

/**
 * Who has said hello, and with what. Kept as a checkpoint beside the log, so a coordinator that starts anew knows its
 * workers before they notice.
 */
export class WorkerRegistry {
  readonly #store: EventStore;
  readonly #liveMs: number;
  readonly #workers = new Map<string, Heard>();
  /** One object for each schema text: it is compiled once, whoever sends it. */
  readonly #schemas = new Map<string, Record<string, unknown>>();

  constructor(store: EventStore, liveMs: number) {
    this.#store = store;
    this.#liveMs = liveMs;
  }

  async load(nowMs: number): Promise<void> {
    const saved = await this.#store.loadCheckpoint(CHECKPOINT);
    if (saved === null) return;
    for (const { id, name, hello } of Saved.parse(saved.data).workers) this.#put(id, name, hello, nowMs);
  }

  /** Refused when a parameters schema is none. */
  async hello(id: string, name: string, hello: Hello, nowMs: number): Promise<Answer<null>> {
    for (const { name: profile, parametersSchema } of hello.profiles) {
      const fault = parametersSchema === null ? null : this.#faultOf(parametersSchema);
      if (fault !== null) {
        return no(
          'invalid_profile',
          `profile "${profile}": its parameters schema is not a JSON Schema: ${fault}`,
          'correct the schema on the worker and start it again',
        );
      }
    }
    const before = this.#workers.get(id);
    this.#put(id, name, hello, nowMs);
    if (JSON.stringify(before?.hello) !== JSON.stringify(hello)) await this.#save();
    return answer(null);
  }

  /** null: it has never said hello. */
  heard(id: string, nowMs: number): Registration | null {
    const worker = this.#workers.get(id);
    if (worker === undefined) return null;
    worker.heardAtMs = nowMs;
    return worker;
  }

  /** How long ago it was heard, ms; null: never. */
  silentMs(id: string, nowMs: number): number | null {
    const worker = this.#workers.get(id);
    return worker === undefined ? null : nowMs - worker.heardAtMs;
  }

  async forget(id: string): Promise<void> {
    if (this.#workers.delete(id)) await this.#save();
  }

  liveCount(nowMs: number): number {
    return this.#live(nowMs).length;
  }

  /** Whether another worker that was heard lately may take the task, were it in line. */
  hasOtherFor(waiting: Waiting, workerId: string, nowMs: number): boolean {
    return this.#live(nowMs).some(({ id, offer }) => id !== workerId && fits(offer, waiting));
  }

  /** Every profile that a worker has ever offered, with how many of them have been heard lately. */
  list(nowMs: number): ProfileList {
    const profiles = new Map<string, OfferedProfile>();
    const kinds = new Set<string>();
    for (const worker of this.#workers.values()) {
      const weight = this.#isLive(worker, nowMs) ? 1 : 0;
      for (const kind of worker.hello.kinds) kinds.add(kind);
      for (const profile of worker.hello.profiles) {
        const known = profiles.get(profile.name);
        const workers = (known?.workers ?? 0) + weight;
        const kindsOfAll = [...new Set([...(known?.kinds ?? []), ...profile.kinds])];
        const shown = known !== undefined && weight === 0 ? known : profile;
        profiles.set(profile.name, { ...shown, kinds: kindsOfAll, workers });
      }
    }
    return { profiles: [...profiles.values()].sort((a, b) => (a.name < b.name ? -1 : 1)), kinds: [...kinds].sort() };
  }

  /** Whether a submission can be right, as far as the workers that have been heard lately have said. */
  check(kind: string, payload: unknown, profile: string | null, nowMs: number): Answer<null> {
    if (!namesProfile(kind)) return answer(null);
    if (profile === null) {
      return no('invalid_request', `a payload of kind "${kind}" has to name its profile`, 'add "profile": "NAME"');
    }
    if (this.#live(nowMs).length === 0) return answer(null);
    const offered = this.#offering(profile);
    if (offered.length === 0) {
      const names = this.list(nowMs).profiles.map(({ name }) => name);
      return no(
        'unknown_profile',
        `no worker offers a profile "${profile}"`,
        `known profiles: ${names.length === 0 ? 'none' : names.join(', ')}`,
      );
    }
    const serving = offered.filter(({ kinds }) => kinds.includes(kind));
    if (serving.length === 0) {
      return no(
        'unknown_profile',
        `profile "${profile}" ${servesInWords(offered)}`,
        kind === SESSION_KIND ? 'see `profiles` for one that serves sessions' : 'see `profiles` for what it serves',
      );
    }
    // The parameters of a session say nothing yet: no script reads them.
    if (kind === SESSION_KIND) return answer(null);
    const parameters: unknown =
      typeof payload === 'object' && payload !== null && 'parameters' in payload ? payload.parameters : {};
    const verdicts = serving.map(({ parametersSchema }) =>
      parametersSchema === null ? [] : parametersCheck(parametersSchema)(parameters),
    );
    const [faults] = verdicts;
    if (faults === undefined || verdicts.some((found) => found.length === 0)) return answer(null);
    return no(
      'parameters_invalid',
      `the parameters do not fit profile "${profile}": ${faults.slice(0, 5).join('; ')}`,
      'see `profiles --json` for the schema of its parameters',
    );
  }

  /** Why nobody can take such a task at the moment; null when somebody can. */
  missing(kind: string, profile: string | null, nowMs: number): string | null {
    const live = this.#live(nowMs);
    const offersIt = ({ hello }: Registration): boolean =>
      hello.kinds.includes(kind) &&
      (!namesProfile(kind) || hello.profiles.some(({ name, kinds }) => name === profile && kinds.includes(kind)));
    if (live.some(offersIt)) return null;
    if ([...this.#workers.values()].some(offersIt)) return 'no worker that offers it has been heard lately';
    if (live.some(({ hello }) => hello.kinds.includes(kind)) && profile !== null) {
      return `no worker offers profile "${profile}"${kind === SESSION_KIND ? ' for sessions' : ''} yet`;
    }
    return kind === SESSION_KIND
      ? 'no worker offers sessions: one has to run with --session-listen'
      : `no worker offers kind "${kind}" yet`;
  }

  #offering(profile: string): readonly PublicProfile[] {
    return [...this.#workers.values()].flatMap(({ hello }) => hello.profiles.filter(({ name }) => name === profile));
  }

  #isLive(worker: Heard, nowMs: number): boolean {
    return nowMs - worker.heardAtMs < this.#liveMs;
  }

  #live(nowMs: number): readonly Heard[] {
    return [...this.#workers.values()].filter((worker) => this.#isLive(worker, nowMs));
  }

  #put(id: string, name: string, hello: Hello, nowMs: number): void {
    const profiles = hello.profiles.map((profile) => ({ ...profile, parametersSchema: this.#shared(profile) }));
    const offer = offerOf(hello.kinds, profiles, hello.site, namesProfile);
    this.#workers.set(id, { id, name, hello: { ...hello, profiles }, offer, heardAtMs: nowMs });
  }

  #shared({ parametersSchema }: PublicProfile): Record<string, unknown> | null {
    if (parametersSchema === null) return null;
    const text = JSON.stringify(parametersSchema);
    const known = this.#schemas.get(text) ?? parametersSchema;
    if (this.#schemas.size >= SCHEMAS_MAX) this.#schemas.clear();
    this.#schemas.set(text, known);
    return known;
  }

  #faultOf(schema: Record<string, unknown>): string | null {
    // Whatever writes or compiles it recurses.
    if (isDeeperThan(schema, SCHEMA_DEPTH_MAX)) return `it is nested in more than ${String(SCHEMA_DEPTH_MAX)} levels`;
    const known = this.#schemas.get(JSON.stringify(schema)) ?? schema;
    try {
      parametersCheck(known);
      return null;
    } catch (error) {
      return errorMessage(error);
    }
  }

  async #save(): Promise<void> {
    const workers = [...this.#workers.values()].map(({ id, name, hello }) => ({ id, name, hello }));
    await this.#store.saveCheckpoint(CHECKPOINT, { position: 0, data: { workers } });
  }
}

/** `serves sessions only`. */
function servesInWords(offered: readonly PublicProfile[]): string {
  const kinds = [...new Set(offered.flatMap((profile) => profile.kinds))].sort();
  const words = kinds.map((kind) => (kind === SESSION_KIND ? 'sessions' : `tasks of kind "${kind}"`));
  return words.length === 0 ? 'serves nothing' : `serves ${words.join(' and ')} only`;
}
