import { mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { appends } from './appends.js';
import { cycles } from './cycles.js';
import { load } from './load.js';
import { replay } from './replay.js';
import { restart } from './restart.js';
import { submissions } from './submissions.js';
import { delivery } from './delivery.js';
import { watching } from './watching.js';
import type { Bench } from './support/bench.js';
import { isMet, type Figure } from './support/figures.js';
import { toTable } from './support/table.js';

const BENCHES: readonly Bench[] = [submissions, delivery, appends, replay, restart, cycles, load, watching];

const TMPFS = 0x01021994;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
    /** For run.sh: prints `yes` if one of the named benchmarks needs a cluster. */
    'needs-cluster': { type: 'boolean', default: false },
    /** Sizes divided by this: to see that everything works, not for figures. */
    divisor: { type: 'string', default: '1' },
    /** The root of the built package. */
    app: { type: 'string', default: '.' },
    /** Where to write: a real local disk. */
    directory: { type: 'string', default: tmpdir() },
  },
});

const say = (text: string): void => console.error(`${new Date().toISOString().slice(11, 19)} ${text}`);
const hasCluster = (process.env['SLURM_CONF'] ?? '') !== '';

/** Runs one benchmark in a directory of its own. */
async function measure(bench: Bench): Promise<readonly Figure[]> {
  const directory = mkdtempSync(join(resolve(values.directory), 'open-compute-bench-'));
  say(`${bench.name}: ${bench.summary} (load ${loadavg()[0]?.toFixed(1) ?? '?'})`);
  try {
    const divisor = Number(values.divisor);
    const figures = await bench.run({ directory, app: resolve(values.app), divisor, say });
    return figures.map((figure) => ({ bench: bench.name, ...figure }));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function main(): Promise<number> {
  const unknown = positionals.filter((name) => !BENCHES.some((bench) => bench.name === name));
  if (values['needs-cluster'] && (values.list || unknown.length > 0)) {
    console.log('no');
    return 0;
  }
  if (values.list || unknown.length > 0) {
    for (const { name, summary, needsCluster } of BENCHES)
      console.log(`${name.padEnd(12)} ${summary}${needsCluster ? ' [cluster]' : ''}`);
    if (unknown.length > 0) console.error(`no such benchmark: ${unknown.join(', ')}`);
    return unknown.length > 0 ? 2 : 0;
  }
  const chosen = BENCHES.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
  if (values['needs-cluster']) {
    console.log(chosen.some((bench) => bench.needsCluster) ? 'yes' : 'no');
    return 0;
  }
  if (statfsSync(values.directory).type === TMPFS)
    say(`${values.directory} is memory, not a disk: nothing is durable there`);
  const figures: Figure[] = [];
  const skipped: string[] = [];
  let failed = 0;
  for (const bench of chosen) {
    if (bench.needsCluster && !hasCluster) {
      skipped.push(bench.name);
      continue;
    }
    try {
      const found = await measure(bench);
      figures.push(...found);
      console.error(toTable(found));
    } catch (error) {
      failed += 1;
      say(`${bench.name} failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    }
  }
  const machine = {
    processor: cpus()[0]?.model ?? 'unknown',
    processors: availableParallelism(),
    node: process.version,
    load: loadavg(),
    divisor: Number(values.divisor),
  };
  if (values.json) {
    console.log(
      JSON.stringify({ machine, figures: figures.map((one) => ({ ...one, met: isMet(one) })), skipped }, null, 2),
    );
  } else {
    console.log(
      `${machine.processors} × ${machine.processor}, Node ${machine.node}, load ${machine.load.map((one) => one.toFixed(1)).join(' ')}`,
    );
    console.log(toTable(figures));
    if (skipped.length > 0) console.log(`left out, for no cluster is up (SLURM_CONF): ${skipped.join(', ')}`);
  }
  return failed > 0 ? 1 : 0;
}

// So that what was started is ended too: see services.ts.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1));
process.exitCode = await main();
