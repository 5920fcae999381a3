import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { SessionInfo } from '../../src/coordinator/session-api.js';
import { describeSessions } from '../contract/session.contract.js';
import type { Started } from '../contract/session-site.js';
import { eventually } from '../support/wait.js';
import { ClusterSite } from './support/session-site.js';
import { asAdmin, ctl, JOB_USER } from './support/site.js';

const hints = {
  nodeVariable: 'SLURMD_NODENAME',
  rankVariable: 'SLURM_PROCID',
  patienceMs: 60_000,
  // A node counts as failed after 28 s, a job as lost after a grace of a minute and several looks.
  recoveryMs: 300_000,
  // Longer than the 15 s after which agents and gateway have a word with each other.
  idleLimitS: 20,
};

describeSessions('on a real cluster', () => ClusterSite.open(hints), hints);

const EVERY_STATE = '--state=BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO';

/**
 * Every allocation that accounting knows of the job user, whoever made it: in every state, for without states it leaves
 * out a job whose row does not yet say since when it was eligible.
 */
async function allocations(): Promise<ReadonlySet<string>> {
  const text = await asAdmin(
    'sacct',
    '-n',
    '-P',
    '-X',
    `--user=${JOB_USER}`,
    '--starttime=now-1days',
    '--endtime=now+1hour',
    EVERY_STATE,
    '--format=JobIDRaw',
  );
  return new Set(text.split('\n').filter((line) => line !== ''));
}

/** Longer than any control command may take (70 s for a question, 60 s for a cancel). */
const LONGER_THAN_CONTROL_S = 75;

describe('a gang on a real cluster, as its scheduler sees it', () => {
  let site: ClusterSite;
  let before: ReadonlySet<string>;
  let gang: string;
  let long: Started;

  beforeAll(async () => {
    before = await allocations();
    site = await ClusterSite.open(hints);
    site.gateway.write('go', '', 0o644);
    const started = await site.run(['session', 'start', '--profile', 'gang', '--wait', '--wait-limit', '60']);
    expect([started.exitCode, started.stderr]).toEqual([0, expect.stringContaining('ready: 4 of 4 ranks')]);
    gang = started.stdout.trim();
    long = site.start(step('sh', '-c', `sleep ${String(LONGER_THAN_CONTROL_S)}; echo rested`));
  }, 120_000);
  afterAll(async () => {
    await site.close();
  }, 120_000);

  const step = (...command: readonly string[]): readonly string[] => ['session', 'run', gang, '--', ...command];
  const info = async (): Promise<SessionInfo> =>
    SessionInfo.parse(JSON.parse((await site.run(['session', 'status', gang, '--json'])).stdout));
  /** Allocations of the job user, of any name, that accounting did not know when this began. */
  const fresh = async (): Promise<readonly string[]> => [...(await allocations())].filter((id) => !before.has(id));
  const jobId = async (): Promise<string> => String((await info()).session?.jobId);

  test('steps on four nodes are steps of one job: accounting knows of no other allocation', async () => {
    const argv = ['session', 'run', gang, '--nodes', '4', '--tasks', '4', '--', 'printenv', 'SLURMD_NODENAME'];
    const { stdout } = await site.run(argv);
    expect(new Set(stdout.trim().split('\n')).size).toBe(4);
    const { id } = await site.rowOf(await jobId());
    // Accounting lags: what it knows last of is the step.
    const ofStep = new RegExp(`^${id}\\.[1-9][0-9]*\\|4\\|4\\|COMPLETED$`, 'm');
    await eventually(async () => {
      const steps = await asAdmin('sacct', '-n', '-P', `--jobs=${id}`, '--format=JobID,NNodes,NTasks,State');
      return ofStep.test(steps) ? true : null;
    }, 60_000);
    expect(await eventually(async () => ((await fresh()).length > 0 ? await fresh() : null), 60_000)).toEqual([id]);
  });

  test('INV-9: the scheduler shows no credential, and neither does the script that it was given', async () => {
    const { id } = await site.rowOf(await jobId());
    const runs = join(site.directory, 'runs', await jobId());
    const secrets = readdirSync(join(runs, 'credentials')).map((name) =>
      readFileSync(join(runs, 'credentials', name), 'utf8').trim(),
    );
    const shown = [
      await asAdmin('scontrol', 'show', 'job', '-dd', id),
      await asAdmin('scontrol', 'write', 'batch_script', id, '-'),
      await asAdmin('sacct', '-n', '-P', '--format=ALL', `--jobs=${id}`),
      readFileSync(join(runs, 'profile'), 'utf8'),
      readFileSync(join(runs, 'run.sh'), 'utf8'),
    ].join('\n');
    expect(shown).toContain(join(runs, 'credentials', 'rank-{rank}'));
    for (const secret of secrets) for (const part of secret.split('.').slice(-2)) expect(shown).not.toContain(part);
  });

  test('INV-10: while slurmctld is down a step goes on and ends as it would; a new one is answered, not waited for', async () => {
    const running = site.start(step('sh', '-c', 'echo up; while [ ! -e on ]; do sleep 0.1; done; echo over; exit 3'));
    await eventually(() => (running.stdout().includes('up') ? true : null), 30_000);
    await ctl('stop', 'slurmctld');
    const late = await site.run(step('true'));
    expect([late.exitCode, late.stderr]).toEqual([6, expect.stringContaining('did not answer')]);
    expect((await site.run(['session', 'exec', gang, '--', 'echo', 'by the agent'])).stdout).toBe('by the agent\n');
    site.gateway.write(join('runs', await jobId(), 'on'), '', 0o644);
    expect(await running.ended).toMatchObject({ exitCode: 3, stdout: 'up\nover\n' });
    expect((await info()).session?.state).toBe('Ready');
    await ctl('start', 'slurmctld');
    await eventually(async () => ((await site.run(step('echo', 'back'))).stdout === 'back\n' ? true : null), 60_000);
  }, 180_000);

  test('a step that is longer than any control command may take ends by itself', async () => {
    expect(await long.ended).toMatchObject({ exitCode: 0, stdout: 'rested\n' });
  }, 120_000);

  test('INV-4: a step for a job that was ended behind our back is refused, and never becomes an allocation', async () => {
    const { id } = await site.rowOf(await jobId());
    await asAdmin('scancel', id);
    const late = await site.run(step('true'));
    expect(late.exitCode).not.toBe(0);
    expect(late.stderr).toMatch(/refused|not there|has ended|has expired/);
    expect(await fresh()).toEqual([id]);
    await eventually(async () => ((await info()).task.phase === 'Leased' ? null : true), 60_000);
    const over = await site.run(step('true'));
    expect([over.exitCode, over.stderr]).toEqual([1, expect.stringContaining('has ended')]);
  }, 120_000);
});
