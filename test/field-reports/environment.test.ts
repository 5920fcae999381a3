import { describe, expect, jest, test } from '@jest/globals';
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Profile, SubmitRequest } from '../../src/backend.js';
import { JobId, Token } from '../../src/machines/vocabulary.js';
import { readDirectives } from '../../src/slurm/directives.js';
import { loadClusterConfig, profileFromPath } from '../../src/slurm/profiles.js';
import { submitArgv } from '../../src/slurm/submit.js';
import { jobScriptBody } from '../../src/workdir/script.js';
import { FakeCommands } from '../support/fake-commands.js';
import { freshRunsDirectory, preparedJob } from '../support/job-directory.js';
import { queueText } from '../support/scheduler-rows.js';
import { ScriptedSlurm, SlurmWorld } from '../support/slurm-world.js';
import { runStep } from '../support/steps.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { eventually } from '../support/wait.js';

/** What went wrong for others with environments, options, steps and signals; docs/field-reports.md has the table. */

// Real processes on a machine that may be busy.
jest.setTimeout(60_000);

const id = '01000000000000000000000001';
const token = Token.parse(id);
const requestFor = (profile: Partial<Profile> = {}): SubmitRequest => ({
  jobId: JobId.parse(`job_${id}`),
  token,
  profile: { ...profileFromPath('smoke', '/profiles/smoke.sh'), ...profile },
  directory: `/runs/job_${id}`,
  session: null,
});

/** One profile in a cluster.toml; its problems, or none. */
async function problemsOf(...lines: readonly string[]): Promise<string> {
  const file = join(temporaryDirectory(), 'cluster.toml');
  writeFileSync(file, ['[cluster]', 'name = "lab"', '[profiles.p]', 'script = "p.sh"', ...lines, ''].join('\n'), {
    mode: 0o644,
  });
  const loaded = await loadClusterConfig(file);
  return loaded.kind === 'invalid' ? loaded.problems.join('\n') : loaded.kind;
}

describe('P29, P52, P57: an account with variables that the commands read', () => {
  const planted = {
    FAKE_API_KEY: 'planted',
    SQUEUE_FORMAT: '%i planted',
    SACCT_FORMAT: 'planted',
    SBATCH_QUIET: 'planted',
    SLURM_CPU_BIND: 'mask_cpu:0x1,planted',
    SLURM_JOB_ID: '1',
    SRUN_CPUS_PER_TASK: 'planted',
    SCANCEL_NAME: 'planted',
    PMI_RANK: 'planted',
    PMIX_RANK: 'planted',
  };

  test('no command sees one of them, no argument holds one, and the columns are the same', async () => {
    const before = { ...process.env };
    Object.assign(process.env, planted);
    try {
      const commands = new FakeCommands();
      const world = new SlurmWorld((clock) => commands.run(clock));
      const submittedAtMs = world.clock.nowMs();
      commands.queue(queueText([{ id: '7', state: 'RUNNING', submittedAtMs, name: `${world.prefix}-${id}` }]));
      commands.always('sbatch', { stdout: '7\n' });
      commands.always('scancel', {});
      commands.always('srun', {});
      const { kind } = await world.slurm.submit(requestFor());
      expect(kind).toBe('accepted');
      const handle = { id: '7', cluster: null, submittedAtMs };
      const item = { jobId: requestFor().jobId, token, handle, sinceMs: submittedAtMs };
      const { jobs } = await world.slurm.observe([item]);
      expect(jobs.get(item.jobId)).toMatchObject({ kind: 'seen', state: { phase: 'Running' } });
      await world.slurm.cancel([{ token, handle }]);
      await runStep(world.slurm, { handle, argv: ['hostname'] });
      for (const command of ['sbatch', 'squeue', 'scancel', 'srun'] as const) {
        const [call] = commands.calls(command);
        expect(Object.keys(call?.environment ?? {}).sort()).toEqual(
          ['HOME', 'LC_ALL', 'LOGNAME', 'PATH', 'SLURM_CONF', 'SLURM_TIME_FORMAT', 'TZ', 'USER'].sort(),
        );
        expect(JSON.stringify(call)).not.toContain('planted');
      }
      expect(commands.calls('squeue')[0]?.argv.some((word) => word.startsWith('--format='))).toBe(true);
    } finally {
      process.env = before;
    }
  });
});

describe('what a profile may say', () => {
  test('P36: a time limit is a number of seconds; a form with days and hours is refused, never guessed', async () => {
    expect(await problemsOf('walltime_s = "3-0:00"')).toContain('walltime_s');
    expect(await problemsOf('walltime_s = 259200')).toBe('ok');
    expect(submitArgv(requestFor({ walltimeS: 259_200 }), 'oc')).toContain('--time=4320');
    expect(submitArgv(requestFor({ walltimeS: 61 }), 'oc')).toContain('--time=2');
  });

  test.each(['a,b', '1,ALL', 'ALL', 'none', 'a\\nb'])('P55: the value %j of a variable is refused', async (value) => {
    expect(await problemsOf(`environment = { HOSTS = "${value}" }`)).toContain('HOSTS');
    expect(await problemsOf('environment = { HOSTS = "a b" }')).toBe('ok');
  });

  test.each(['--export=NONE', '--export=A=x,y', '--get-user-env', '--export-file=x'])(
    'P48, P55, P56: a script that says %s is refused: the environment of a job is exactly what we built',
    (option) => {
      expect(readDirectives(`#!/bin/sh\n#SBATCH ${option}\n`).problems).toHaveLength(1);
      // Every form but ALL loads a login shell, and reaches srun inside the job.
      expect(submitArgv(requestFor(), 'oc').filter((word) => word.startsWith('--export'))).toEqual(['--export=ALL']);
    },
  );

  test.each(['--array=1-3', '-a 0-1%1'])('P27: a script that says %s is refused: one task is one job', (option) => {
    expect(readDirectives(`#!/bin/sh\n#SBATCH ${option}\n`).problems.join()).toContain('one task is one job');
  });
});

describe('a step', () => {
  test('P53, P54: says every resource itself, shares what is busy, and waits no longer than a bound', async () => {
    const slurm = new ScriptedSlurm();
    const handle = { id: '7', cluster: null, submittedAtMs: 0 };
    await runStep(slurm.world.slurm, { handle, argv: ['nproc'], timeLimitMs: 1000 });
    const [call] = slurm.world.asked('srun');
    expect(call?.argv).toEqual(expect.arrayContaining(['--ntasks=1', '--cpus-per-task=1', '--nodes=1', '--overlap']));
    expect(call?.argv.some((word) => /^--immediate=[1-9][0-9]?$/.test(word))).toBe(true);
    expect(call?.timeLimitMs).toBe(1000);
  });

  test('P54: one that waits for ever is ended at its time limit', async () => {
    const commands = new FakeCommands();
    const world = new SlurmWorld((clock) => commands.run(clock));
    commands.next('srun', { stderr: 'srun: Step creation temporarily disabled, retrying\n', hang: true });
    const handle = { id: '7', cluster: null, submittedAtMs: 0 };
    const { reply } = await runStep(world.slurm, { handle, argv: ['nproc'], timeLimitMs: 1000 });
    expect(reply).toEqual({ kind: 'stopped', by: 'timeLimit' });
  });
});

test('P59: a warning signal for the batch shell alone reaches the profile', async () => {
  const runsDir = await freshRunsDirectory();
  const { files, token: own } = await preparedJob(
    runsDir,
    '#!/bin/sh\ntrap \'printf "{\\"warned\\":true}" >"$OPEN_COMPUTE_RESULT"; exit 0\' USR1\n: >ready\nwhile :; do sleep 0.05; done\n',
  );
  const body = jobScriptBody({ files, token: own, identity: '"7"', unset: [], environment: {} });
  const script = join(files.directory, 'run.sh');
  writeFileSync(script, `#!/bin/sh\n${body}`, { mode: 0o700 });
  const child = spawn(script, { detached: true, stdio: 'ignore' });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  await eventually(() => (existsSync(join(files.directory, 'ready')) ? true : null));
  child.kill('SIGUSR1');
  expect(await ended).toBe(0);
  expect(readFileSync(files.result, 'utf8')).toBe('{"warned":true}');
});
