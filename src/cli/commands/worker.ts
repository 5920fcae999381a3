import { Option, type Command } from 'commander';
import { DEFAULT_WORKER_CONFIG, type WorkerConfig } from '../../worker/context.js';
import { readCredentials } from '../client.js';
import { BACKEND_HELP, BACKENDS, PROFILES_HELP, readProfiles, RUNS_DIR_HELP, type BackendName } from '../compose.js';
import { usageError } from '../errors.js';
import type { Io } from '../io.js';
import { workerStateDirectory } from '../locations.js';
import { serviceLog } from '../logging.js';
import {
  collect,
  credentialsOption,
  jsonOption,
  listenAddress,
  positiveNumber,
  wholeNumber,
  type ClientOptions,
  type ListenAddress,
} from '../options.js';
import { checkName } from '../payload.js';
import { runWorker } from '../run-worker.js';
import { readSessionGateway, SESSIONS_HELP } from '../session-gateway.js';

interface Options extends ClientOptions {
  readonly backend: BackendName;
  readonly name: string;
  readonly trainingProfile?: readonly string[];
  readonly clusterConfig?: string;
  readonly stateDir?: string;
  readonly runsDir?: string;
  readonly capacity?: number;
  readonly maxRunning?: number;
  readonly poll?: number;
  readonly watchLimit?: number;
  readonly keepDirectories?: number;
  readonly statusEvery: number;
  readonly sessionListen?: ListenAddress;
  readonly sessionAdvertise?: string;
  readonly sessionTlsCert?: string;
  readonly sessionTlsKey?: string;
  readonly sessionTlsTrust?: string;
}

const { capacity, pollMs, watchLimitMs, keepDirectoryMs } = DEFAULT_WORKER_CONFIG;
const HOUR_MS = 3_600_000;
const DEFAULT_STATUS_S = 60;
/** 366 days. */
const HOURS_MAX = 366 * 24;

export function define(command: Command, io: Io): void {
  command
    .addOption(new Option('--backend <backend>', BACKEND_HELP).choices(BACKENDS).makeOptionMandatory())
    .requiredOption('--name <name>', "this worker's name; its jobs are found again under it")
    .addOption(credentialsOption())
    .option('--training-profile <name=path>', 'offer a script under a name; may be repeated', collect)
    .option('--cluster-config <file>', 'cluster.toml; default: ./cluster.toml if it is there')
    .option(
      '--state-dir <dir>',
      'where the log is kept, on a local disk; default: $XDG_STATE_HOME or ~/.local/state, /open-compute/worker-NAME',
    )
    .option('--runs-dir <dir>', 'where the job directories are; default: see below')
    .option('--capacity <n>', `unfinished jobs at most (default: ${String(capacity)})`, wholeNumber(1, 100_000))
    .option(
      '--max-running <n>',
      'jobs that run at once on this machine (default: one per processor)',
      wholeNumber(1, 10_000),
    )
    .option(
      '--poll <seconds>',
      `longest time between two polls (default: ${String(pollMs / 1000)})`,
      positiveNumber(3600),
    )
    .option(
      '--watch-limit <hours>',
      `a job older than this is cancelled and fails (default: ${String(watchLimitMs / HOUR_MS)})`,
      positiveNumber(HOURS_MAX),
    )
    .option(
      '--keep-directories <hours>',
      `how long the directory of a job without a result is kept (default: ${String(keepDirectoryMs / HOUR_MS)})`,
      positiveNumber(HOURS_MAX),
    )
    .option(
      '--status-every <seconds>',
      'how often jobs and calls are counted in the log',
      positiveNumber(86_400),
      DEFAULT_STATUS_S,
    )
    .option(
      '--session-listen <host:port>',
      'serve sessions: listen here for the agents that run on their nodes; port 0 is any free one (default: off)',
      listenAddress,
    )
    .option(
      '--session-advertise <host>',
      'name or address under which nodes reach it (default: the host of --session-listen, or what this machine calls itself)',
    )
    .option('--session-tls-cert <file>', 'agents speak TLS: the certificate, PEM; with --session-tls-key')
    .option('--session-tls-key <file>', 'its key, PEM')
    .option('--session-tls-trust <file>', 'what agents check it with, PEM (default: the certificate itself)')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
${PROFILES_HELP}

${RUNS_DIR_HELP}

${SESSIONS_HELP}

The log goes to stderr: short lines on a terminal, JSON lines elsewhere or with --json.
SIGTERM or Ctrl-C: takes no more tasks, leaves jobs running, exits 0; the next start under the same name adopts
them. A second signal ends it at once, which loses nothing either.`,
    )
    .action((options: Options) => work(io, options));
}

async function work(io: Io, options: Options): Promise<void> {
  const name = checkName('--name', options.name);
  const credentials = await readCredentials(io, options.credentials);
  const { profiles, cluster } = await readProfiles(io, {
    clusterConfig: options.clusterConfig,
    trainingProfiles: options.trainingProfile ?? [],
  });
  const sessions = await readSessionGateway(io, options);
  if (sessions === null && [...profiles.values()].every(({ scriptPath }) => scriptPath === null) && profiles.size > 0) {
    throw usageError(
      'the profiles of this worker serve sessions only, and agents can not dial in',
      'give --session-listen HOST:PORT, an address that the compute nodes reach',
    );
  }
  if (profiles.size === 0) {
    throw usageError(
      'this worker has no profile to offer',
      'name one with --training-profile NAME=PATH, or in cluster.toml',
    );
  }
  const plan = {
    name,
    credentials,
    backend: options.backend,
    cluster,
    profiles,
    stateDir: workerStateDirectory(io, name, options.stateDir),
    runsDir: options.runsDir,
    maxRunning: options.maxRunning ?? null,
    config: configOf(options),
    statusEveryMs: options.statusEvery * 1000,
    sessions,
  };
  await runWorker(io, plan, serviceLog(io, options.json === true), io.signal);
}

function configOf(options: Options): WorkerConfig {
  const { capacity: jobs, poll, watchLimit, keepDirectories } = options;
  return {
    ...DEFAULT_WORKER_CONFIG,
    ...(jobs === undefined ? {} : { capacity: jobs }),
    ...(poll === undefined ? {} : { pollMs: poll * 1000 }),
    ...(watchLimit === undefined ? {} : { watchLimitMs: watchLimit * HOUR_MS }),
    ...(keepDirectories === undefined ? {} : { keepDirectoryMs: keepDirectories * HOUR_MS }),
  };
}
