import { z } from 'zod';
import { SafeName } from '../machines/vocabulary.js';

/** Values that go to the scheduler as they are: one word of its own syntax, no blank, no quote, no control character. */
const word = (pattern: RegExp, what: string) => z.string().max(256).regex(pattern, what);
const NAME = word(/^[A-Za-z0-9][A-Za-z0-9._-]*$/, 'has only letters, digits, ".", "_" and "-"');
const NAMES = word(/^[A-Za-z0-9][A-Za-z0-9._,-]*$/, 'has only letters, digits, ".", "_", "-" and ","');
const CONSTRAINT = word(/^[A-Za-z0-9[(][A-Za-z0-9._,&|*:()[\]-]*$/, 'has only letters, digits and .,_&|*:()[]-');

const PATH = z
  .string()
  .min(1, 'is empty')
  .regex(/^[^\0\n]*$/, 'has a newline or a NUL');
const count = (max: number) =>
  z
    .int('is a whole number')
    .min(1, 'is at least 1')
    .max(max, `is at most ${String(max)}`);

export const ClusterTable = z.strictObject({
  name: SafeName,
  job_name_prefix: SafeName.max(32, 'has at most 32 characters').default('oc'),
  /** The folder with sbatch and the others, if they are not on PATH. */
  binaries: PATH.optional(),
  /** The scheduler's configuration file, if the commands do not find it by themselves. */
  slurm_conf: PATH.optional(),
});

/** Without it a profile serves sessions only if it has no script. */
export const SessionTable = z.strictObject({
  /** Seconds without a user's doing after which a session ends. */
  idle_limit_s: count(366 * 86_400).default(2 * 3_600),
  /** Seconds from its first allocation after which a session ends whatever happens in it. */
  max_lifetime_s: count(366 * 86_400).default(48 * 3_600),
  /** The agent's file on a shared file system; unset: each job gets a copy. */
  agent: PATH.optional(),
  /** What runs the agent on the nodes. */
  node: PATH.default('node'),
});

export const ProfileTable = z.strictObject({
  /** Unset: the profile serves sessions only. */
  script: PATH.optional(),
  session: SessionTable.optional(),
  sha256: z
    .string()
    .regex(/^[0-9a-fA-F]{64}$/, 'is 64 hexadecimal digits')
    .optional(),
  description: z.string().max(1_000).default(''),
  partition: NAMES.optional(),
  qos: NAME.optional(),
  account: NAME.optional(),
  constraint: CONSTRAINT.optional(),
  reservation: NAMES.optional(),
  /** Another cluster of the site, as in `sbatch --clusters`. */
  cluster: NAME.optional(),
  cpus: count(65_536).optional(),
  memory_mb: count(1_073_741_824).optional(),
  gpus: z.int('is a whole number').min(0, 'is at least 0').max(65_536).optional(),
  nodes: count(65_536).optional(),
  /** Seconds; the scheduler counts in minutes, so it is rounded up. */
  walltime_s: count(366 * 86_400).optional(),
  parameters: PATH.optional(),
  /** Whether the scheduler may run a job again after a node failed or it was preempted; unset: the site's default. */
  requeue: z.boolean('is true or false').optional(),
  held_fails_after_s: count(366 * 86_400).optional(),
  environment: z.record(z.string(), z.string('is text')).default({}),
});
export type ProfileTable = z.infer<typeof ProfileTable>;

export const ClusterFile = z.strictObject({
  cluster: ClusterTable,
  profiles: z.record(SafeName, ProfileTable).default({}),
});
export type ClusterFile = z.infer<typeof ClusterFile>;

/** The keys that may stand at a place in the file, for hints. */
export function knownKeys(path: readonly PropertyKey[]): readonly string[] {
  if (path.length === 0) return Object.keys(ClusterFile.shape);
  if (path[0] === 'cluster') return Object.keys(ClusterTable.shape);
  if (path[0] !== 'profiles') return [];
  if (path.length === 2) return Object.keys(ProfileTable.shape);
  return path.length === 3 && path[2] === 'session' ? Object.keys(SessionTable.shape) : [];
}
