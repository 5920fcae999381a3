import { chmodSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import type { TaskView } from '../../../src/coordinator/api.js';
import { CoordinatorClient, type ClientAnswer } from '../../../src/coordinator/client.js';
import { CredentialsFile } from '../../../src/coordinator/credentials-file.js';
import type { TaskId } from '../../../src/machines/vocabulary.js';
import { systemClock } from '../../../src/runtime/clock.js';
import { systemRandom } from '../../../src/runtime/random.js';
import { eventually } from '../../support/wait.js';
import { APP, openCompute, startService, userDirectory, type Finished, type Service } from './site.js';

/** How long anything that is not itself slow may take, ms. */
const PATIENCE_MS = 60_000;

export interface GatewayOptions {
  /** Text of cluster.toml; without it the worker offers the smoke script alone. */
  readonly clusterToml?: string;
  /** Further scripts, by name, written into the gateway's directory beside cluster.toml. */
  readonly scripts?: Readonly<Record<string, string>>;
  readonly workerArguments?: readonly string[];
  readonly workerEnvironment?: Readonly<Record<string, string>>;
  /** A folder of programs, by name, that stands first on the worker's PATH. */
  readonly programs?: Readonly<Record<string, string>>;
}

/** A coordinator and a worker of the job user's, started as the README says. */
export class Gateway {
  readonly directory: string;
  readonly #options: GatewayOptions;
  #client: CoordinatorClient | null = null;
  #serve: Service | null = null;
  #worker: Service | null = null;

  private constructor(directory: string, options: GatewayOptions) {
    this.directory = directory;
    this.#options = options;
  }

  static async start(options: GatewayOptions = {}): Promise<Gateway> {
    const gateway = new Gateway(await userDirectory(), options);
    await gateway.startCoordinator();
    const create = async (role: string, name: string, out: string): Promise<void> => {
      await gateway.expectOk('credentials', 'create', '--role', role, '--name', name, '--out', out);
    };
    await create('worker', 'hpc-gateway', 'slurm-worker.json');
    await create('submitter', 'alice', 'alice.json');
    for (const [name, text] of Object.entries(options.scripts ?? {})) gateway.write(name, text, 0o755);
    if (options.programs !== undefined) mkdirSync(gateway.programsDir);
    for (const [name, text] of Object.entries(options.programs ?? {}))
      gateway.write(join('programs', name), text, 0o755);
    if (options.programs !== undefined) chmodSync(gateway.programsDir, 0o777);
    if (options.clusterToml !== undefined) gateway.write('cluster.toml', options.clusterToml, 0o644);
    gateway.startWorker();
    return gateway;
  }

  get runsDir(): string {
    return join(this.directory, 'runs');
  }

  get programsDir(): string {
    return join(this.directory, 'programs');
  }

  get workerState(): string {
    return join(this.directory, 'worker-state');
  }

  async startCoordinator(): Promise<void> {
    const argv = ['serve', '--state-dir', 'coordinator', '--listen', '127.0.0.1:0'];
    // After the first start the clients know the port, so it has to stay the same.
    const port = this.#serve === null ? null : this.#port();
    if (port !== null) argv[argv.length - 1] = `127.0.0.1:${port}`;
    this.#serve = startService(this.directory, 'serve.log', argv);
    await eventually(async () => ((await this.run('status')).exitCode === 0 ? true : null), PATIENCE_MS);
  }

  #port(): string {
    const text = readFileSync(join(this.directory, 'coordinator/admin.json'), 'utf8');
    return new URL(z.object({ url: z.string() }).parse(JSON.parse(text)).url).port;
  }

  startWorker(): void {
    const { clusterToml, workerArguments = [], workerEnvironment = {}, programs } = this.#options;
    const path = process.env['PATH'] ?? '/usr/bin:/bin';
    const profiles = clusterToml === undefined ? ['--training-profile', `smoke=${APP}/examples/slurm-smoke.sh`] : [];
    this.#worker = startService(
      this.directory,
      'worker.log',
      [
        ...['worker', '--backend', 'slurm', '--name', 'hpc-gateway', '--credentials', 'slurm-worker.json'],
        ...['--state-dir', 'worker-state', '--runs-dir', 'runs', '--status-every', '5'],
        ...profiles,
        ...workerArguments,
      ],
      { ...workerEnvironment, ...(programs === undefined ? {} : { PATH: `${this.programsDir}:${path}` }) },
    );
  }

  write(name: string, text: string, mode: number): void {
    writeFileSync(join(this.directory, name), text, { mode });
  }

  get worker(): Service {
    if (this.#worker === null) throw new Error('the worker was not started');
    return this.#worker;
  }

  get coordinator(): Service {
    if (this.#serve === null) throw new Error('the coordinator was not started');
    return this.#serve;
  }

  /** `open-compute …` with the administrator's credentials, unless others are named. */
  run(...argv: readonly string[]): Promise<Finished> {
    return openCompute(this.directory, argv, { OPEN_COMPUTE_CREDENTIALS: 'coordinator/admin.json' });
  }

  async expectOk(...argv: readonly string[]): Promise<string> {
    const done = await this.run(...argv);
    if (done.exitCode !== 0)
      throw new Error(`open-compute ${argv.join(' ')}: exit ${String(done.exitCode)}: ${done.stderr}`);
    return done.stdout;
  }

  /** The administrator's own program: quicker than a command for each question. */
  get client(): CoordinatorClient {
    this.#client ??= this.#connect();
    return this.#client;
  }

  #connect(): CoordinatorClient {
    const text = readFileSync(join(this.directory, 'coordinator/admin.json'), 'utf8');
    return new CoordinatorClient(CredentialsFile.parse(JSON.parse(text)), { clock: systemClock, random: systemRandom });
  }

  /** The task's id. */
  async submit(profile: string, parameters: object = {}): Promise<TaskId> {
    return answered(await this.client.submit({ kind: 'training', payload: { profile, parameters } })).taskId;
  }

  async task(taskId: TaskId): Promise<TaskView> {
    return answered(await this.client.get(taskId));
  }

  async result(taskId: TaskId): Promise<unknown> {
    return answered(await this.client.result(taskId)).result;
  }

  /** Waits until the task is as wanted. */
  taskThat(taskId: TaskId, wanted: (task: TaskView) => boolean, patienceMs = PATIENCE_MS): Promise<TaskView> {
    return eventually(async () => {
      const task = await this.task(taskId);
      return wanted(task) ? task : null;
    }, patienceMs);
  }

  ended(taskId: TaskId, patienceMs = PATIENCE_MS): Promise<TaskView> {
    return this.taskThat(taskId, ({ phase }) => phase !== 'Queued' && phase !== 'Leased', patienceMs);
  }

  async jobPhase(taskId: TaskId): Promise<string> {
    return (await this.task(taskId)).jobs.at(-1)?.phase ?? 'none';
  }

  /** Names of the job directories that are there. */
  directories(): readonly string[] {
    return readdirSync(this.runsDir).filter((name) => name.startsWith('job_'));
  }

  async stop(): Promise<void> {
    await this.#worker?.stop('SIGTERM');
    await this.#serve?.stop('SIGTERM');
  }
}

function answered<T>(answer: ClientAnswer<T>): T {
  if (answer.kind !== 'answered') throw new Error(`the coordinator: ${JSON.stringify(answer)}`);
  return answer.value;
}
