import type { Clock } from '../runtime/clock.js';
import type { Run } from './broker.js';
import type { CommandUser } from './environment.js';
import type { Host } from './host.js';

/** Bounds of every call. ms and bytes. */
export interface Limits {
  /** squeue, sacct, scontrol: over the 60 s that a client may wait for a missing configuration file. */
  readonly queryTimeLimitMs: number;
  /** 100,000 jobs print about 16 MB. */
  readonly queryOutputBytes: number;
  /** sbatch retries for up to 120 s by itself when the queue is full: less would make every such answer a lost one. */
  readonly submitTimeLimitMs: number;
  readonly cancelTimeLimitMs: number;
}

export const DEFAULT_LIMITS: Limits = {
  queryTimeLimitMs: 70_000,
  queryOutputBytes: 64 * 1024 * 1024,
  submitTimeLimitMs: 150_000,
  cancelTimeLimitMs: 60_000,
};

export interface SlurmConfig {
  /** Starts every job's name; the submission token follows. Letters, digits, `.`, `_`, `-`. */
  readonly jobNamePrefix: string;
  /** The cluster's name in cluster.toml, or null: the one that the scheduler says. */
  readonly clusterName: string | null;
  /** Clusters other than the home one that profiles send jobs to. */
  readonly clusters: readonly string[];
  /** A folder with the commands, or null: `path` is searched. */
  readonly binariesDir: string | null;
  readonly path: string;
  readonly slurmConf: string | null;
  readonly user: CommandUser;
  readonly clock: Clock;
  readonly limits?: Partial<Limits>;
  /** For tests: replays recordings instead of starting processes. */
  readonly run?: Run;
  /** For the simulation: files and processes of a machine that is not this one. */
  readonly host?: Host;
}
