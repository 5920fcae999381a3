import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { CoordinatorClient } from '../../coordinator/client.js';
import { readCredentialsFile, type CredentialsFile } from '../../coordinator/credentials-file.js';
import { startServer } from '../../coordinator/server.js';
import { openStateDirectory } from '../../events/state-directory.js';
import type { Log } from '../../runtime/log.js';
import { DEFAULT_WORKER_CONFIG } from '../../worker/context.js';
import { valueOf } from '../client.js';
import { readProfiles, SMOKE_SCRIPT } from '../compose.js';
import { CliError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import { finish, waitForEnd } from '../follow.js';
import type { Io } from '../io.js';
import { serviceLog } from '../logging.js';
import { jsonOption, type JsonOption } from '../options.js';
import { note, toJson } from '../output.js';
import { packageVersion } from '../package-version.js';
import { runWorker } from '../run-worker.js';

/** Seconds on any machine; a demo that takes longer is stuck. */
const TIME_LIMIT_MS = 60_000;
const TASK = { kind: 'training', payload: { profile: 'smoke', parameters: { message: 'hello' } } };

export function define(command: Command, io: Io): void {
  command
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
In one process, in a directory below the temporary one that is removed again: a coordinator on a free port, a worker
that runs jobs on this machine, the smoke profile, one task submitted over HTTP. The phases go to stderr, the result as
JSON to stdout.`,
    )
    .action((options: JsonOption) => demo(io, options));
}

async function demo(io: Io, { json }: JsonOption): Promise<void> {
  const home = await mkdtemp(join(tmpdir(), 'open-compute-demo-'));
  const stop = new AbortController();
  const late = io.clock.sleep(TIME_LIMIT_MS, stop.signal).then(() => stop.abort('late'));
  const abort = (): void => stop.abort('interrupted');
  io.signal.addEventListener('abort', abort, { once: true });
  try {
    await inDirectory({ ...io, signal: stop.signal }, home, json === true);
  } catch (error) {
    if (stop.signal.reason !== 'late') throw error;
    throw new CliError(EXIT.failed, `the demo did not end within ${String(TIME_LIMIT_MS / 1000)} s`, '', {
      cause: error,
    });
  } finally {
    stop.abort('over');
    await late;
    io.signal.removeEventListener('abort', abort);
    await rm(home, { recursive: true, force: true });
  }
}

async function inDirectory(io: Io, home: string, json: boolean): Promise<void> {
  const log = troubleOnly(serviceLog(io, json));
  const state = await openStateDirectory(join(home, 'coordinator'), {
    mode: 'write',
    create: true,
    writer: 'coordinator',
    nowMs: () => io.clock.nowMs(),
  });
  try {
    const { clock, random } = io;
    const version = packageVersion();
    const at = { host: '127.0.0.1', port: 0, publicUrl: null };
    const server = await startServer({ stateDir: state.path, store: state.store, clock, random, log, version, ...at });
    try {
      await note(io, `coordinator at ${server.url}`);
      const admin = await readCredentialsFile(join(state.path, 'admin.json'));
      const worker = await credentialFor(io, admin, 'worker');
      const submitter = await credentialFor(io, admin, 'submitter');
      await withWorker(io, home, worker, log, () => runTask(io, submitter, json));
    } finally {
      await server.close();
    }
  } finally {
    await state.close();
  }
}

async function credentialFor(io: Io, admin: CredentialsFile, role: 'worker' | 'submitter'): Promise<CredentialsFile> {
  const client = new CoordinatorClient(admin, io);
  try {
    const { id, secret } = valueOf(await client.createCredential({ role, name: `demo-${role}` }));
    return { url: admin.url, id, secret };
  } finally {
    client.close();
  }
}

/** Runs a worker beside `use`, and ends it after. What the worker could not do counts more than what waited for it. */
async function withWorker(
  io: Io,
  home: string,
  credentials: CredentialsFile,
  log: Log,
  use: () => Promise<void>,
): Promise<void> {
  const { profiles } = await readProfiles(io, {
    clusterConfig: null,
    trainingProfiles: [`smoke=${SMOKE_SCRIPT}`],
  });
  const over = new AbortController();
  const abort = (): void => over.abort();
  io.signal.addEventListener('abort', abort, { once: true });
  const plan = {
    name: 'demo',
    credentials,
    backend: 'local',
    cluster: null,
    profiles,
    stateDir: join(home, 'worker'),
    runsDir: undefined,
    maxRunning: 1,
    config: DEFAULT_WORKER_CONFIG,
    statusEveryMs: TIME_LIMIT_MS,
    sessions: null,
  } as const;
  const working = runWorker(io, plan, log, over.signal);
  await note(io, 'a worker that runs jobs on this machine');
  try {
    await Promise.race([use(), working]);
  } finally {
    over.abort();
    io.signal.removeEventListener('abort', abort);
    await working;
  }
}

async function runTask(io: Io, credentials: CredentialsFile, json: boolean): Promise<void> {
  const client = new CoordinatorClient(credentials, io);
  try {
    await note(io, `submit --kind ${TASK.kind} --payload '${toJson(TASK.payload)}'`);
    const { taskId } = valueOf(await client.submit(TASK));
    const end = await waitForEnd(io, client, taskId);
    if (end === null) throw new CliError(EXIT.interrupted, 'the demo was interrupted');
    await finish(io, client, end, json);
  } finally {
    client.close();
  }
}

/** A demo is not about how a service starts and stops. */
const troubleOnly = (log: Log): Log => ({
  info: () => undefined,
  warn: (fields, message) => log.warn(fields, message),
  error: (fields, message) => log.error(fields, message),
});
