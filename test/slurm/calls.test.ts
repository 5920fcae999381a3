import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Backend, CancelReply, Profile, SubmitRequest } from '../../src/backend.js';
import { Handle, JobId, Token } from '../../src/machines/vocabulary.js';
import { createSlurmBackend } from '../../src/slurm/backend.js';
import type { Call, Ending } from '../../src/slurm/broker.js';
import { readDirectives } from '../../src/slurm/directives.js';
import { commandEnvironment } from '../../src/slurm/environment.js';
import { profileFromPath } from '../../src/slurm/profiles.js';
import { submitArgv } from '../../src/slurm/submit.js';
import { endingOf, exited, recording, RELEASES, scripted } from './recorded.js';
import { runStep } from '../support/steps.js';

const NOW_MS = 1_795_969_000_000;
const clock = { nowMs: () => NOW_MS, monotonicMs: () => 0, sleep: () => Promise.resolve() };
const jobId = JobId.parse('job_01000000000000000000000001');
const token = Token.parse('01000000000000000000000001');
const NAME = `oc-${token}`;
const handle = (id: string, cluster: string | null = null): Handle =>
  Handle.parse({ id, cluster, submittedAtMs: NOW_MS });

let runsDir = '';
beforeAll(() => {
  runsDir = mkdtempSync(join(tmpdir(), 'oc-slurm-calls-'));
});
afterAll(() => {
  rmSync(runsDir, { recursive: true });
});

const profile = (more: Partial<Profile> = {}): Profile => ({
  ...profileFromPath('smoke', '/profiles/smoke.sh'),
  ...more,
});

const request = (more: Partial<Profile> = {}): SubmitRequest => ({
  jobId,
  token,
  profile: profile(more),
  directory: join(runsDir, jobId),
  session: null,
});

function backend(
  answer: (call: Call) => Ending,
  more: { readonly script?: string; readonly clusters?: readonly string[]; readonly nowMs?: number } = {},
) {
  const { run, calls } = scripted(answer);
  const written: { path: string; text: string }[] = [];
  const slurm = createSlurmBackend({
    jobNamePrefix: 'oc',
    clusterName: null,
    clusters: more.clusters ?? [],
    binariesDir: null,
    path: '/usr/bin',
    slurmConf: null,
    user: { name: 'science', uid: 1001, home: '/home/science' },
    clock: { ...clock, nowMs: () => more.nowMs ?? NOW_MS },
    run,
    host: {
      readText: () =>
        more.script === undefined ? Promise.resolve('#!/bin/sh\nexit 0\n') : Promise.resolve(more.script),
      writeScript: (path, text) => {
        written.push({ path, text });
        return Promise.resolve();
      },
      endAttempt: () => Promise.resolve({ kind: 'ended', how: 'nothing was left' }),
    },
  });
  return { slurm, calls, written };
}

/** Asks the queue first: nothing is cancelled before it has said whose the ids are. */
async function cancelAfterPoll(slurm: Backend, handles: readonly Handle[]): Promise<CancelReply> {
  await slurm.observe(handles.map((one) => ({ jobId, token, handle: one, sinceMs: NOW_MS })));
  return await slurm.cancel(handles.map((one) => ({ token, handle: one })));
}

describe('a submission', () => {
  test('names its job, waits for a job of the same name, and passes on exactly the built environment (INV-8, INV-9)', () => {
    expect(submitArgv(request(), 'oc')).toEqual([
      '--parsable',
      `--job-name=${NAME}`,
      `--comment=${NAME}`,
      '--dependency=singleton',
      `--chdir=${runsDir}/${jobId}`,
      `--output=${runsDir}/${jobId}/stdout`,
      `--error=${runsDir}/${jobId}/stderr`,
      '--open-mode=append',
      '--export=ALL',
      `${runsDir}/${jobId}/run.sh`,
    ]);
  });

  test('says what a profile sets, and nothing that it leaves open', () => {
    const argv = submitArgv(
      request({
        cpus: 2,
        memoryMiB: 512,
        gpus: 1,
        nodes: 3,
        walltimeS: 61,
        placement: {
          partition: 'gpu',
          qos: 'high',
          account: 'lab',
          constraint: 'a100&ib',
          reservation: 'r1',
          cluster: 'nautilus',
          requeue: 'true',
        },
      }),
      'oc',
    );
    expect(argv.slice(9, -1)).toEqual([
      '--partition=gpu',
      '--qos=high',
      '--account=lab',
      '--constraint=a100&ib',
      '--reservation=r1',
      '--clusters=nautilus',
      '--nodes=3',
      '--cpus-per-task=2',
      '--mem=512M',
      '--gpus=1',
      '--time=2',
      '--requeue',
    ]);
    expect(submitArgv(request({ gpus: 0, placement: { requeue: 'false' } }), 'oc').slice(9, -1)).toEqual([
      '--no-requeue',
    ]);
  });

  test('a percent sign in a path is no pattern', () => {
    const argv = submitArgv({ ...request(), directory: `/runs/100%j/${jobId}` }, 'oc');
    expect(argv).toContain(`--output=/runs/100%%j/${jobId}/stdout`);
    expect(argv).toContain(`--chdir=/runs/100%j/${jobId}`);
  });

  test('P06: the printed id and cluster make the handle, with the time from before it was sent (INV-13)', async () => {
    const { slurm, calls } = backend(() => exited('3969755;nautilus\n', 'sbatch: a notice\n'));
    expect(await slurm.submit(request())).toEqual({
      kind: 'accepted',
      handle: { id: '3969755', cluster: 'nautilus', submittedAtMs: NOW_MS },
      notes: 'sbatch: a notice',
    });
    expect(calls[0]?.command).toBe('sbatch');
    // P03: it retries for two minutes by itself before it gives up.
    expect(calls[0]?.timeLimitMs).toBeGreaterThan(120_000);
  });

  test('P03: a call that had to be ended may have landed; an id in it is a hint (INV-8)', async () => {
    const { slurm } = backend(() => ({
      kind: 'timedOut',
      afterMs: 150_000,
      stdout: '77\n',
      stderr: 'sleeping and retrying',
    }));
    expect(await slurm.submit(request())).toMatchObject({ kind: 'timedOut', hint: '77' });
  });

  test.each([
    '#SBATCH --array=1-3',
    '#SBATCH -a 1-3',
    '#SBATCH --arr=1',
    '#SBATCH --wait',
    '#SBATCH -W',
    '#SBATCH hetjob',
    '#SBATCH -n1 : -n2',
    '#SBATCH -Q',
    '#SBATCH --export=NONE',
    '#SBATCH -M other',
    '#SBATCH "--array=1"',
    '#SBATCH --test-only',
    '#SBATCH -HW',
  ])('a script with %s is refused before anything is sent', async (line) => {
    const { slurm, calls, written } = backend(() => exited('1\n'), { script: `#!/bin/sh\n${line}\ntrue\n` });
    await slurm.prepare(request());
    expect(written).toEqual([]);
    const reply = await slurm.submit(request());
    expect(reply).toMatchObject({ kind: 'refused', reason: 'INVALID_SPEC' });
    if (reply.kind === 'refused') expect(reply.detail).toContain('line 2');
    expect(calls).toEqual([]);
  });

  test('a script that cannot be read sends nothing, and concludes nothing', async () => {
    const { run, calls } = scripted(() => exited('1\n'));
    const slurm = createSlurmBackend({
      jobNamePrefix: 'oc',
      clusterName: null,
      clusters: [],
      binariesDir: null,
      path: '',
      slurmConf: null,
      user: { name: 'science', uid: 1001, home: '/' },
      clock,
      run,
    });
    expect(await slurm.submit(request())).toMatchObject({ kind: 'unreachable', hint: null });
    expect(calls).toEqual([]);
  });
});

describe("a profile's #SBATCH lines", () => {
  test('count until the first command, as they are', () => {
    const script =
      '#!/bin/bash\n#SBATCH -t 5 # a comment --array=1\n\n# note\n#SBATCH --mem=1G\ntrue\n#SBATCH --array=1-3\n';
    expect(readDirectives(script)).toEqual({
      lines: ['#SBATCH -t 5 # a comment --array=1', '#SBATCH --mem=1G'],
      problems: [],
    });
  });

  test.each([
    '#SBATCH --wait-all-nodes=1',
    '#SBATCH --job-name=array',
    '#SBATCH -pgpu',
    '#SBATCH --nodes=1 --exclusive',
    '# SBATCH --array=1',
  ])('%s is fine', (line) => {
    expect(readDirectives(`#!/bin/sh\n${line}\n`).problems).toEqual([]);
  });

  test('stand in the script that is submitted, before the body, in their own bytes', async () => {
    const { slurm, written } = backend(() => exited(''), { script: '#!/bin/sh\n#SBATCH --comment=\u00fc\ntrue\n' });
    await slurm.prepare(request({ environment: { PLACE: 'K\u00f6ln \u6771\u4eac' } }));
    const text = Buffer.from(written[0]?.text ?? '', 'latin1').toString('utf8');
    expect(written[0]?.path).toBe(join(runsDir, jobId, 'run.sh'));
    expect(written[0]?.text.startsWith('#!/bin/sh\n#SBATCH --comment=\u00fc\n\n')).toBe(true);
    expect(text).toContain("export PLACE='K\u00f6ln \u6771\u4eac'");
    // What the commands need is not for the job: times and messages are its own business.
    for (const variable of ['SLURM_TIME_FORMAT', 'TZ', 'LC_ALL']) expect(text).toContain(`unset -v ${variable}\n`);
  });
});

describe('the environment of every command (INV-9)', () => {
  const options = {
    binariesDir: null,
    path: '/opt/slurm/bin:/usr/bin',
    slurmConf: '/etc/slurm.conf',
    user: { name: 'science', uid: 1001, home: '/h' },
  };

  test('P29, P52, P57: is built from these and nothing else', () => {
    expect(commandEnvironment(options)).toEqual({
      PATH: '/opt/slurm/bin:/usr/bin',
      HOME: '/h',
      USER: 'science',
      LOGNAME: 'science',
      SLURM_CONF: '/etc/slurm.conf',
      TZ: 'UTC',
      LC_ALL: 'C',
      SLURM_TIME_FORMAT: '%s',
    });
    expect(commandEnvironment({ ...options, slurmConf: null, binariesDir: '/b' })).toMatchObject({
      PATH: '/b:/opt/slurm/bin:/usr/bin',
    });
    expect(Object.keys(commandEnvironment({ ...options, slurmConf: null }))).not.toContain('SLURM_CONF');
  });
});

describe('a query', () => {
  test('P24, P25, P29, P34, P35: asks for all of our jobs, in columns and from a time that are named', async () => {
    const { slurm, calls } = backend(() => exited(''));
    await slurm.observe([
      { jobId, token, handle: handle('7'), sinceMs: NOW_MS },
      {
        jobId: JobId.parse('job_01000000000000000000000002'),
        token: Token.parse('01000000000000000000000002'),
        handle: null,
        sinceMs: NOW_MS - 86_400_000,
      },
    ]);
    const us = '\u001f';
    expect(calls.map(({ command, argv }) => [command, ...argv])).toEqual([
      [
        'squeue',
        '--noheader',
        '--all',
        '--states=all',
        '--user=1001',
        `--format=%i${us}%T${us}%V${us}%e${us}%N${us}%r${us}%j${us}%k`,
      ],
      [
        'sacct',
        '--allocations',
        '--parsable2',
        '--noheader',
        '--duplicates',
        `--delimiter=${us}`,
        '--user=1001',
        '--starttime=2026-11-28T16:06:40',
        expect.stringMatching(/^--format=JobIDRaw,/),
        '--jobs=7',
      ],
      [
        'sacct',
        '--allocations',
        '--parsable2',
        '--noheader',
        '--duplicates',
        `--delimiter=${us}`,
        '--user=1001',
        '--starttime=2026-11-28T16:06:40',
        expect.stringMatching(/^--format=JobIDRaw,/),
        expect.stringMatching(/^--state=/),
        '--endtime=now+1hour',
        '--name=oc-01000000000000000000000002',
      ],
    ]);
    expect(calls.every(({ argv }) => argv.every((word) => !word.includes('partition')))).toBe(true);
  });

  test('every form of a call was recorded on a real cluster', async () => {
    const { slurm, calls } = backend(() => exited(''));
    await slurm.observe([
      { jobId, token, handle: handle('7'), sinceMs: NOW_MS },
      {
        jobId: JobId.parse('job_01000000000000000000000002'),
        token: Token.parse('01000000000000000000000002'),
        handle: null,
        sinceMs: NOW_MS,
      },
    ]);
    const shape = (argv: readonly string[]) =>
      argv.map((word) => word.replace(/^--(starttime|jobs|name|user)=.*$/, '--$1=…')).toSorted();
    const recorded = ['argv/squeue.json', 'argv/sacct-ids.json', 'argv/sacct-names.json'].map((path) =>
      shape(recording('22.05', path).argv.slice(1)),
    );
    expect(calls.map(({ argv }) => shape(argv))).toEqual(recorded);
  });
});

describe('a cancel', () => {
  test('P61: asks for many jobs in one call, in parts, each cluster by its name', async () => {
    const { slurm, calls } = backend(() => exited(''));
    const handles = Array.from({ length: 450 }, (_, n) => handle(String(n + 1)));
    const reply = await cancelAfterPoll(slurm, [...handles, handle('9', 'nautilus')]);
    expect(reply.asked).toHaveLength(451);
    const cancels = calls.filter(({ command }) => command === 'scancel');
    expect(cancels.map(({ argv }) => argv.length)).toEqual([200, 200, 50, 2]);
    expect(cancels[3]?.argv).toEqual(['--clusters=nautilus', '9']);
  });

  test('P61: a part that fails stops no other one and is not taken for asked', async () => {
    let first = true;
    const { slurm } = backend(({ command }) => {
      if (command !== 'scancel') return exited('');
      const ending = first ? endingOf(recording('22.05', 'fault/slurmctld-stop/scancel.json')) : exited('');
      first = false;
      return ending;
    });
    const reply = await cancelAfterPoll(
      slurm,
      Array.from({ length: 250 }, (_, n) => handle(String(n + 1))),
    );
    expect(reply.asked.map(({ id }) => id)).toEqual(Array.from({ length: 50 }, (_, n) => String(n + 201)));
    expect(reply.outage).toMatchObject({ kind: 'unreachable' });
  });

  test.each([
    ['', 0],
    ['scancel: error: Kill job error on job id 5: Invalid job id specified\n', 1],
    ['scancel: error: Kill job error on job id 5: Job/step already completing or completed\n', 0],
    ['scancel: error: Kill job error on job id 5: Access/permission denied\n', 210],
  ])('P60: a job that is over or not ours was asked: %j, exit %i', async (stderr, exitCode) => {
    const { slurm } = backend(({ command }) => (command === 'scancel' ? exited('', stderr, exitCode) : exited('')));
    expect(await cancelAfterPoll(slurm, [handle('5')])).toMatchObject({ asked: [{ id: '5' }], outage: null });
  });

  test('P60: an unknown job beside a controller that does not answer must be asked again', async () => {
    const stderr = [5, 6].map(
      (id) =>
        `scancel: error: Kill job error on job id ${String(id)}: ${id === 5 ? 'Invalid job id specified' : 'Unable to contact slurm controller (connect failure)'}\n`,
    );
    const { slurm } = backend(({ command }) => (command === 'scancel' ? exited('', stderr.join(''), 1) : exited('')));
    expect(await cancelAfterPoll(slurm, [handle('5'), handle('6')])).toMatchObject({
      asked: [],
      outage: { kind: 'unreachable' },
    });
  });

  test.each([
    ['another job of ours', '7', 'oc-01000000000000000000000002'],
    ['a job that has nothing to do with us', '7', 'train-model'],
    ["somebody's job array", '7_[1-4]', 'sweep'],
  ])('an id that belongs to %s by now is not cancelled (INV-13)', async (_owner, id, other) => {
    const us = '\u001f';
    const { slurm, calls } = backend((call) =>
      exited(
        call.command === 'squeue'
          ? `${[id, 'RUNNING', String(NOW_MS / 1000), 'N/A', 'n1', 'None', other, other].join(us)}\n`
          : '',
      ),
    );
    expect(await cancelAfterPoll(slurm, [handle('7'), handle('8')])).toMatchObject({
      asked: [{ id: '7' }, { id: '8' }],
      outage: null,
    });
    expect(calls.filter(({ command }) => command === 'scancel').map(({ argv }) => argv)).toEqual([['8']]);
  });

  const US = '\u001f';
  const start = ['7', 'RUNNING', String(NOW_MS / 1000), 'N/A', 'n1', 'None'].join(US);
  const otherName = `oc-${'2'.repeat(26)}`;
  test.each([
    ['a name that holds a newline', `${start}${US}two\nlines${US}\n`, false],
    ['a separator in a name', `${start}${US}a${US}b${US}\n`, false],
    [
      'a state that nobody knows, for another job of ours',
      `7${US}ODD${US}1${US}${US}${US}${US}${otherName}${US}\n`,
      false,
    ],
    ['a state that nobody knows, for this job', `7${US}ODD${US}1${US}${US}${US}${US}${NAME}${US}\n`, true],
    ['a second row, of this job and another', `${start}${US}${NAME}${US}\n${start}${US}theirs${US}\n`, true],
  ])('an id whose row cannot be read is ours only by our token in it (INV-13): %s', async (_what, text, ours) => {
    const { slurm, calls } = backend(({ command }) => exited(command === 'squeue' ? text : ''));
    expect(await cancelAfterPoll(slurm, [handle('7')])).toEqual({ asked: [handle('7')], outage: null });
    expect(calls.filter(({ command }) => command === 'scancel')).toHaveLength(ours ? 1 : 0);
  });

  test('no id is cancelled before the newest poll has said whose it is (INV-13)', async () => {
    let isDown = false;
    const { slurm, calls } = backend(() =>
      isDown ? endingOf(recording('22.05', 'fault/slurmctld-stop/squeue-name.json')) : exited(''),
    );
    const target = { token, handle: handle('7') };
    const refused = async () => {
      expect(slurm.mayCancel(target)).toBe(false);
      expect(await slurm.cancel([target])).toMatchObject({ asked: [], outage: { kind: 'unreachable' } });
    };
    await refused();
    await cancelAfterPoll(slurm, [target.handle]);
    expect(slurm.mayCancel(target)).toBe(true);
    isDown = true;
    await slurm.observe([{ jobId, token, handle: target.handle, sinceMs: NOW_MS }]);
    // Who knows what a controller that comes back gives this id to.
    await refused();
    expect(calls.filter(({ command }) => command === 'scancel')).toHaveLength(1);
  });

  test('a job that no poll has listed yet is cancelled by the time that its submission gave (INV-13)', async () => {
    const us = '\u001f';
    const row = ['7', 'RUNNING', String(NOW_MS / 1000), 'N/A', 'n1', 'None', NAME, NAME].join(us);
    const { slurm, calls } = backend(({ command }) => exited(command === 'squeue' ? `${row}\n` : ''));
    await slurm.observe([{ jobId, token, handle: null, sinceMs: NOW_MS }]);
    const given = { ...handle('7'), submittedAtMs: NOW_MS + 123 };
    expect(await slurm.cancel([{ token, handle: given }])).toEqual({ asked: [given], outage: null });
    expect(calls.filter(({ command }) => command === 'scancel')).toHaveLength(1);
  });
});

describe('a step', () => {
  const step = { argv: ['hostname', '-f'], directory: '/runs/job', environment: { GIVEN: "a,b 'c'" } };

  test('P53, P54: always names its job and its size (INV-4)', async () => {
    const { slurm, calls } = backend(() => exited('n1\n'));
    const sized = { nodes: 2, tasks: 4, cpusPerTask: 3 };
    const { reply } = await runStep(slurm, { ...step, ...sized, handle: handle('7', 'nautilus') });
    expect(reply).toEqual({ kind: 'ended', exitCode: 0, signal: null });
    expect(calls[0]?.argv).toEqual([
      '--jobid=7',
      '--clusters=nautilus',
      '--overlap',
      '--nodes=2',
      '--ntasks=4',
      '--cpus-per-task=3',
      '--immediate=30',
      '--input=none',
      '--export=ALL',
      '--chdir=/runs/job',
      'env',
      '-u',
      'SLURM_TIME_FORMAT',
      '-u',
      'TZ',
      '-u',
      'LC_ALL',
      "GIVEN=a,b 'c'",
      'hostname',
      '-f',
    ]);
  });

  test.each([
    ['no allocation', null, ['hostname']],
    ['no command', '7', []],
    ['an option for a command', '7', ['--jobid=8', 'hostname']],
    ['a variable for a command', '7', ['LD_PRELOAD=x', 'hostname']],
    ['something else than a job id', '7_1', ['hostname']],
    ['an empty id', ' ', ['hostname']],
  ])('with %s is refused, and nothing is executed (INV-4)', async (_what, id, argv) => {
    const { slurm, calls } = backend(() => exited('n1\n'));
    const { reply } = await runStep(slurm, { ...step, argv, handle: id === null ? null : handle(id) });
    expect(reply.kind).toBe('refused');
    expect(calls).toEqual([]);
  });

  test('any handle: srun is never called without its --jobid (INV-4)', async () => {
    for (const id of ['0', '07', '-7', '7 --nodes=9', '7;x', '7\n8', '12345']) {
      const { slurm, calls } = backend(() => exited(''));
      await runStep(slurm, { ...step, handle: handle(id) });
      for (const { argv } of calls) expect(argv[0]).toMatch(/^--jobid=[1-9][0-9]*$/);
    }
  });
});

describe('the self-test', () => {
  /** When `argv/scontrol-config.json` was recorded, by the controller's clock. */
  const RECORDED_AT_MS = 1_795_973_169_000;
  const answer = (call: Call): Ending => {
    const one = (path: string) => endingOf(recording('22.05', path));
    if (call.argv[0] === '--version') return exited('slurm-wlm 22.05.8\n');
    if (call.command === 'scontrol') return one('argv/scontrol-config.json');
    if (call.command === 'squeue') return one('argv/squeue-header.json');
    if (call.command === 'sacct') return one('argv/sacct-header-id.json');
    return one('argv/scancel-impossible.json');
  };
  const replaced = (command: string, ending: Ending) => (call: Call) =>
    call.command === command ? ending : answer(call);
  const config = (from: RegExp, to: string) => {
    const ending = answer({
      command: 'scontrol',
      argv: ['show', 'config'],
      timeLimitMs: 1,
      outputLimitBytes: 1,
      overflow: 'refuse',
    });
    if (ending.kind !== 'exited') throw new Error('not a recording of an answer');
    return replaced('scontrol', { ...ending, stdout: ending.stdout.replace(from, to) });
  };

  test('finds a real cluster fit, runs every command once, and starts and ends no job', async () => {
    const { slurm, calls } = backend(answer, { nowMs: RECORDED_AT_MS });
    expect(await slurm.selfTest()).toMatchObject({
      kind: 'fit',
      warnings: [],
      report: { SLURM_VERSION: '22.05.8', MessageTimeout: '10 sec' },
    });
    expect(slurm.sources).toEqual(['queue', 'accounting']);
    expect(slurm.site).toBe('test/science');
    expect(slurm.timing).toEqual({ settleMs: 30_000, looks: 3, lossGraceMs: 60_000, lossLooks: 3 });
    expect([...new Set(calls.map(({ command }) => command))].sort()).toEqual([
      'sacct',
      'sbatch',
      'scancel',
      'scontrol',
      'squeue',
      'srun',
    ]);
    expect(calls.filter(({ command }) => command === 'sbatch' || command === 'srun').map(({ argv }) => argv)).toEqual([
      ['--version'],
      ['--version'],
    ]);
  });

  test.each(RELEASES)(
    'asks Slurm %s for the end of a job that cannot be, which it takes in silence',
    async (release) => {
      const { slurm, calls } = backend(answer);
      await slurm.selfTest();
      const unknown = recording(release, 'query/scancel-unknown.json');
      expect(calls.filter(({ command }) => command === 'scancel').map(({ argv }) => argv)).toEqual([
        unknown.argv.slice(1),
      ]);
      expect(unknown).toMatchObject({ exitCode: 0, stderr: '' });
    },
  );

  test('a slow controller makes the settling time longer', async () => {
    const { slurm } = backend(config(/MessageTimeout += 10 sec/, 'MessageTimeout          = 60 sec'));
    await slurm.selfTest();
    expect(slurm.timing).toMatchObject({ settleMs: 130_000, lossGraceMs: 260_000 });
  });

  test.each([
    ['ahead of', 121 * 60_000, '121 min ahead of'],
    ['behind', -6 * 60_000, '6 min behind'],
  ])('warns of a clock that is %s the cluster, and starts all the same', async (_what, apartMs, words) => {
    const { slurm } = backend(answer, { nowMs: RECORDED_AT_MS + apartMs });
    const found = await slurm.selfTest();
    expect(found.kind === 'fit' ? found.warnings : []).toEqual([expect.stringContaining(words)]);
  });

  test.each(['', 'Configuration data as of 2026-11-29T17:16:09\n'])(
    'says nothing about the clocks where the cluster does not tell its time in seconds: %j',
    async (line) => {
      const { slurm } = backend(config(/Configuration data as of .*\n/, line));
      expect(await slurm.selfTest()).toMatchObject({ kind: 'fit', warnings: [] });
    },
  );

  test('P20: accounting that is off weakens what can be promised, and that is said', async () => {
    const { slurm, calls } = backend(
      config(/AccountingStorageType.*/, 'AccountingStorageType   = accounting_storage/none'),
    );
    const found = await slurm.selfTest();
    expect(found.kind === 'fit' ? found.warnings.join() : '').toContain('accounting is switched off');
    expect(slurm.sources).toEqual(['queue']);
    expect(calls.some(({ command }) => command === 'sacct')).toBe(false);
  });

  test.each([
    ['squeue', endingOf(recording('22.05', 'argv/squeue-bad-format.json'))],
    ['sacct', endingOf(recording('22.05', 'argv/sacct-bad-field.json'))],
    ['squeue', exited('JOBID|STATE\n')],
    ['sacct', exited('JobIDRaw|State\n')],
    ['srun', { kind: 'unreachable', detail: 'srun: not found on PATH (ENOENT)', stdout: '' } as const],
  ])('%s that does not fit stops the start with a message that names it', async (command, ending) => {
    const { slurm } = backend(replaced(command, ending));
    const found = await slurm.selfTest();
    expect(found.kind).toBe('unfit');
    if (found.kind === 'unfit') expect(found.problems[0]).toContain(command);
  });

  test('a controller that is down is an outage, not a misfit (INV-10)', async () => {
    const { slurm } = backend(
      replaced('squeue', endingOf(recording('22.05', 'fault/slurmctld-stop/squeue-name.json'))),
    );
    expect(await slurm.selfTest()).toMatchObject({ kind: 'unreachable' });
  });
});

test('P62: calls are counted by command', async () => {
  const { slurm } = backend(() => exited(''));
  await slurm.observe([{ jobId, token, handle: null, sinceMs: NOW_MS }]);
  await slurm.cancel([{ token, handle: handle('1') }]);
  expect(slurm.callCounts()).toEqual({ sbatch: 0, squeue: 1, sacct: 1, scancel: 1, srun: 0, scontrol: 0 });
  await slurm.close();
});

test('the real host writes what is submitted, mode 0700', async () => {
  const directory = mkdtempSync(join(runsDir, 'host-'));
  const own = join(directory, jobId);
  const { mkdirSync, statSync } = await import('node:fs');
  mkdirSync(own);
  writeFileSync(join(own, 'profile'), '#!/bin/sh\n#SBATCH -t 3\ntrue\n');
  const slurm = createSlurmBackend({
    jobNamePrefix: 'oc',
    clusterName: 'lab',
    clusters: [],
    binariesDir: null,
    path: '',
    slurmConf: null,
    user: { name: 'science', uid: 1001, home: '/' },
    clock,
  });
  await slurm.prepare({ ...request(), directory: own });
  expect(readFileSync(join(own, 'run.sh'), 'utf8')).toMatch(/^#!\/bin\/sh\n#SBATCH -t 3\n/);
  expect(statSync(join(own, 'run.sh')).mode & 0o777).toBe(0o700);
  expect(slurm.site).toBe('lab/science');
});
