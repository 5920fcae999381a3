import { resolve } from 'node:path';
import { Option, type Command } from 'commander';
import { BACKEND_HELP, BACKENDS, defaultRunsDirectory, type BackendName } from '../compose.js';
import {
  checkBackend,
  checkCoordinator,
  checkCredentials,
  checkNode,
  checkProfiles,
  checkRuns,
  checkStateDirectory,
  skipped,
  type Finding,
} from '../doctor-checks.js';
import { CliError } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import type { Io } from '../io.js';
import { workerStateDirectory } from '../locations.js';
import { collect, credentialsOption, jsonOption, type ClientOptions } from '../options.js';
import { print, toTable } from '../output.js';
import { checkName } from '../payload.js';

interface Options extends ClientOptions {
  readonly backend?: BackendName;
  readonly name?: string;
  readonly trainingProfile?: readonly string[];
  readonly clusterConfig?: string;
  readonly stateDir?: string;
  readonly runsDir?: string;
}

export function define(command: Command, io: Io): void {
  command
    .addOption(new Option('--backend <backend>', BACKEND_HELP).choices(BACKENDS))
    .option('--name <name>', "a worker's name: checks its state directory and its runs directory")
    .addOption(credentialsOption())
    .option('--training-profile <name=path>', 'a script under a name, as for the worker; may be repeated', collect)
    .option('--cluster-config <file>', 'cluster.toml; default: ./cluster.toml if it is there')
    .option('--state-dir <dir>', 'a state directory')
    .option('--runs-dir <dir>', 'a runs directory')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
Give it the options that you give to the worker. Changes nothing. Exit code 1 if a check failed.`,
    )
    .action((options: Options) => doctor(io, options));
}

async function doctor(io: Io, options: Options): Promise<void> {
  const findings = await examine(io, options);
  await print(io, options.json === true, { findings }, () =>
    toTable(
      ['CHECK', 'STATUS', 'DETAIL'],
      findings.map(({ check, status, detail }) => [check, status, detail]),
    ),
  );
  const failed = findings.filter(({ status }) => status === 'failed').map(({ check }) => check);
  if (failed.length > 0) throw new CliError(EXIT.failed, `failed: ${failed.join(', ')}`);
}

async function examine(io: Io, options: Options): Promise<readonly Finding[]> {
  const { backend, credentials, clusterConfig, trainingProfile = [] } = options;
  const name = options.name === undefined ? undefined : checkName('--name', options.name);
  const stateDir =
    name === undefined && options.stateDir === undefined
      ? null
      : workerStateDirectory(io, name ?? '', options.stateDir);
  const runsDir = runsDirectory(io, options, name, stateDir);
  const { finding: profiles, cluster } = await checkProfiles(io, { clusterConfig, trainingProfiles: trainingProfile });
  const hasCredentials = credentials !== undefined || (io.env['OPEN_COMPUTE_CREDENTIALS'] ?? '') !== '';
  const said = 'give --credentials';
  return [
    checkNode(process.version),
    stateDir === null
      ? skipped('state directory', 'give --name or --state-dir')
      : await checkStateDirectory(io, stateDir),
    runsDir === null ? skipped('runs directory', 'give --name and --backend, or --runs-dir') : await checkRuns(runsDir),
    profiles,
    ...(backend === undefined
      ? [skipped('backend', 'give --backend')]
      : await checkBackend(io, backend, cluster, runsDir)),
    hasCredentials ? await checkCredentials(io, credentials) : skipped('credentials', said),
    hasCredentials ? await checkCoordinator(io, credentials) : skipped('coordinator', said),
  ];
}

function runsDirectory(
  io: Io,
  { backend, runsDir }: Options,
  name: string | undefined,
  stateDir: string | null,
): string | null {
  if (runsDir !== undefined) return resolve(io.cwd, runsDir);
  if (backend === undefined || name === undefined || stateDir === null) return null;
  return defaultRunsDirectory(io, backend, name, stateDir);
}
