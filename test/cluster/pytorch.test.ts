import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { eventually } from '../support/wait.js';
import { Gateway } from './support/gateway.js';
import { APP, asAdmin, JOB_USER } from './support/site.js';

const TOML = `[cluster]
name = "test"

[profiles.pytorch]
script = "${APP}/examples/pytorch-train.sh"
memory_mb = 2000
requeue = true
parameters = "${APP}/examples/pytorch.schema.json"
`;

const Result = z.looseObject({ losses: z.array(z.number()), resumed_from_epoch: z.number().nullable() });

describe('a real training on a real cluster', () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await Gateway.start({ clusterToml: TOML, workerArguments: ['--poll', '5'] });
  }, 60_000);
  afterAll(() => gateway.stop());

  test('a requeue in the middle of the training resumes from its checkpoint, with the losses of an uninterrupted run', async () => {
    const parameters = { epochs: 6, seed: 3 };
    const whole = await gateway.submit('pytorch', parameters);
    const interrupted = await gateway.submit('pytorch', { ...parameters, sleep: 2 });

    const { jobs } = await gateway.taskThat(interrupted, (task) => task.jobs.at(-1)?.phase === 'Running', 120_000);
    const checkpoint = join(gateway.runsDir, jobs[0]?.jobId ?? '', 'checkpoint.pt');
    await eventually(() => (existsSync(checkpoint) ? true : null), 60_000);
    const log = await gateway.expectOk(
      ...['events', 'export', '--state-dir', gateway.workerState, '--stream', `job/${jobs[0]?.jobId ?? ''}`],
    );
    const name = `oc-${/"token":"([0-9a-z]{26})"/.exec(log)?.[1] ?? ''}`;
    const id = (await asAdmin('squeue', '-h', `--user=${JOB_USER}`, `--name=${name}`, '-o', '%i')).trim();
    await asAdmin('scontrol', 'requeue', id);
    await eventually(async () => {
      const state = (await asAdmin('squeue', '-h', '-j', id, '-o', '%T')).trim();
      return state === 'PENDING' ? true : null;
    }, 30_000);
    // Not in the second of the requeue: slurmd counts those as one, and revokes the credential of the new start as well.
    await asAdmin('scontrol', 'update', `jobid=${id}`, 'StartTime=now+2');

    expect(await gateway.ended(interrupted, 180_000)).toMatchObject({
      phase: 'Completed',
      // Why not, if not.
      jobs: [{ phase: 'Completed', reason: null, detail: '' }],
    });
    expect(await gateway.ended(whole, 120_000)).toMatchObject({ phase: 'Completed' });
    const resumed = Result.parse(await gateway.result(interrupted));
    const straight = Result.parse(await gateway.result(whole));
    expect(resumed.resumed_from_epoch).toBeGreaterThan(0);
    expect(resumed.losses).toEqual(straight.losses);
  }, 400_000);
});
