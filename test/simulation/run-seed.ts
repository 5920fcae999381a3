import { createHash } from 'node:crypto';
import type { RecordedEvent } from '../../src/events/store.js';
import type { Log } from '../../src/runtime/log.js';
import type { Break } from './breaks.js';
import type { Fault } from './faults.js';
import { World } from './world.js';

const LAST_EVENTS = 60;

/** What became of one seed's world. */
export interface SeedReport {
  readonly seed: number;
  readonly violations: readonly string[];
  /** Of all events of all logs: the same seed gives the same digest. */
  readonly digest: string;
  readonly virtualMs: number;
  readonly steps: number;
  readonly tasks: number;
  readonly ends: Readonly<Record<string, number>>;
  readonly faults: Readonly<Record<string, number>>;
  /** Filled for a failing seed: its world's shape and the newest events. */
  readonly details: readonly string[];
}

export interface SeedOptions {
  readonly broken?: Break | null;
  /** Faults that the world has in any case. */
  readonly forced?: readonly Fault[];
  /** What the production code logs. */
  readonly log?: Log | null;
}

/** Runs one seed's world from its beginning to its end. The same seed and options give the same report. */
export async function runSeed(
  seed: number,
  { broken = null, forced = [], log = null }: SeedOptions = {},
): Promise<SeedReport> {
  const world = new World(seed, broken, forced, log);
  await world.run();
  const { checker, swarm } = world;
  const hash = createHash('sha256');
  const records: (RecordedEvent & { readonly log: string })[] = [];
  for (const { name, store } of world.logs) {
    for await (const record of store.readAll()) {
      hash.update(JSON.stringify([name, record]));
      records.push({ ...record, log: name });
    }
  }
  const ends: Record<string, number> = {};
  for (const { phase } of checker.tasks.values()) ends[phase] = (ends[phase] ?? 0) + 1;
  const violations = [...checker.violations];
  return {
    seed,
    violations,
    digest: hash.digest('hex'),
    virtualMs: world.time.nowMs,
    steps: world.steps,
    tasks: checker.tasks.size,
    ends,
    faults: Object.fromEntries(swarm.counts),
    details: violations.length === 0 ? [] : details(world, records),
  };
}

function details(world: World, records: readonly (RecordedEvent & { readonly log: string })[]): readonly string[] {
  const said = world.checker.violations.join(' ');
  const named = new Set(said.match(/(?:job|task)_[0-9a-z]{26}/g) ?? []);
  const about = records.filter(({ stream, event }) => {
    if (named.size === 0) return true;
    return named.has(stream.slice(stream.indexOf('/') + 1)) || ('taskId' in event && named.has(event.taskId));
  });
  about.sort((a, b) => a.recordedAtMs - b.recordedAtMs);
  return [
    `faults on: ${world.swarm.names.join(', ')}`,
    `config: ${JSON.stringify(world.config)}`,
    ...about
      .slice(-LAST_EVENTS)
      .map(({ log, stream, version, event }) => `${log} ${stream} ${String(version)} ${JSON.stringify(event)}`),
  ];
}
