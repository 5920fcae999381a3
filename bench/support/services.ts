import { spawn, type ChildProcess } from 'node:child_process';
import { openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoordinatorClient } from '../../src/coordinator/client.js';
import {
  readCredentialsFile,
  writeCredentialsFile,
  type CredentialsFile,
} from '../../src/coordinator/credentials-file.js';
import type { ClientAnswer } from '../../src/coordinator/client.js';
import type { Role } from '../../src/coordinator/api.js';
import { systemClock } from '../../src/runtime/clock.js';
import { systemRandom } from '../../src/runtime/random.js';
import { until } from './measure.js';

const START_MS = 60_000;

/** One process of the built program; its log goes to a file. */
export class Service {
  readonly #child: ChildProcess;
  readonly #logFile: string;
  readonly #ended: Promise<void>;

  constructor(
    app: string,
    directory: string,
    name: string,
    argv: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ) {
    this.#logFile = join(directory, `${name}.log`);
    const log = openSync(this.#logFile, 'a', 0o600);
    const flags = (process.env['OPEN_COMPUTE_BENCH_NODE_FLAGS'] ?? '').split(' ').filter((flag) => flag !== '');
    this.#child = spawn(process.execPath, [...flags, join(app, 'dist/cli/main.js'), ...argv], {
      cwd: directory,
      env: { ...process.env, ...env },
      stdio: ['ignore', log, log],
    });
    // Whatever ends us must not leave it behind.
    const kill = (): void => void this.#child.kill('SIGKILL');
    process.once('exit', kill);
    this.#ended = new Promise((resolve) => {
      this.#child.once('exit', () => {
        process.off('exit', kill);
        resolve();
      });
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** Whether one of its log lines has this message. */
  says(message: string): boolean {
    return this.text().includes(`"message":${JSON.stringify(message)}`);
  }

  text(): string {
    return readFileSync(this.#logFile, 'utf8');
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    await this.#ended;
  }
}

/** Resident memory of a process now, and at its highest, MB (10^6 bytes). */
export function memoryMB(pid: number): { readonly nowMB: number; readonly peakMB: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const of = (field: string): number =>
    (Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024) / 1e6;
  return { nowMB: of('VmRSS'), peakMB: of('VmHWM') };
}

/** CPU seconds that a process has used, without its children. */
export function cpuS(pid: number): number {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100; // USER_HZ, see proc(5)
}

/** A coordinator process on a free port, and credentials for it. */
export class Gateway {
  readonly directory: string;
  readonly app: string;
  readonly service: Service;
  readonly admin: CoordinatorClient;
  readonly #url: string;

  private constructor(app: string, directory: string, service: Service, credentials: CredentialsFile) {
    this.app = app;
    this.directory = directory;
    this.service = service;
    this.#url = credentials.url;
    this.admin = new CoordinatorClient(credentials, { clock: systemClock, random: systemRandom });
  }

  static async start(app: string, directory: string): Promise<Gateway> {
    const service = new Service(app, directory, 'serve', [
      'serve',
      '--state-dir',
      'coordinator',
      '--listen',
      '127.0.0.1:0',
      '--json',
    ]);
    await until('the coordinator listens', () => service.says('listening'), START_MS).catch((cause: unknown) => {
      throw new Error(`the coordinator did not start: ${service.text()}`, { cause });
    });
    const credentials = await readCredentialsFile(join(directory, 'coordinator/admin.json'));
    return new Gateway(app, directory, service, credentials);
  }

  async credentials(role: Role, name: string): Promise<CredentialsFile> {
    const { id, secret } = answered(await this.admin.createCredential({ role, name }));
    return { url: this.#url, id, secret };
  }

  /** A worker process with these arguments; its log is `worker.log`. */
  async startWorker(argv: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<Service> {
    const file = join(this.directory, 'worker.json');
    await writeCredentialsFile(file, await this.credentials('worker', 'bench'));
    const common = [
      'worker',
      '--backend',
      'slurm',
      '--name',
      'bench',
      '--credentials',
      file,
      '--state-dir',
      'worker',
      '--runs-dir',
      join(this.directory, 'runs'),
      '--json',
    ];
    return new Service(this.app, this.directory, 'worker', [...common, ...argv], env);
  }

  async stop(): Promise<void> {
    this.admin.close();
    await this.service.stop();
  }
}

export function answered<T>(answer: ClientAnswer<T>): T {
  if (answer.kind !== 'answered') throw new Error(`the coordinator: ${JSON.stringify(answer)}`);
  return answer.value;
}
