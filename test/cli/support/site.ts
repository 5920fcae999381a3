import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually } from '../../support/wait.js';
import { SMOKE_SCRIPT } from '../../../src/cli/compose.js';
import { cli, start, type CliOptions, type Ended, type Running } from './cli.js';

/** A coordinator, its credentials, and a home directory, all made by commands. */
export interface Site {
  readonly home: string;
  readonly coordinator: Running;
  readonly url: string;
  /** Runs a command with a role's credentials. */
  readonly as: (
    role: 'admin' | 'submitter' | 'viewer' | 'worker',
    argv: readonly string[],
    more?: CliOptions,
  ) => Promise<Ended>;
  /** The credentials file of a role. */
  readonly file: (role: string) => string;
  readonly options: (role: string, more?: CliOptions) => CliOptions;
  /** Starts a worker on this machine that offers the smoke profile; resolves when it has started. */
  readonly worker: (name: string, ...more: readonly string[]) => Promise<Running>;
  /** Ends everything, and gives the exit codes of the services. */
  readonly close: () => Promise<readonly number[]>;
}

export async function createSite(): Promise<Site> {
  const home = mkdtempSync(join(tmpdir(), 'open-compute-site-'));
  const workers: Running[] = [];
  mkdirSync(join(home, 'empty'));
  const state = join(home, 'coordinator');
  const coordinator = start(['serve', '--state-dir', state, '--listen', '127.0.0.1:0', '--lease-ttl', '60']);
  const url = await said(coordinator, /"url":"([^"]+)"/);
  const file = (role: string): string => (role === 'admin' ? join(state, 'admin.json') : join(home, `${role}.json`));
  const options = (role: string, more: CliOptions = {}): CliOptions => ({
    cwd: join(home, 'empty'),
    ...more,
    env: { HOME: home, OPEN_COMPUTE_CREDENTIALS: file(role), ...more.env },
  });
  for (const role of ['submitter', 'viewer', 'worker']) {
    const argv = ['credentials', 'create', '--role', role, '--name', role, '--out', file(role)];
    const made = await cli(argv, options('admin'));
    if (made.code !== 0) throw new Error(made.stderr);
  }
  return {
    home,
    coordinator,
    url,
    file,
    options,
    as: (role, argv, more) => cli(argv, options(role, more)),
    worker: async (name, ...more) => {
      const argv = ['worker', '--backend', 'local', '--name', name, '--training-profile', `smoke=${SMOKE_SCRIPT}`];
      const running = start([...argv, ...more], options('worker'));
      workers.push(running);
      await said(running, /(started; adopted)/);
      return running;
    },
    close: async () => {
      // A worker that stops leaves jobs running: none may be left.
      const { stdout } = await cli(['status', '--phase', 'Leased', '--json'], options('admin'));
      for (const { taskId } of (JSON.parse(stdout) as { tasks: { taskId: string }[] }).tasks) {
        await cli(['cancel', taskId], options('admin'));
        await cli(['watch', taskId], options('admin'));
      }
      const running = [...workers, coordinator];
      for (const each of running) each.interrupt();
      const codes = await Promise.all(running.map(({ ended }) => ended.then(({ code }) => code)));
      rmSync(home, { recursive: true, force: true });
      return codes;
    },
  };
}

/** What a service says on stderr, once it has; throws when it ends before. */
export async function said(running: Running, pattern: RegExp): Promise<string> {
  let over: Ended | null = null;
  void running.ended.then((ended) => (over = ended));
  const found = await eventually(() => {
    const match = pattern.exec(running.stderr());
    if (match !== null) return match[1] ?? match[0];
    return over === null ? null : '';
  });
  if (found === '') throw new Error(`it ended: ${running.stderr()}`);
  return found;
}

/** Writes a file below a site's home; returns its path. */
export function put(site: Site, name: string, content: string | Uint8Array, mode = 0o644): string {
  const path = join(site.home, name);
  writeFileSync(path, content, { mode });
  return path;
}
