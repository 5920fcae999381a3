import { spawn } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { installed, run, type Child } from '../cli/support/program.js';
import {
  SITE_SCRIPTS,
  siteProfiles,
  type Finished,
  type SessionHints,
  type SessionSite,
  type Started,
} from '../contract/session-site.js';
import { follow } from './started.js';
import { temporaryDirectory } from './temporary-directory.js';
import { eventually } from './wait.js';

/** A coordinator and a worker of this machine, as processes of the built program. */
export async function openLocalSite(hints: Pick<SessionHints, 'idleLimitS'>): Promise<SessionSite> {
  const site = new LocalSite(await installed(), temporaryDirectory(), hints);
  await site.open();
  return site;
}

class LocalSite implements SessionSite {
  readonly directory: string;
  readonly #main: string;
  readonly #hints: Pick<SessionHints, 'idleLimitS'>;
  #port = 0;
  #serve: Child | null = null;
  #worker: Child | null = null;
  #log = '';

  constructor(main: string, directory: string, hints: Pick<SessionHints, 'idleLimitS'>) {
    this.#main = main;
    this.directory = directory;
    this.#hints = hints;
  }

  async open(): Promise<void> {
    writeFileSync(join(this.directory, 'cluster.toml'), siteProfiles(this.#hints));
    for (const [name, text] of Object.entries(SITE_SCRIPTS))
      writeFileSync(join(this.directory, name), text, { mode: 0o755 });
    await this.#startCoordinator();
    for (const [role, name] of [
      ['worker', 'w'],
      ['submitter', 'alice'],
    ] as const) {
      const argv = ['credentials', 'create', '--role', role, '--name', name, '--out', `${name}.json`];
      const made = await this.#begin(argv, 'coordinator/admin.json').ended;
      if (made.exitCode !== 0) throw new Error(made.stderr);
    }
    await this.#startWorker();
  }

  run(argv: readonly string[], stdin?: string): Promise<Finished> {
    return this.#begin(argv, 'alice.json', stdin).ended;
  }

  start(argv: readonly string[]): Started {
    return this.#begin(argv, 'alice.json');
  }

  shell(line: string): Promise<Finished> {
    return this.startShell(line).ended;
  }

  startShell(line: string): Started {
    const program = `open-compute() { '${process.execPath}' '${this.#main}' "$@"; }`;
    const child = spawn('bash', ['-c', `${program}; ${line}`], {
      cwd: this.directory,
      env: { PATH: process.env['PATH'], HOME: this.directory, OPEN_COMPUTE_CREDENTIALS: 'alice.json' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return follow(child);
  }

  async restartWorker(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    this.#worker?.process.kill(signal);
    await this.#worker?.ended;
    await this.#startWorker();
  }

  async restartCoordinator(): Promise<void> {
    this.#serve?.process.kill('SIGKILL');
    await this.#serve?.ended;
    await this.#startCoordinator();
  }

  workerLog(): string {
    return this.#log + (this.#worker?.stderr() ?? '');
  }

  /** Every process of the job at once, as when a machine loses power. */
  async loseJob(jobId: string): Promise<void> {
    await eventually(() => {
      const pids = processesOf(jobId);
      for (const pid of pids) killQuietly(pid);
      return pids.length === 0 ? true : null;
    });
  }

  async close(): Promise<void> {
    // A worker that stops leaves jobs running: none may be left.
    const { stdout } = await this.run(['session', 'list', '--json']);
    const { sessions } = JSON.parse(stdout) as {
      readonly sessions: readonly { readonly task: { readonly taskId: string } }[];
    };
    for (const { task } of sessions) await this.run(['session', 'stop', task.taskId, '--wait']);
    for (const child of [this.#worker, this.#serve]) {
      child?.process.kill('SIGTERM');
      await child?.ended;
    }
  }

  async #startCoordinator(): Promise<void> {
    const argv = ['serve', '--state-dir', 'coordinator', '--listen', `127.0.0.1:${String(this.#port)}`];
    const serve = run(process.execPath, [this.#main, ...argv], { cwd: this.directory });
    this.#serve = serve;
    const url = await eventually(() => /"url":"([^"]+)"/.exec(serve.stderr())?.[1] ?? null, 30_000);
    this.#port = Number(new URL(url).port);
  }

  async #startWorker(): Promise<void> {
    this.#log = this.workerLog();
    const argv = [
      ...['worker', '--backend', 'local', '--name', 'w', '--credentials', 'w.json', '--state-dir', 'worker-state'],
      ...['--runs-dir', join(this.directory, 'runs'), '--session-listen', '127.0.0.1:0', '--max-running', '8'],
    ];
    const worker = run(process.execPath, [this.#main, ...argv], { cwd: this.directory });
    this.#worker = worker;
    await eventually(() => (worker.stderr().includes('started; adopted') ? true : null), 30_000);
  }

  #begin(argv: readonly string[], credentials: string, stdin?: string): Started {
    const child = spawn(process.execPath, [this.#main, ...argv], {
      cwd: this.directory,
      env: { PATH: process.env['PATH'], HOME: this.directory, OPEN_COMPUTE_CREDENTIALS: credentials },
      stdio: [stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    });
    return follow(child, stdin);
  }
}

function processesOf(jobId: string): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${String(pid)}/environ`, 'latin1').includes(jobId);
      } catch {
        // Gone, or not ours.
        return false;
      }
    });
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself meanwhile.
  }
}
