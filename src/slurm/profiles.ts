import { readFile, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { parse, TomlError } from 'smol-toml';
import type { z } from 'zod';
import type { Profile, SessionProfile } from '../backend.js';
import { SafeName } from '../machines/vocabulary.js';
import { errnoOf, messageOf } from '../workdir/io-error.js';
import { ClusterFile, knownKeys, SessionTable, type ProfileTable } from './cluster-schema.js';
import { readParametersSchema } from './parameters-schema.js';
import { nearestKey, TomlLines } from './toml-lines.js';
import { variableProblem } from './variable-rules.js';

/** What cluster.toml says. Paths are absolute. */
export interface ClusterConfig {
  readonly file: string;
  readonly clusterName: string;
  readonly jobNamePrefix: string;
  readonly binariesDir: string | null;
  readonly slurmConf: string | null;
  /** Other clusters that profiles name. */
  readonly clusters: readonly string[];
  readonly profiles: ReadonlyMap<string, Profile>;
}

export type LoadedCluster =
  | { readonly kind: 'ok'; readonly config: ClusterConfig }
  /** No file: no cluster is configured. */
  | { readonly kind: 'missing'; readonly file: string }
  /** Each problem is one line: `FILE:LINE: KEY: what is wrong`. */
  | { readonly kind: 'invalid'; readonly file: string; readonly problems: readonly string[] };

/** Reads cluster.toml and the JSON Schema files that it names. The scripts are looked at by `checkScript`. */
export async function loadClusterConfig(path: string): Promise<LoadedCluster> {
  const file = resolve(path);
  let text;
  try {
    const bytes = await readFile(file);
    if (((await stat(file)).mode & 0o002) !== 0) {
      return { kind: 'invalid', file, problems: [`${file}: is writable by everybody: run chmod o-w on it`] };
    }
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return { kind: 'missing', file };
    return {
      kind: 'invalid',
      file,
      problems: [`${file}: cannot be read: ${messageOf(error)}`],
    };
  }
  let values;
  try {
    values = parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const reason = error.message.split('\n', 1)[0] ?? '';
    return { kind: 'invalid', file, problems: [`${file}:${String(error.line)}: ${reason}`] };
  }
  return build(file, values, new TomlLines(text));
}

async function build(file: string, values: unknown, lines: TomlLines): Promise<LoadedCluster> {
  const parsed = ClusterFile.safeParse(values);
  if (!parsed.success) {
    return { kind: 'invalid', file, problems: parsed.error.issues.flatMap((issue) => explain(file, issue, lines)) };
  }
  const { cluster, profiles: tables } = parsed.data;
  const problems: string[] = [];
  const profiles = new Map<string, Profile>();
  const base = dirname(file);
  for (const [name, table] of Object.entries(tables)) {
    const at = (key: string): string => {
      const path = ['profiles', name, ...key.split('.')];
      return `${file}:${String(lines.of(path))}: ${path.join('.')}`;
    };
    for (const [variable, value] of Object.entries(table.environment)) {
      const problem = variableProblem(variable, value);
      if (problem !== null) problems.push(`${at('environment')}: ${JSON.stringify(variable)} ${problem}`);
    }
    if (table.sha256 !== undefined && table.script === undefined)
      problems.push(`${at('sha256')}: is of a script, and there is no key script`);
    let parametersSchema = null;
    if (table.parameters !== undefined) {
      const schema = await readParametersSchema(resolve(base, table.parameters));
      if (schema.kind === 'ok') parametersSchema = schema.schema;
      else problems.push(`${at('parameters')}: ${schema.problem}`);
    }
    profiles.set(name, toProfile(name, table, base, parametersSchema));
  }
  if (problems.length > 0) return { kind: 'invalid', file, problems };
  const clusters = Object.values(tables).flatMap((table) => table.cluster ?? []);
  return {
    kind: 'ok',
    config: {
      file,
      clusterName: cluster.name,
      jobNamePrefix: cluster.job_name_prefix,
      binariesDir: cluster.binaries === undefined ? null : resolve(base, cluster.binaries),
      slurmConf: cluster.slurm_conf === undefined ? null : resolve(base, cluster.slurm_conf),
      clusters: [...new Set(clusters)].filter((name) => name !== cluster.name),
      profiles,
    },
  };
}

/** Turns one complaint of the schema into lines that name file, line and key. */
function explain(file: string, issue: z.core.$ZodIssue, lines: TomlLines): readonly string[] {
  const place = (path: readonly PropertyKey[]): string =>
    `${file}:${String(lines.of(path))}: ${path.map(String).join('.')}`;
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => {
      const near = nearestKey(key, knownKeys(issue.path));
      const hint = near === null ? `known keys: ${knownKeys(issue.path).join(', ')}` : `did you mean ${near}?`;
      return `${place([...issue.path, key])}: unknown key; ${hint}`;
    });
  }
  if (issue.code === 'invalid_key') {
    return [`${place(issue.path)}: not a name: ${issue.issues.map((one) => one.message).join('; ')}`];
  }
  if (issue.code === 'invalid_type' && issue.input === undefined && issue.message.includes('undefined')) {
    return [`${place(issue.path)}: missing`];
  }
  return [`${place(issue.path)}: ${issue.message}`];
}

function toProfile(
  name: string,
  table: ProfileTable,
  base: string,
  parametersSchema: Readonly<Record<string, unknown>> | null,
): Profile {
  const { partition, qos, account, constraint, reservation, cluster, requeue } = table;
  const placement: Record<string, string> = {};
  for (const [key, value] of Object.entries({ partition, qos, account, constraint, reservation, cluster })) {
    if (value !== undefined) placement[key] = value;
  }
  if (requeue !== undefined) placement['requeue'] = String(requeue);
  return {
    name,
    description: table.description,
    scriptPath: table.script === undefined ? null : resolve(base, table.script),
    session: sessionOf(table, base),
    sha256: table.sha256?.toLowerCase() ?? null,
    cpus: table.cpus ?? null,
    memoryMiB: table.memory_mb ?? null,
    gpus: table.gpus ?? null,
    nodes: table.nodes ?? null,
    walltimeS: table.walltime_s ?? null,
    heldFailsAfterS: table.held_fails_after_s ?? null,
    parametersSchema,
    environment: table.environment,
    placement,
  };
}

/**
 * A reviewed script is what its profile stands for: commands of people's own are another thing to allow, so a profile
 * with a script serves sessions only where it says so.
 */
function sessionOf({ script, session }: ProfileTable, base: string): SessionProfile | null {
  if (session === undefined && script !== undefined) return null;
  const { idle_limit_s, max_lifetime_s, agent, node } = session ?? SessionTable.parse({});
  return {
    idleLimitS: idle_limit_s,
    maxLifetimeS: max_lifetime_s,
    agentPath: agent === undefined ? null : resolve(base, agent),
    // A name is looked for on the node's own PATH.
    nodePath: node.includes('/') ? resolve(base, node) : node,
  };
}

/** `--training-profile NAME=PATH`: a script and its own `#SBATCH` lines, nothing more. Throws ZodError on a bad name. */
export function profileFromPath(name: string, path: string): Profile {
  return {
    name: SafeName.parse(name),
    description: '',
    scriptPath: resolve(path),
    session: null,
    sha256: null,
    cpus: null,
    memoryMiB: null,
    gpus: null,
    nodes: null,
    walltimeS: null,
    heldFailsAfterS: null,
    parametersSchema: null,
    environment: {},
    placement: {},
  };
}

/** What everybody may see of a profile: nothing about where it runs, and no path. */
export type PublicProfile = Pick<
  Profile,
  'name' | 'description' | 'cpus' | 'memoryMiB' | 'gpus' | 'nodes' | 'walltimeS' | 'parametersSchema'
>;

export function publicProfile(profile: Profile): PublicProfile {
  const { name, description, cpus, memoryMiB, gpus, nodes, walltimeS, parametersSchema } = profile;
  return { name, description, cpus, memoryMiB, gpus, nodes, walltimeS, parametersSchema };
}
