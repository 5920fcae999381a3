import { fork } from 'node:child_process';
import { parseArgs } from 'node:util';
import { silentLog, type Log } from '../../src/runtime/log.js';
import { BREAKS, type Break } from './breaks.js';
import { FAULT_NAMES, type Fault } from './faults.js';
import { runSeed, type SeedReport } from './run-seed.js';

const USAGE = `npm run simulate -- --seeds N [--from SEED] [--jobs N] [--break ${BREAKS.join('|')}] [--with FAULT,…] [--verbose]

Runs N worlds, one for each seed from SEED (1) on. Exits 1 if a promise was broken in one of them.
  --jobs N      processes beside each other (2)
  --break NAME  breaks a part on purpose: the checker has to catch it
  --with A,B    faults that every world has
  --verbose     says what the worker and the coordinator log, and shows each seed's figures`;

interface Options {
  readonly from: number;
  readonly seeds: number;
  readonly jobs: number;
  readonly broken: Break | null;
  readonly forced: readonly Fault[];
  readonly verbose: boolean;
}

/** The command line is not right: its message is all that a person needs. */
class UsageError extends Error {}

function count(option: string, text: string | undefined, otherwise: number): number {
  const value = text === undefined ? otherwise : Number(text);
  if (!Number.isSafeInteger(value) || value < 1) throw new UsageError(`--${option} ${text ?? ''}: not a count`);
  return value;
}

/** null: help was asked for. */
function parseOptions(argv: readonly string[]): Options | null {
  const values = parsed(argv);
  if (values.help === true) return null;
  const broken = values.break === undefined ? null : (BREAKS.find((name) => name === values.break) ?? undefined);
  if (broken === undefined) throw new UsageError(`--break ${values.break ?? ''}: there is ${BREAKS.join(', ')}`);
  const forced = (values.with ?? '').split(',').filter((name) => name !== '');
  const unknown = forced.find((name) => !FAULT_NAMES.some((fault) => fault === name));
  if (unknown !== undefined) throw new UsageError(`--with ${unknown}: there is ${FAULT_NAMES.join(', ')}`);
  return {
    forced: FAULT_NAMES.filter((fault) => forced.includes(fault)),
    from: count('from', values.from, 1),
    seeds: count('seeds', values.seeds, 100),
    jobs: count('jobs', values.jobs, 2),
    broken,
    verbose: values.verbose === true,
  };
}

function parsed(argv: readonly string[]) {
  const options = {
    seeds: { type: 'string' },
    from: { type: 'string' },
    jobs: { type: 'string' },
    break: { type: 'string' },
    with: { type: 'string' },
    verbose: { type: 'boolean' },
    help: { type: 'boolean', short: 'h' },
  } as const;
  try {
    return parseArgs({ args: [...argv], options }).values;
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

const consoleLog = (level: string) => (fields: object, message: string) => {
  console.log(`  ${level} ${message} ${JSON.stringify(fields)}`);
};
const verboseLog: Log = { info: consoleLog('info'), warn: consoleLog('warn'), error: consoleLog('error') };

/** In a child: every `jobs`-th seed from its own first one on; one line of JSON per seed. */
async function runShare({ from, seeds, jobs, broken, forced, verbose }: Options, share: number): Promise<void> {
  for (let seed = from + share; seed < from + seeds; seed += jobs) {
    const report = await runSeed(seed, { broken, forced, log: verbose ? verboseLog : silentLog });
    process.send?.(report);
  }
  process.disconnect();
}

const add = (into: Record<string, number>, from: Readonly<Record<string, number>>): void => {
  for (const [name, value] of Object.entries(from)) into[name] = (into[name] ?? 0) + value;
};

const figures = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(', ');

function show(report: SeedReport, command: string): void {
  console.log(`\nseed ${String(report.seed)} broke a promise:`);
  for (const violation of report.violations.slice(0, 5)) console.log(`  ${violation}`);
  for (const line of report.details) console.log(`    ${line}`);
  console.log(`  again: ${command}`);
}

/** `argv`: what `options` were read from, for the children. Gives the exit code. */
async function runAll(options: Options, argv: readonly string[]): Promise<number> {
  const { from, seeds, jobs, broken, forced, verbose } = options;
  const startedMs = performance.now();
  const failed: number[] = [];
  const ends: Record<string, number> = {};
  const faults: Record<string, number> = {};
  let done = 0;
  let tasks = 0;
  let virtualMs = 0;
  const take = (report: SeedReport): void => {
    done += 1;
    tasks += report.tasks;
    virtualMs += report.virtualMs;
    add(ends, report.ends);
    add(faults, report.faults);
    if (verbose) console.log(`seed ${String(report.seed)}: ${JSON.stringify({ ...report, details: [] })}`);
    if (report.violations.length === 0) return;
    failed.push(report.seed);
    const more = `${broken === null ? '' : ` --break ${broken}`}${forced.length === 0 ? '' : ` --with ${forced.join()}`}`;
    if (broken === null || verbose)
      show(report, `npm run simulate -- --seeds 1 --from ${String(report.seed)}${more} --verbose`);
  };
  const shares = Array.from({ length: Math.min(jobs, seeds) }, (_, share) => share);
  const codes = await Promise.all(
    shares.map(
      (share) =>
        new Promise<number | null>((resolve) => {
          const child = fork(process.argv[1] ?? '', ['--share', String(share), ...argv]);
          child.on('message', (message) => take(message as SeedReport));
          child.on('exit', resolve);
        }),
    ),
  );
  const seconds = (performance.now() - startedMs) / 1000;
  console.log(
    [
      `seeds ${String(from)} to ${String(from + seeds - 1)}${broken === null ? '' : `, ${broken} broken`}: ${String(done)} run, ${String(failed.length)} broke a promise`,
      `${String(tasks)} tasks: ${figures(ends)}`,
      `faults: ${figures(faults)}`,
      `${(virtualMs / 3_600_000).toFixed(1)} hours of the worlds' time in ${seconds.toFixed(1)} s`,
      ...(codes.every((code) => code === 0) ? [] : [`a process ended early: exit codes ${codes.join(', ')}`]),
      ...(failed.length === 0 ? [] : [`broken in: ${failed.sort((a, b) => a - b).join(' ')}`]),
    ].join('\n'),
  );
  const crashed = codes.some((code) => code !== 0) || done !== seeds;
  return failed.length > 0 || crashed ? 1 : 0;
}

async function main(argv: readonly string[]): Promise<number> {
  const [first, share, ...rest] = argv;
  const isChild = first === '--share';
  try {
    const options = parseOptions(isChild ? rest : argv);
    if (options === null) console.log(USAGE);
    else if (isChild) await runShare(options, Number(share));
    else return await runAll(options, argv);
    return 0;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    console.error(`${error.message}\n\n${USAGE}`);
    return 2;
  }
}

process.exitCode = await main(process.argv.slice(2));
