import { mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { availableParallelism, cpus, loadavg } from 'node:os';
import { join, resolve } from 'node:path';
import { appends } from './appends.js';
import { cycles } from './cycles.js';
import { load } from './load.js';
import { replay } from './replay.js';
import { restart } from './restart.js';
import { steps } from './steps.js';
import { submissions } from './submissions.js';
import { delivery } from './delivery.js';
import { watching } from './watching.js';
import type { Bench } from './support/bench.js';
import { isMet, type Figure } from './support/figures.js';
import { parseOptions, USAGE, type Options } from './support/options.js';
import { toTable } from './support/table.js';

const BENCHES: readonly Bench[] = [submissions, delivery, appends, replay, restart, cycles, load, steps, watching];

const TMPFS = 0x01021994;

const say = (text: string): void => console.error(`${new Date().toISOString().slice(11, 19)} ${text}`);
const hasCluster = (process.env['SLURM_CONF'] ?? '') !== '';

/** Runs one benchmark in a directory of its own. */
async function measure(bench: Bench, options: Options): Promise<readonly Figure[]> {
  const directory = mkdtempSync(join(resolve(options.directory), 'open-compute-bench-'));
  say(`${bench.name}: ${bench.summary} (load ${loadavg()[0]?.toFixed(1) ?? '?'})`);
  try {
    const { app, divisor } = options;
    const figures = await bench.run({ directory, app: resolve(app), divisor, say });
    return figures.map((figure) => ({ bench: bench.name, ...figure }));
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

function showList(): void {
  for (const { name, summary, needsCluster } of BENCHES)
    console.log(`${name.padEnd(12)} ${summary}${needsCluster ? ' [cluster]' : ''}`);
}

async function main(argv: readonly string[]): Promise<number> {
  let options: Options;
  try {
    options = parseOptions(argv);
    const unknown = options.names.filter((name) => !BENCHES.some((bench) => bench.name === name));
    if (unknown.length > 0) throw new Error(`no such benchmark: ${unknown.join(', ')}; --list shows what there is`);
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : String(error)}\n\n${USAGE}`);
    return 2;
  }
  const { names, help, list } = options;
  const chosen = BENCHES.filter(({ name }) => names.length === 0 || names.includes(name));
  if (options.needsCluster) console.log(!help && !list && chosen.some((bench) => bench.needsCluster) ? 'yes' : 'no');
  else if (help) console.log(USAGE);
  else if (list) showList();
  else return await runAll(chosen, options);
  return 0;
}

/** Gives the exit code: 1 if a benchmark failed. */
async function runAll(chosen: readonly Bench[], options: Options): Promise<number> {
  if (statfsSync(options.directory).type === TMPFS)
    say(`${options.directory} is memory, not a disk: nothing is durable there`);
  const figures: Figure[] = [];
  const skipped: string[] = [];
  let failed = 0;
  for (const bench of chosen) {
    if (bench.needsCluster && !hasCluster) {
      skipped.push(bench.name);
      continue;
    }
    try {
      const found = await measure(bench, options);
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
    divisor: options.divisor,
  };
  if (options.json) {
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
process.exitCode = await main(process.argv.slice(2));
