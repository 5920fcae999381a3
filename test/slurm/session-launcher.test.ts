import { describe, expect, test } from '@jest/globals';
import type { SubmitRequest } from '../../src/backend.js';
import { batchScript, writeBatchScript } from '../../src/slurm/batch-script.js';
import { knowsOverlap, releaseOf } from '../../src/slurm/release.js';
import { sessionLauncher } from '../../src/slurm/session-launcher.js';
import { stepArgv } from '../../src/slurm/step.js';
import { handle, jobId, token } from '../support/ids.js';
import { profile } from '../support/profiles.js';

const session = {
  ranks: 4,
  command: ['/usr/bin/node', "/runs/it's here/agent.mjs", '/runs/agent.json'],
  credentials: '/runs/credentials/rank-{rank}',
} as const;
const gang = profile({ name: 'gang', scriptPath: null, nodes: 4, cpus: 8 });
const request: SubmitRequest = {
  jobId: jobId(),
  token: token(),
  profile: gang,
  directory: `/runs/${jobId()}`,
  session,
};

describe('what a session’s job runs', () => {
  test('is one agent on each node, as one step that ends with the first that fails', () => {
    expect(sessionLauncher({ profile: gang, session }, { overlap: true })).toBe(
      [
        '#!/bin/sh',
        "export OPEN_COMPUTE_CREDENTIALS='/runs/credentials/rank-{rank}'",
        [
          "exec 'srun' '--nodes=4' '--ntasks=4' '--ntasks-per-node=1' '--cpus-per-task=8' '--kill-on-bad-exit=1'",
          "'--overlap' '--export=ALL' '--input=none'",
          "'/usr/bin/node' '/runs/it'\\''s here/agent.mjs' '/runs/agent.json' 'SLURM_PROCID'",
        ].join(' '),
        '',
      ].join('\n'),
    );
  });

  test('is as large as the session, has one processor for each agent where none is said, and no option that srun does not know', () => {
    const text = sessionLauncher(
      { profile: { ...gang, nodes: 9, cpus: null }, session: { ...session, ranks: 2 } },
      { overlap: false },
    );
    expect(text).toContain("'--nodes=2' '--ntasks=2' '--ntasks-per-node=1' '--cpus-per-task=1'");
    expect(text).not.toContain('--overlap');
  });

  test('INV-9 has the name of the rank’s variable and a path template, and no value of either', () => {
    const text = sessionLauncher({ profile: gang, session }, { overlap: true });
    expect(text).not.toMatch(/\$/);
    expect(text.match(/credential/gi)).toEqual(['CREDENTIAL', 'credential']);
  });
});

describe('the batch script of a session', () => {
  const written = new Map<string, string>();
  const host = {
    // Whatever lies there is no profile's script: it is ours.
    readText: () => Promise.resolve('#!/bin/sh\n#SBATCH --nodes=99\n'),
    writeScript: (path: string, text: string) => {
      written.set(path, text);
      return Promise.resolve();
    },
    endAttempt: () => Promise.resolve({ kind: 'ended', how: '' } as const),
  };

  test('has no #SBATCH lines, whatever lies in the place of a script', async () => {
    const script = await batchScript(request, host);
    expect(script).toMatchObject({ kind: 'ok' });
    expect(JSON.stringify(script)).not.toContain('#SBATCH');
    expect(await batchScript({ ...request, session: null }, host)).toMatchObject({
      text: expect.stringContaining('#SBATCH --nodes=99'),
    });
  });

  test('is written beside what it starts; for a profile with a script only it is written', async () => {
    await writeBatchScript(request, host, { overlap: true });
    expect([...written.keys()]).toEqual([`${request.directory}/profile`, `${request.directory}/run.sh`]);
    expect(written.get(`${request.directory}/profile`)).toBe(
      sessionLauncher({ profile: gang, session }, { overlap: true }),
    );
    written.clear();
    await writeBatchScript({ ...request, session: null }, host, { overlap: true });
    expect([...written.keys()]).toEqual([`${request.directory}/run.sh`]);
  });
});

describe('a release', () => {
  test.each([
    ['slurm 22.05.8', [22, 5]],
    ['slurm-wlm 24.11.5', [24, 11]],
    ['slurm 20.11.0-1', [20, 11]],
    ['slurm 20.02', [20, 2]],
    ['slurm 26.05.0-rc1', [26, 5]],
    ['slurm 17.11.13-2', [17, 11]],
    ['slurm', null],
    ['', null],
    ['something else', null],
  ] as const)('"%s" is read as %j', (text, release) => {
    expect(releaseOf(text)).toEqual(release);
  });

  test.each([
    ['slurm 17.11.13', false],
    ['slurm 20.02.7', false],
    ['slurm 20.10.1', false],
    ['slurm 20.11.0', true],
    ['slurm 21.08.8', true],
    ['slurm 22.05.8', true],
    ['slurm-wlm 24.11.5', true],
    ['cannot be read', true],
  ])('"%s" knows --overlap: %j', (text, known) => {
    expect(knowsOverlap(text)).toBe(known);
  });
});

test.each([true, false])(
  'INV-4 a step names its job first, and asks to overlap only where srun knows it: %j',
  (overlap) => {
    const step = { nodes: 1, tasks: 1, cpusPerTask: 1, directory: '/runs/job', environment: {}, argv: ['true'] };
    const argv = stepArgv(handle('42'), step, { overlap });
    expect(argv[0]).toBe('--jobid=42');
    expect(argv.includes('--overlap')).toBe(overlap);
  },
);
