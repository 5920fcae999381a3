import { join } from 'node:path';
import { follow } from '../../support/started.js';
import { eventually } from '../../support/wait.js';
import {
  SITE_SCRIPTS,
  siteProfiles,
  type Finished,
  type SessionHints,
  type SessionSite,
  type Started,
} from '../../contract/session-site.js';
import { Gateway } from './gateway.js';
import { asAdmin, ctl, spawnOpenCompute, spawnShell } from './site.js';

/** The gateway of the README on the real cluster, with a worker that serves sessions. */
export class ClusterSite implements SessionSite {
  readonly gateway: Gateway;

  private constructor(gateway: Gateway) {
    this.gateway = gateway;
  }

  static async open(hints: Pick<SessionHints, 'idleLimitS'>): Promise<ClusterSite> {
    const gateway = await Gateway.start({
      clusterToml: siteProfiles(hints),
      scripts: SITE_SCRIPTS,
      workerArguments: ['--session-listen', '127.0.0.1:0', '--poll', '2'],
    });
    return new ClusterSite(gateway);
  }

  get directory(): string {
    return this.gateway.directory;
  }

  run(argv: readonly string[], stdin?: string): Promise<Finished> {
    return this.#begin(argv, stdin ?? '').ended;
  }

  start(argv: readonly string[]): Started {
    return this.#begin(argv, '');
  }

  shell(line: string): Promise<Finished> {
    return this.startShell(line).ended;
  }

  startShell(line: string): Started {
    return follow(spawnShell(this.directory, line, { OPEN_COMPUTE_CREDENTIALS: 'alice.json' }));
  }

  async restartWorker(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const startsOf = (): number => this.workerLog().split('started; adopted').length;
    const before = startsOf();
    await this.gateway.worker.stop(signal);
    this.gateway.startWorker();
    await eventually(() => (startsOf() > before ? true : null), 60_000);
  }

  async restartCoordinator(): Promise<void> {
    await this.gateway.coordinator.stop('SIGKILL');
    await this.gateway.startCoordinator();
  }

  workerLog(): string {
    return this.gateway.worker.log();
  }

  /** One of its nodes dies; it is given back to the cluster when the scheduler has noticed. */
  async loseJob(jobId: string): Promise<void> {
    const row = await this.rowOf(jobId);
    const [node = ''] = (await asAdmin('scontrol', 'show', 'hostnames', row.nodes)).trim().split('\n').slice(-1);
    await ctl('crash-node', node);
    const isRunning = async (): Promise<boolean> =>
      (await asAdmin('squeue', '-h', '-t', 'RUNNING', '-o', '%i')).split('\n').includes(row.id);
    await eventually(async () => ((await isRunning()) ? null : true), 90_000);
    await ctl('start', `slurmd.${node}`);
    await eventually(async () => {
      await asAdmin('scontrol', 'update', `node=${node}`, 'state=RESUME').catch(() => '');
      return (await asAdmin('sinfo', '-h', '-n', node, '-o', '%T')).includes('idle') ? true : null;
    }, 60_000);
  }

  /** The scheduler's own row of a running job of ours. */
  async rowOf(jobId: string): Promise<{ readonly id: string; readonly nodes: string }> {
    const rows = (await asAdmin('squeue', '-h', '-t', 'RUNNING', '-o', '%i|%N|%Z')).trim().split('\n');
    const [id = '', nodes = ''] = rows.find((row) => row.endsWith(join('runs', jobId)))?.split('|') ?? [];
    if (id === '') throw new Error(`${jobId} does not run: ${rows.join(' ')}`);
    return { id, nodes };
  }

  async close(): Promise<void> {
    await this.gateway.stop();
    await ctl('reset');
  }

  #begin(argv: readonly string[], stdin: string): Started {
    return follow(spawnOpenCompute(this.directory, argv, { OPEN_COMPUTE_CREDENTIALS: 'alice.json' }), stdin);
  }
}
