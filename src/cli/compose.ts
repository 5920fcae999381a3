import { mkdir } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Backend, Profile } from '../backend.js';
import { createLocalBackend } from '../local/index.js';
import { checkScript, createSlurmBackend, currentUser, loadClusterConfig, profileFromPath } from '../slurm/index.js';
import type { ClusterConfig } from '../slurm/index.js';
import { checkRunsDirectory } from '../workdir/runs-directory.js';
import { CliError, usageError } from './errors.js';
import { EXIT } from './exit-codes.js';
import type { Io } from './io.js';
import { homeOf } from './locations.js';
import { checkName, quoted } from './payload.js';

/**
 * The one file that knows which backends there are and what their settings are called (INV-2). Everything else in the
 * command line gets a `Backend` and profiles.
 */
export const BACKENDS = ['slurm', 'local'] as const;
export type BackendName = (typeof BACKENDS)[number];

export const BACKEND_HELP = 'where jobs run: on a Slurm cluster, through its own commands, or on this machine';

export const PROFILES_HELP = `Profiles come from cluster.toml and from --training-profile NAME=PATH (a script whose own #SBATCH lines count; comments
on this machine). One name can not come from both. cluster.toml is the file of --cluster-config, else ./cluster.toml
if it is there.`;

export const RUNS_DIR_HELP = `The runs directory holds one directory per job. On a cluster the compute nodes must see it under the same path: by
default it is ~/open-compute/runs/NAME, on the assumption that home directories are shared. On this machine it is
"runs" in the state directory. One worker per runs directory.`;

/** The script of the transport smoke test that comes with the package. */
export const SMOKE_SCRIPT = fileURLToPath(new URL('../../examples/slurm-smoke.sh', import.meta.url));

const CLUSTER_CONFIG = 'cluster.toml';
const DEFAULT_PREFIX = 'oc';
const DEFAULT_PATH = '/usr/local/bin:/usr/bin:/bin';

export type { ClusterConfig } from '../slurm/index.js';

export interface ProfileSources {
  /** `--cluster-config`; undefined: the one in the current directory, if it is there; null: none. */
  readonly clusterConfig: string | undefined | null;
  /** `--training-profile`: `NAME=PATH`, each. */
  readonly trainingProfiles: readonly string[];
}

export interface ReadProfiles {
  readonly profiles: ReadonlyMap<string, Profile>;
  /** null: there is no cluster.toml. */
  readonly cluster: ClusterConfig | null;
}

/**
 * Reads and checks everything that an administrator offers: cluster.toml, each script, each pinned hash. Throws a
 * usage error that names file, line and key.
 */
export async function readProfiles(io: Io, { clusterConfig, trainingProfiles }: ProfileSources): Promise<ReadProfiles> {
  const cluster = await readClusterConfig(io, clusterConfig);
  const profiles = new Map(cluster?.profiles);
  for (const text of trainingProfiles) {
    const equals = text.indexOf('=');
    if (equals < 1 || equals === text.length - 1) {
      throw usageError(`--training-profile ${quoted(text)} is not NAME=PATH`, 'such as smoke=/shared/scripts/smoke.sh');
    }
    const name = checkName('profile', text.slice(0, equals));
    if (profiles.has(name)) {
      const where = cluster?.profiles.has(name) === true ? `in ${cluster.file}` : 'by another --training-profile';
      throw usageError(`profile ${name} is there already, ${where}`, 'give one of the two another name');
    }
    profiles.set(name, profileFromPath(name, resolve(io.cwd, text.slice(equals + 1))));
  }
  const problems = (await Promise.all([...profiles.values()].map(checkScript))).filter((each) => each !== null);
  if (problems.length > 0) throw usageError(problems.join('\n'), 'nothing was started');
  return { profiles, cluster };
}

async function readClusterConfig(io: Io, path: string | undefined | null): Promise<ClusterConfig | null> {
  if (path === null) return null;
  const loaded = await loadClusterConfig(resolve(io.cwd, path ?? CLUSTER_CONFIG));
  switch (loaded.kind) {
    case 'ok':
      return loaded.config;
    case 'missing':
      if (path === undefined) return null;
      throw usageError(`${loaded.file} does not exist`, 'nothing was started');
    case 'invalid':
      throw usageError(loaded.problems.join('\n'), 'nothing was started');
  }
}

export interface BackendOptions {
  readonly name: BackendName;
  readonly cluster: ClusterConfig | null;
  /** Has passed `prepareRunsDirectory`. */
  readonly runsDir: string;
  /** How many jobs run at once on this machine; null: one per processor. */
  readonly maxRunning: number | null;
}

export async function createBackend(io: Io, options: BackendOptions): Promise<Backend> {
  const { name, cluster, runsDir, maxRunning } = options;
  if (name === 'local') {
    const processors = availableParallelism();
    return createLocalBackend({ runsDir, clock: io.clock, maxRunning: maxRunning ?? processors, environment: io.env });
  }
  return createSlurmBackend({
    jobNamePrefix: cluster?.jobNamePrefix ?? DEFAULT_PREFIX,
    clusterName: cluster?.clusterName ?? null,
    clusters: cluster?.clusters ?? [],
    binariesDir: cluster?.binariesDir ?? null,
    path: io.env['PATH'] ?? DEFAULT_PATH,
    slurmConf: cluster?.slurmConf ?? io.env['SLURM_CONF'] ?? null,
    user: currentUser(),
    clock: io.clock,
  });
}

/**
 * The runs directory that a worker uses; made if it is missing. `chosen`: `--runs-dir`. Throws a usage error that says
 * what is wrong with it.
 */
export async function prepareRunsDirectory(
  io: Io,
  backend: BackendName,
  {
    chosen,
    worker,
    stateDir,
  }: { readonly chosen: string | undefined; readonly worker: string; readonly stateDir: string },
): Promise<string> {
  const path = chosen === undefined ? defaultRunsDirectory(io, backend, worker, stateDir) : resolve(io.cwd, chosen);
  if (chosen === undefined) await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const check = await checkRunsDirectory(path);
  if (check.kind === 'unusable') throw new CliError(EXIT.usage, check.problem, 'nothing was started');
  return path;
}

/** Where the runs directory is when none was chosen. */
export function defaultRunsDirectory(io: Io, backend: BackendName, worker: string, stateDir: string): string {
  return backend === 'local' ? join(stateDir, 'runs') : join(homeOf(io), 'open-compute', 'runs', worker);
}
