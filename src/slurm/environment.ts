import { userInfo } from 'node:os';

/** What the commands need to know about the world, all of it said and none of it inherited. */
export interface EnvironmentOptions {
  /** A folder with the commands, searched before `path`; null: `path` alone. */
  readonly binariesDir: string | null;
  /** Where commands are looked for. */
  readonly path: string;
  /** The configuration file, or null for the site's own way of finding it. */
  readonly slurmConf: string | null;
  readonly user: CommandUser;
}

export interface CommandUser {
  readonly name: string;
  readonly uid: number;
  readonly home: string;
}

/** The user that this process runs as, from the password database and not from variables. */
export function currentUser(): CommandUser {
  const { username, uid, homedir } = userInfo();
  return { name: username, uid, home: homedir };
}

/**
 * The whole environment of every command (INV-9). Slurm passes SLURM_* on to jobs whatever `--export` says, and its
 * commands read SBATCH_*, SQUEUE_*, SACCT_*, SCANCEL_*, SRUN_* as options: none is taken from ours. Times are asked
 * for as seconds since the epoch (`%s`), messages in the C locale, because both are parsed.
 */
export function commandEnvironment(options: EnvironmentOptions): Readonly<Record<string, string>> {
  const { binariesDir, path, slurmConf, user } = options;
  return {
    PATH: binariesDir === null ? path : `${binariesDir}:${path}`,
    HOME: user.home,
    USER: user.name,
    LOGNAME: user.name,
    ...(slurmConf === null ? {} : { SLURM_CONF: slurmConf }),
    TZ: 'UTC',
    LC_ALL: 'C',
    SLURM_TIME_FORMAT: '%s',
  };
}

/** Of the variables above, those that are for the commands alone: a job's script drops them. */
export const COMMAND_ONLY_VARIABLES = ['SLURM_TIME_FORMAT', 'TZ', 'LC_ALL'] as const;
