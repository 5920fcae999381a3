import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { writeCredentialsFile } from '../../../src/coordinator/credentials-file.js';
import { startServer, type Server } from '../../../src/coordinator/server.js';
import type { SessionView } from '../../../src/coordinator/session-api.js';
import { MemoryEventStore } from '../../../src/events/memory-store.js';
import type { TaskId } from '../../../src/machines/vocabulary.js';
import { systemClock } from '../../../src/runtime/clock.js';
import { silentLog } from '../../../src/runtime/log.js';
import { systemRandom } from '../../../src/runtime/random.js';
import { temporaryDirectory } from '../../support/temporary-directory.js';
import { cli, start, type CliOptions, type Ended, type Running } from './cli.js';
import { ScriptedWorker } from './scripted-worker.js';

const deps = { clock: systemClock, random: systemRandom, log: silentLog, version: '1' };
const ROLES = { alice: 'submitter', bob: 'submitter', viewer: 'viewer', gateway: 'worker' } as const;
export type Who = keyof typeof ROLES;

/** A coordinator that can be started anew, people, and a worker whose steps are a script. */
export class SessionSite {
  readonly worker: ScriptedWorker;
  readonly home: string;
  readonly #store: MemoryEventStore;
  #server: Server;

  private constructor(home: string, store: MemoryEventStore, server: Server, worker: ScriptedWorker) {
    this.home = home;
    this.#store = store;
    this.#server = server;
    this.worker = worker;
  }

  static async start(): Promise<SessionSite> {
    const home = temporaryDirectory();
    mkdirSync(join(home, 'state'), { mode: 0o700 });
    const store = new MemoryEventStore({ writer: 'test', nowMs: () => systemClock.nowMs() });
    const server = await open(home, store, 0);
    for (const [name, role] of Object.entries(ROLES)) {
      const { id, secret } = await server.credentials.create({ role, name });
      await writeCredentialsFile(join(home, `${name}.json`), { url: server.url, id, secret });
    }
    const worker = await ScriptedWorker.start(join(home, 'gateway.json'));
    return new SessionSite(home, store, server, worker);
  }

  /** Somebody's credentials file. */
  file(who: Who): string {
    return join(this.home, `${who}.json`);
  }

  /** `session` and the words, with somebody's credentials. */
  as(who: Who, words: readonly string[], more: CliOptions = {}): Promise<Ended> {
    return cli(['session', ...words], this.#options(who, more));
  }

  begin(who: Who, words: readonly string[], more: CliOptions = {}): Running {
    return start(['session', ...words], this.#options(who, more));
  }

  /** A session of alice's that is ready. */
  async session(view: Partial<SessionView> = {}): Promise<TaskId> {
    this.worker.view = view;
    const { stdout, stderr, code } = await this.as('alice', ['start', '--profile', 'desk', '--wait']);
    if (code !== 0) throw new Error(stderr);
    return stdout.trim() as TaskId;
  }

  async stopCoordinator(): Promise<void> {
    await this.#server.close();
  }

  /** On the same port, with nothing in memory. */
  async startCoordinator(): Promise<void> {
    this.#server = await open(this.home, this.#store, Number(new URL(this.#server.url).port));
  }

  async close(): Promise<void> {
    await this.worker.stop();
    await this.#server.close();
  }

  #options(who: Who, more: CliOptions): CliOptions {
    const env = { HOME: this.home, OPEN_COMPUTE_CREDENTIALS: this.file(who) };
    return { cwd: this.home, ...more, env: { ...env, ...more.env } };
  }
}

const open = (home: string, store: MemoryEventStore, port: number): Promise<Server> =>
  startServer({ ...deps, stateDir: join(home, 'state'), store, host: '127.0.0.1', port, publicUrl: null });
