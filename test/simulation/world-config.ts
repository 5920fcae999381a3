import type { Profile } from '../../src/backend.js';
import { DEFAULT_WORKER_CONFIG, type WorkerConfig } from '../../src/worker/context.js';
import { NEEDED_FAULTS, type Break } from './breaks.js';
import type { Chance } from './chance.js';
import { Swarm, type Fault } from './faults.js';

export const PREFIX = 'oc';
export const UID = 1001;
export const OTHER_UID = 1002;
export const HOME_CLUSTER = 'lab';
export const SECOND_CLUSTER = 'annex';

/** One world's shape: what the seed decides before anything happens. Times: ms. */
export interface WorldConfig {
  readonly tasks: number;
  readonly workers: number;
  readonly clusters: number;
  readonly healAtMs: number;
  readonly messageTimeoutMs: number;
  readonly minJobAgeMs: number;
  readonly ids: { readonly first: number; readonly last: number };
  readonly leaseTtlMs: number;
  /** How many jobs of a task may be lost. */
  readonly lossesMax: number;
  readonly grainMs: number;
  readonly worker: WorkerConfig;
  readonly limits: {
    readonly queryTimeLimitMs: number;
    readonly submitTimeLimitMs: number;
    readonly cancelTimeLimitMs: number;
  };
}

export function drawSwarm(chance: Chance, broken: Break | null, forced: readonly Fault[]): Swarm {
  return new Swarm(chance.fork('swarm'), [...forced, ...(broken === null ? [] : NEEDED_FAULTS[broken])]);
}

export function drawConfig(chance: Chance, swarm: Swarm, broken: Break | null): WorldConfig {
  const messageTimeoutMs = chance.int(2, 8) * 1_000;
  return {
    tasks: chance.int(8, 22),
    // An old incarnation needs a new one beside it.
    workers: Math.max(broken === 'epoch' ? 2 : 1, chance.pick([1, 2, 2, 3])),
    clusters: chance.pick([1, 1, 2]),
    healAtMs: chance.int(180_000, 360_000),
    messageTimeoutMs,
    minJobAgeMs: swarm.has('shortMemory') || swarm.has('idReuse') ? chance.int(2, 10) * 1_000 : 300_000,
    ids: swarm.has('idReuse') ? { first: 100, last: 100 + chance.int(60, 120) } : { first: 1, last: 4_000_000 },
    leaseTtlMs: chance.int(18, 60) * 1_000,
    lossesMax: chance.pick([1, 2, 3]),
    grainMs: chance.pick([500, 700, 1_000]),
    worker: {
      ...DEFAULT_WORKER_CONFIG,
      capacity: chance.pick([3, 8, 20]),
      pollMs: chance.pick([3_000, 10_000, 30_000]),
      watchLimitMs: chance.pick([86_400_000, 86_400_000, 240_000]),
      keepDirectoryMs: 30_000,
      submitConcurrency: chance.pick([1, 4]),
      deliverConcurrency: chance.pick([1, 4]),
      acquireWaitMs: 10_000,
      checkpointEvery: chance.pick([10, 60]),
    },
    limits: { queryTimeLimitMs: 15_000, submitTimeLimitMs: 25_000, cancelTimeLimitMs: 15_000 },
  };
}

const profile = (name: string, over: Partial<Profile>): Profile => ({
  name,
  description: '',
  scriptPath: `/shared/profiles/${name}.sh`,
  session: null,
  sha256: null,
  cpus: 1,
  memoryMiB: 64,
  gpus: null,
  nodes: 1,
  walltimeS: 60,
  heldFailsAfterS: null,
  parametersSchema: null,
  environment: {},
  placement: {},
  ...over,
});

export function profilesOf({ clusters }: WorldConfig): ReadonlyMap<string, Profile> {
  const all = [
    profile('small', {}),
    profile('requeued', { walltimeS: 120, placement: { requeue: 'true', partition: 'cpu' } }),
    profile('once', { placement: { requeue: 'false' } }),
    profile('impatient', { heldFailsAfterS: 20 }),
    ...(clusters > 1 ? [profile('far', { placement: { cluster: SECOND_CLUSTER } })] : []),
  ];
  return new Map(all.map((one) => [one.name, one]));
}
