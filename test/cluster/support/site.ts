import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { chmodSync, mkdtempSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The real cluster that `npm run test:cluster` brought up, and the program as its job user runs it. */

function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: run these tests with npm run test:cluster`);
  return value;
}

export const SLURM_CONF = setting('SLURM_CONF');
export const JOB_USER = setting('SLURM_TEST_USER');
export const APP = setting('SLURM_TEST_APP');
export const HAS_CGROUP = setting('SLURM_TEST_CGROUP') === 'on';
const CTL = new URL('../ctl.sh', import.meta.url).pathname;
const MAIN = join(APP, 'dist/cli/main.js');

export interface Finished {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The job user's whole environment: nothing of the test's own gets through. */
const userEnvironment = (home: string, extra: Readonly<Record<string, string>>): Record<string, string> => ({
  PATH: process.env['PATH'] ?? '/usr/bin:/bin',
  HOME: home,
  SLURM_CONF,
  ...extra,
});

const asUser = (argv: readonly string[]): readonly string[] => [
  `--reuid=${JOB_USER}`,
  `--regid=${JOB_USER}`,
  '--init-groups',
  ...argv,
];

/** Runs a command to its end; an exit code is an answer. Throws if it could not be started. */
function finish(file: string, argv: readonly string[], options: object): Promise<Finished> {
  return new Promise((resolve, reject) => {
    execFile(
      file,
      [...argv],
      { maxBuffer: 64 * 1024 * 1024, encoding: 'utf8', ...options },
      (error, stdout, stderr) => {
        if (error === null) resolve({ exitCode: 0, stdout, stderr });
        else if (typeof error.code === 'number') resolve({ exitCode: error.code, stdout, stderr });
        else reject(new Error(error.message, { cause: error }));
      },
    );
  });
}

/** Runs a Slurm command, or any other, as root, who is the cluster's administrator. Throws unless it exits with 0. */
export async function asAdmin(file: string, ...argv: readonly string[]): Promise<string> {
  const done = await finish(file, argv, { env: { PATH: process.env['PATH'], SLURM_CONF, SLURM_TIME_FORMAT: '%s' } });
  if (done.exitCode !== 0) throw new Error(`${file} ${argv.join(' ')}: ${done.stderr}`);
  return done.stdout;
}

/** Pulls a lever of the cluster, as in `ctl('stop', 'slurmctld')`. */
export async function ctl(...argv: readonly string[]): Promise<void> {
  const done = await finish(CTL, argv, { env: process.env });
  if (done.exitCode !== 0) throw new Error(`ctl.sh ${argv.join(' ')}: ${done.stdout}${done.stderr}`);
}

/** A directory that is the job user's own, on the file system that all nodes share. */
export async function userDirectory(): Promise<string> {
  const directory = mkdtempSync('/tmp/open-compute-test-');
  await asAdmin('chown', `${JOB_USER}:`, directory);
  chmodSync(directory, 0o700);
  return directory;
}

/** Runs a command of the job user's in its directory, to its end. */
export function asJobUser(
  directory: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Finished> {
  return finish('setpriv', asUser(argv), { cwd: directory, env: userEnvironment(directory, env) });
}

/** `open-compute …` as the job user. */
export function openCompute(
  directory: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<Finished> {
  return asJobUser(directory, [process.execPath, MAIN, ...argv], env);
}

/** What is still running when the tests are over, for whatever reason, ends with them. */
const started = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of started) child.kill('SIGKILL');
});

/** `open-compute …` as the job user, under way: its streams are the caller's. */
export function spawnOpenCompute(
  directory: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>>,
): ChildProcess {
  const child = spawn('setpriv', asUser([process.execPath, MAIN, ...argv]), {
    cwd: directory,
    env: userEnvironment(directory, env),
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  started.add(child);
  child.once('exit', () => started.delete(child));
  return child;
}

/** A shell command line of the job user's, in which `open-compute` is the program. */
export function spawnShell(directory: string, line: string, env: Readonly<Record<string, string>>): ChildProcess {
  const program = `open-compute() { '${process.execPath}' '${MAIN}' "$@"; }`;
  const child = spawn('setpriv', asUser(['bash', '-c', `${program}; ${line}`]), {
    cwd: directory,
    env: userEnvironment(directory, env),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  started.add(child);
  child.once('exit', () => started.delete(child));
  return child;
}

/** A service of the job user's; its output goes to a file. */
export interface Service {
  readonly process: ChildProcess;
  /** What it has written so far, both streams. */
  log(): string;
  /** Sends the signal and waits for its end. */
  stop(signal: NodeJS.Signals): Promise<number | null>;
}

export function startService(
  directory: string,
  logName: string,
  argv: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Service {
  const logFile = join(directory, logName);
  const out = openSync(logFile, 'a');
  const child = spawn('setpriv', asUser([process.execPath, MAIN, ...argv]), {
    cwd: directory,
    env: userEnvironment(directory, env),
    stdio: ['ignore', out, out],
  });
  const ended = new Promise<number | null>((resolve) => {
    child.once('exit', resolve);
  });
  // A test that fails before it stops its services must not keep the whole run waiting for them.
  child.unref();
  started.add(child);
  child.once('exit', () => started.delete(child));
  return {
    process: child,
    log: () => readFileSync(logFile, 'utf8'),
    stop: async (signal) => {
      child.kill(signal);
      return ended;
    },
  };
}

export interface AccountingRow {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly exitCode: string;
}

/** The job user's jobs whose name begins with our prefix, one row per job, as accounting has them. */
export async function accountedJobs(sinceMs: number): Promise<readonly AccountingRow[]> {
  const text = await asAdmin(
    'sacct',
    '-n',
    '-P',
    '-X',
    `--user=${JOB_USER}`,
    `--starttime=${new Date(sinceMs - 60_000).toISOString().slice(0, 19)}`,
    '--format=JobIDRaw,JobName,State,ExitCode',
  );
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => {
      const [id = '', name = '', state = '', exitCode = ''] = line.split('|');
      return { id, name, state, exitCode };
    })
    .filter(({ name }) => name.startsWith('oc-'));
}
