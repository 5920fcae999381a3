import { setMaxListeners } from 'node:events';
import type { TaskId } from '../machines/vocabulary.js';
import { silentLog, type Log } from '../runtime/log.js';
import { ClientService } from './client-service.js';
import { DEFAULT_CONFIG, type CoordinatorConfig } from './config.js';
import { Core, type CoreDeps } from './core.js';
import { MemoryTails, type TailStore } from './output-tails.js';
import type { Principal } from './principal.js';
import type { SessionPort } from './session-api.js';
import { SessionService } from './session-service.js';
import { WorkerService } from './worker-service.js';
import type { WorkerPort } from './worker-api.js';

export interface CoordinatorDeps extends Pick<CoreDeps, 'store' | 'clock' | 'random'> {
  readonly log?: Log;
  readonly tails?: TailStore;
  readonly config?: Partial<CoordinatorConfig>;
}

/** The coordinator without its wire: tasks, leases, and who may have what. Calls throw only what the store throws. */
export class Coordinator {
  readonly core: Core;
  readonly client: ClientService;
  readonly worker: WorkerService;
  readonly sessions: SessionService;
  readonly #outputWanted: Map<TaskId, number>;
  readonly #closing = new AbortController();

  private constructor(core: Core) {
    this.core = core;
    setMaxListeners(0, this.#closing.signal); // one for each long poll
    this.#outputWanted = new Map();
    this.client = new ClientService(core, this.#outputWanted);
    this.worker = new WorkerService(core, this.#outputWanted, this.#closing.signal);
    this.sessions = new SessionService(core, this.client, this.#closing.signal);
  }

  static async open({ store, clock, random, log, tails, config }: CoordinatorDeps): Promise<Coordinator> {
    return new Coordinator(
      await Core.open({
        store,
        clock,
        random,
        log: log ?? silentLog,
        tails: tails ?? new MemoryTails(),
        config: { ...DEFAULT_CONFIG, ...config },
      }),
    );
  }

  /** The port of one worker inside this process. */
  workerPort(principal: Principal): WorkerPort {
    return this.worker.portOf(principal);
  }

  /** The sessions' side of one worker inside this process. */
  sessionPort(principal: Principal): SessionPort {
    return this.sessions.portOf(principal);
  }

  /** To be called about once a second with the monotonic time, ms. */
  async tick(nowMonotonicMs: number): Promise<void> {
    for (const [taskId, untilMs] of this.#outputWanted)
      if (untilMs <= nowMonotonicMs) this.#outputWanted.delete(taskId);
    this.sessions.tick(nowMonotonicMs);
    await this.core.tick(nowMonotonicMs);
  }

  /** For the time in which this process stood still, ms. */
  extendLeases(byMs: number): void {
    this.core.leases.extendAll(byMs);
  }

  /** Ends long polls and watches, saves a checkpoint. The store is the caller's to close. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.core.close();
  }
}
