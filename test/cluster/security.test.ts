import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CredentialsFile } from '../../src/coordinator/credentials-file.js';
import { errnoOf } from '../../src/workdir/io-error.js';
import { eventually } from '../support/wait.js';
import { Gateway } from './support/gateway.js';
import { asAdmin, asJobUser } from './support/site.js';

const MARKER = 'marker-77d1c3a8-of-the-environment';
/** Names that secrets go by, one that sbatch reads as options, one that would reach every job by itself. */
const PLANTED = ['AWS_SECRET_ACCESS_KEY', 'WANDB_API_KEY', 'SBATCH_COMMENT', 'SLURM_SECRET', 'PLAIN_NAME'];

/** Shows its whole environment, and stays until it is told to go. */
const SPY = `#!/bin/sh
env >&2
tr '\0' '\n' </proc/self/environ >&2
until [ -e go ]; do sleep 0.1; done
printf '"seen"\n' >"$2"
`;

/** Every file below a path that this process can read, not through links. */
function* files(path: string): Generator<string> {
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const below = join(path, entry.name);
    if (entry.isDirectory()) yield* files(below);
    else if (entry.isFile()) yield below;
  }
}

/** What every process of this machine says in its command line and, to root, in its environment. */
function processes(what: 'cmdline' | 'environ'): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      found.set(pid, readFileSync(join('/proc', pid, what), 'latin1'));
    } catch (error) {
      // It has ended since, or is none of ours: a container's first process.
      if (!['ENOENT', 'ESRCH', 'EACCES'].includes(errnoOf(error) ?? '')) throw error;
    }
  }
  return found;
}

describe('INV-9 secrets, on a real cluster', () => {
  let gateway: Gateway;
  let secrets: readonly string[];

  beforeAll(async () => {
    gateway = await Gateway.start({
      clusterToml: '[cluster]\nname = "lab"\n[profiles.spy]\nscript = "spy.sh"\ncpus = 1\nwalltime_s = 120\n',
      scripts: { 'spy.sh': SPY },
      workerEnvironment: Object.fromEntries(PLANTED.map((name) => [name, MARKER])),
    });
    secrets = ['coordinator/admin.json', 'slurm-worker.json', 'alice.json'].map(
      (name) => CredentialsFile.parse(JSON.parse(readFileSync(join(gateway.directory, name), 'utf8'))).secret,
    );
  }, 60_000);
  afterAll(() => gateway.stop());

  const inside = (text: string): readonly string[] => [MARKER, ...secrets].filter((secret) => text.includes(secret));

  test("are not in the scheduler's record of a job, its directory, its environment, any command line, or any log", async () => {
    const commandLines = new Set<string>();
    const look = (): void => {
      for (const line of processes('cmdline').values()) commandLines.add(line);
    };
    const taskId = await gateway.submit('spy');
    const [directory] = await eventually(async () => {
      look();
      return (await gateway.jobPhase(taskId)) === 'Running' ? gateway.directories() : null;
    }, 60_000);
    const place = join(gateway.runsDir, directory ?? '');
    await eventually(() => (readFileSync(join(place, 'stderr'), 'utf8').includes('OPEN_COMPUTE_JOB_ID') ? true : null));
    look();

    // The record, the script that the scheduler keeps, and what accounting keeps.
    const record = await asAdmin('scontrol', 'show', 'job', '--details', '--oneliner');
    expect(record).toContain(place);
    expect(inside(record)).toEqual([]);
    const id = /JobId=(\d+)/.exec(record.split('\n').find((line) => line.includes(place)) ?? '')?.[1] ?? '';
    expect(inside(await asAdmin('scontrol', 'write', 'batch_script', id, '-'))).toEqual([]);
    expect(inside(await asAdmin('sacct', '-j', id, '-P', '--format=ALL'))).toEqual([]);

    // The job itself: what it was given, and what its directory holds.
    const environment = readFileSync(join(place, 'stderr'), 'utf8');
    expect(environment).toContain('SLURM_JOB_ID=');
    expect(inside(environment)).toEqual([]);
    expect(environment).not.toMatch(/OPEN_COMPUTE_CREDENTIALS|SBATCH_COMMENT|SLURM_SECRET/);
    expect([...files(place)].filter((path) => inside(readFileSync(path, 'latin1')).length > 0)).toEqual([]);
    expect([...files(place), place].filter((path) => (lstatSync(path).mode & 0o077) !== 0)).toEqual([]);

    // Every process that ran meanwhile; and of those that run now, the worker alone has the marker.
    expect([...commandLines].filter((line) => inside(line).length > 0)).toEqual([]);
    expect([...commandLines].some((line) => line.includes('open-compute') || line.includes('worker'))).toBe(true);
    const holders = [...processes('environ')].filter(([, text]) => text.includes(MARKER)).map(([pid]) => pid);
    expect(holders).toEqual([String(gateway.worker.process.pid)]);

    await asJobUser(place, ['touch', 'go']);
    expect((await gateway.ended(taskId)).phase).toBe('Completed');
    for (const said of [gateway.worker.log(), gateway.coordinator.log()]) expect(inside(said)).toEqual([]);
    for (const state of ['coordinator', 'worker-state'])
      expect(inside(await gateway.expectOk('events', 'export', '--state-dir', state))).toEqual([]);
  }, 120_000);
});
