import type { Database } from 'better-sqlite3';
import { join } from 'node:path';
import { openForWriting } from '../src/events/sqlite-schema.js';
import { SqliteEventStore } from '../src/events/sqlite-store.js';
import type { Append } from '../src/events/store.js';
import { create, next } from '../test/support/logs.js';
import { at } from '../test/support/job-events.js';
import type { Bench } from './support/bench.js';
import { atLeast, compared } from './support/figures.js';
import { rate, took } from './support/measure.js';

const STREAMS = 500;
const ROUNDS = 15;
const ONE_BY_ONE = 300;
const GROUP = 64;
const GROUPS = 40;

/** Durable appends against bare inserts of the same rows into the same table with the same settings. */
export const appends: Bench = {
  name: 'appends',
  summary: 'durable appends per second against bare better-sqlite3 inserts (WAL, synchronous=FULL)',
  needsCluster: false,
  run: async ({ directory, divisor }) => {
    const file = join(directory, 'ours.db');
    const store = new SqliteEventStore(openForWriting(file), { file, writer: 'bench', nowMs: Date.now });
    const bare = openForWriting(join(directory, 'bare.db'));
    try {
      for (let n = 0; n < STREAMS; n += 1) await store.append(create(n));
      const writer = new Writer(store, bare);
      const alone: { ours: number; raw: number }[] = [];
      const grouped: { ours: number; raw: number }[] = [];
      // Once without counting: a worker is warm after its first minute.
      await writer.alone(Math.ceil(ONE_BY_ONE / divisor));
      await writer.grouped(Math.ceil(GROUPS / divisor));
      for (let round = 0; round < ROUNDS; round += 1) {
        alone.push(await writer.alone(Math.ceil(ONE_BY_ONE / divisor)));
        grouped.push(await writer.grouped(Math.ceil(GROUPS / divisor)));
      }
      return [
        {
          what: 'durable appends, one by one',
          unit: '/s',
          aim: atLeast(0.8, 'ratio'),
          ...compared(alone),
        },
        {
          what: `durable appends, ${GROUP} at a time`,
          unit: '/s',
          aim: null,
          ...compared(grouped),
          note: `against ${GROUP} bare inserts in one transaction; ${compared(grouped).note}`,
        },
      ];
    } finally {
      bare.close();
      await store.close();
    }
  },
};

/** Writes the same events in both ways, in turns. */
class Writer {
  readonly #store: SqliteEventStore;
  readonly #bare: Database;
  readonly #insert;
  #written = 0;

  constructor(store: SqliteEventStore, bare: Database) {
    this.#store = store;
    this.#bare = bare;
    this.#insert = bare.prepare(
      'insert into events(stream, version, data, recorded_at, writer) values (?, ?, ?, ?, ?)',
    );
  }

  async alone(count: number): Promise<{ ours: number; raw: number }> {
    const batch = this.#batch(count);
    const ours = await took(async () => {
      for (const append of batch) await this.#store.append(append);
    });
    const rows = batch.map(rowOf);
    const raw = await took(() => {
      for (const row of rows) this.#insert.run(...row);
    });
    return { ours: rate(count, ours.wallMs), raw: rate(count, raw.wallMs) };
  }

  async grouped(groups: number): Promise<{ ours: number; raw: number }> {
    const batches = Array.from({ length: groups }, () => this.#batch(GROUP));
    const ours = await took(async () => {
      for (const batch of batches) await Promise.all(batch.map((append) => this.#store.append(append)));
    });
    const rows = batches.map((batch) => batch.map(rowOf));
    const together = this.#bare.transaction((group: readonly Row[]) => {
      for (const row of group) this.#insert.run(...row);
    });
    const raw = await took(() => {
      for (const group of rows) together.immediate(group);
    });
    return { ours: rate(groups * GROUP, ours.wallMs), raw: rate(groups * GROUP, raw.wallMs) };
  }

  /** The next event of each stream in turn. */
  #batch(count: number): readonly Append[] {
    return Array.from({ length: count }, () => {
      const n = this.#written % STREAMS;
      const version = 1 + Math.floor(this.#written / STREAMS);
      this.#written += 1;
      return next(n, version, at(Date.now()).pending('queued', 'Priority'));
    });
  }
}

type Row = readonly [stream: string, version: number, data: string, recordedAt: number, writer: string];

function rowOf({ stream: name, expectedVersion, events }: Append): Row {
  return [name, expectedVersion + 1, JSON.stringify(events[0]), Date.now(), 'bench'];
}
