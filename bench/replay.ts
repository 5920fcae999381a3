import { join } from 'node:path';
import { replayJobs } from '../src/events/replay.js';
import { openForWriting } from '../src/events/sqlite-schema.js';
import { SqliteEventStore } from '../src/events/sqlite-store.js';
import { LIFE, wholeLife } from '../test/support/logs.js';
import type { Bench } from './support/bench.js';
import { atMost, median, spread } from './support/figures.js';
import { took } from './support/measure.js';

const EVENTS = 1_000_000;
const ROUNDS = 3;
const JOBS_PER_APPEND = 500;

/** A full replay of a log into its jobs, against reading the same rows and parsing their JSON. */
export const replay: Bench = {
  name: 'replay',
  summary: 'full replay of 1,000,000 events against reading and JSON-parsing them',
  needsCluster: false,
  run: async ({ directory, divisor, say }) => {
    const perJob = LIFE.length + 1;
    const jobs = Math.ceil(EVENTS / divisor / perJob);
    const file = join(directory, 'events.db');
    const db = openForWriting(file);
    const store = new SqliteEventStore(db, { file, writer: 'bench', nowMs: Date.now });
    try {
      for (let n = 0; n < jobs; n += JOBS_PER_APPEND) {
        const count = Math.min(JOBS_PER_APPEND, jobs - n);
        await store.appendAll(Array.from({ length: count }, (_, index) => wholeLife(n + index)));
      }
      say(`a log of ${jobs * perJob} events, ${jobs} jobs`);
      const bare = db.prepare<[], [string, number, string]>('select stream, version, data from events').raw();
      const rounds: { ours: number; raw: number; cpu: number }[] = [];
      for (let round = 0; round < ROUNDS; round += 1) {
        const raw = await took(() => {
          let parsed = 0;
          for (const [, , data] of bare.iterate()) if (typeof JSON.parse(data) === 'object') parsed += 1;
          return parsed;
        });
        const ours = await took(() => replayJobs(store.readAll()));
        if (ours.value.size !== jobs || raw.value !== jobs * perJob) throw new Error('not everything was replayed');
        rounds.push({ ours: ours.wallMs / 1000, raw: raw.wallMs / 1000, cpu: ours.cpuMs / raw.cpuMs });
      }
      const ratios = rounds.map(({ ours, raw }) => ours / raw);
      return [
        {
          what: `replay of ${(jobs * perJob).toLocaleString('en-US')} events`,
          unit: 's',
          ours: median(rounds.map(({ ours }) => ours)),
          raw: median(rounds.map(({ raw }) => raw)),
          ratio: median(ratios),
          aim: atMost(3, 'ratio'),
          note: `ratio: ${spread(ratios)}; by CPU time ${median(rounds.map(({ cpu }) => cpu)).toFixed(2)}`,
        },
      ];
    } finally {
      await store.close();
    }
  },
};
