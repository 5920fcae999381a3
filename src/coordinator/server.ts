import type { FastifyInstance } from 'fastify';
import { join } from 'node:path';
import type { EventStore } from '../events/store.js';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import type { CoordinatorConfig } from './config.js';
import { FileCredentials } from './credential-store.js';
import { Credentials } from './credentials.js';
import { ensureFirstAdmin } from './first-admin.js';
import { createHttp } from './http.js';
import { FileTails } from './output-tails.js';
import { Coordinator } from './service.js';

const TICK_MS = 1_000;
const PRUNE_EVERY_MS = 24 * 3_600_000;
/** Output of tasks is kept this long after it was last handed over. */
const KEEP_OUTPUT_MS = 30 * PRUNE_EVERY_MS;
/** A pause between two ticks that is no ordinary delay: the process was stopped, or its machine slept. */
const STANDSTILL_MS = 10_000;

export interface ServerDeps {
  /** Absolute; exists, belongs to this process alone. */
  readonly stateDir: string;
  readonly store: EventStore;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly version: string;
  readonly host: string;
  /** 0: any free one. */
  readonly port: number;
  /** What clients are told to use; null: derived from host and port. */
  readonly publicUrl: string | null;
  readonly config?: Partial<CoordinatorConfig>;
}

export interface Server {
  readonly url: string;
  /** The first administrator's credentials file, if this start has made it. */
  readonly adminFile: string | null;
  readonly coordinator: Coordinator;
  readonly credentials: Credentials;
  /** Stops listening, answers what is under way, saves a checkpoint. The store is the caller's to close. */
  close(): Promise<void>;
}

/** Starts a coordinator on a state directory. Throws when it can not listen, or a file is not what it should be. */
export async function startServer(deps: ServerDeps): Promise<Server> {
  const { stateDir, store, clock, random, log, version, config } = deps;
  const credentials = await Credentials.open(new FileCredentials(join(stateDir, 'credentials.json')), clock, random);
  const tails = new FileTails(join(stateDir, 'output'));
  const coordinator = await Coordinator.open({
    store,
    clock,
    random,
    log,
    tails,
    ...(config === undefined ? {} : { config }),
  });
  const app = await createHttp({ coordinator, credentials, clock, log, version });
  await app.listen({ host: deps.host, port: deps.port });
  const url = deps.publicUrl ?? urlOf(app, deps.host);
  const stopping = new AbortController();
  const ticking = Promise.all([
    keepTicking(coordinator, clock, log, stopping.signal),
    keepPruning(tails, clock, log, stopping.signal),
  ]);
  const close = async (): Promise<void> => {
    stopping.abort();
    await ticking;
    try {
      await coordinator.close();
    } finally {
      // Also when the disk does not take the checkpoint: who still listens does not end.
      await app.close();
    }
  };
  try {
    const adminFile = await ensureFirstAdmin(credentials, join(stateDir, 'admin.json'), url);
    return { url, adminFile, coordinator, credentials, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** A wildcard address is where to listen, not where to go. */
function urlOf(app: FastifyInstance, host: string): string {
  const address = app.server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${String(port)}`;
}

/** Leases do not run out while the coordinator itself stands still: nobody could have renewed them. */
async function keepTicking(coordinator: Coordinator, clock: Clock, log: Log, signal: AbortSignal): Promise<void> {
  let lastMs = clock.monotonicMs();
  while (!signal.aborted) {
    await clock.sleep(TICK_MS, signal);
    const nowMs = clock.monotonicMs();
    const stoodStillMs = nowMs - lastMs - TICK_MS;
    lastMs = nowMs;
    if (stoodStillMs >= STANDSTILL_MS) {
      coordinator.extendLeases(stoodStillMs);
      log.warn({ stoodStillMs }, 'the coordinator stood still; leases last that much longer');
    }
    try {
      await coordinator.tick(nowMs);
    } catch (error) {
      log.error({ err: error }, 'a tick failed; the next one tries again');
    }
  }
}

/** What tasks printed is for people who look soon; nothing else deletes it, and a task may leave up to 1 MiB. */
async function keepPruning(tails: FileTails, clock: Clock, log: Log, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      const removed = await tails.prune(clock.nowMs() - KEEP_OUTPUT_MS);
      if (removed > 0) log.info({ removed }, 'deleted old output of tasks');
    } catch (error) {
      log.error({ err: error }, 'old output of tasks could not be deleted; tried again tomorrow');
    }
    await clock.sleep(PRUNE_EVERY_MS, signal);
  }
}
