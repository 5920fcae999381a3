import { execFile, spawn } from 'node:child_process';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Backend } from '../../src/backend.js';
import { systemClock } from '../../src/runtime/clock.js';
import { commandEnvironment, createSlurmBackend, currentUser, type SlurmConfig } from '../../src/slurm/index.js';

const run = promisify(execFile);
const OUTPUT_MAX = 64 * 1024 * 1024;

/** The cluster that this environment's commands reach, as a worker without cluster.toml has it. */
export const clusterConfig = (): SlurmConfig => ({
  jobNamePrefix: 'oc',
  clusterName: null,
  clusters: [],
  binariesDir: null,
  path: process.env['PATH'] ?? '/usr/bin:/bin',
  slurmConf: process.env['SLURM_CONF'] ?? null,
  user: currentUser(),
  clock: systemClock,
});

export async function openBackend(): Promise<Backend> {
  const backend = createSlurmBackend(clusterConfig());
  const test = await backend.selfTest();
  if (test.kind !== 'fit') throw new Error(`the cluster does not fit: ${JSON.stringify(test)}`);
  return backend;
}

/** Runs a command with the environment that our own calls have; gives its stdout. Throws unless it exits with 0. */
export async function command(file: string, ...argv: readonly string[]): Promise<string> {
  const { stdout } = await run(file, [...argv], { env: commandEnvironment(clusterConfig()), maxBuffer: OUTPUT_MAX });
  return stdout;
}

/** The wall time of a command whose output goes nowhere, ms. */
export async function wallMs(file: string, argv: readonly string[]): Promise<number> {
  const startedMs = performance.now();
  await new Promise<void>((resolve, reject) => {
    const child = spawn(file, [...argv], { env: commandEnvironment(clusterConfig()), stdio: 'ignore' });
    child.once('error', reject);
    child.once('exit', (code) => {
      if (code === 0) resolve();
      else reject(new Error(`${file}: exit ${String(code)}`));
    });
  });
  return performance.now() - startedMs;
}

const IDS_PER_CALL = 500;

/** Cancels these jobs, and no others. */
export async function cancelJobs(ids: readonly string[]): Promise<void> {
  for (let from = 0; from < ids.length; from += IDS_PER_CALL)
    await command('scancel', '--quiet', ...ids.slice(from, from + IDS_PER_CALL));
}

/** A profile script in the directory; its path. */
export function writeProfile(directory: string, name: string, lines: readonly string[]): string {
  const path = join(directory, name);
  writeFileSync(path, `${['#!/bin/sh', '#SBATCH --ntasks=1', ...lines].join('\n')}\n`);
  chmodSync(path, 0o755);
  return path;
}

/** A job that waits for as long as any benchmark takes. */
export const WAITING_PROFILE = ['#SBATCH --begin=now+3hours', 'exit 0'];

const COUNTED = ['squeue', 'sacct', 'scancel', 'scontrol'];

/**
 * A folder to put before PATH, whose commands write down that they were called and then are the real ones: the calls are
 * counted by somebody else than the worker.
 */
export function countingCommands(directory: string): { readonly path: string; readonly log: string } {
  const path = join(directory, 'counted');
  const log = join(directory, 'calls');
  mkdirSync(path);
  writeFileSync(log, '');
  for (const name of COUNTED) {
    const real = `PATH=\${PATH#'${path}':}; export PATH`;
    writeFileSync(join(path, name), `#!/bin/sh\necho ${name} >>'${log}'\n${real}\nexec ${name} "$@"\n`, {
      mode: 0o755,
    });
  }
  return { path, log };
}
