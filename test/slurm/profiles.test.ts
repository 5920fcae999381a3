import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { Profile } from '../../src/backend.js';
import { loadClusterConfig, profileFromPath, publicProfile } from '../../src/slurm/profiles.js';
import { checkScript } from '../../src/slurm/script-check.js';
import { nearestKey, TomlLines } from '../../src/slurm/toml-lines.js';
import { variableProblem } from '../../src/slurm/variable-rules.js';

const FIXTURES = fileURLToPath(new URL('../../fixtures/cluster-toml/', import.meta.url));
const files = (kind: 'good' | 'bad'): readonly string[] =>
  readdirSync(join(FIXTURES, kind)).map((name) => join(FIXTURES, kind, name));

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'oc-slurm-profiles-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

async function good(path: string) {
  const loaded = await loadClusterConfig(path);
  if (loaded.kind !== 'ok') throw new Error(JSON.stringify(loaded));
  return loaded.config;
}

const full = () => good(join(FIXTURES, 'good', 'full.toml'));

describe('cluster.toml', () => {
  test.each(files('good').map((path) => [basename(path), path]))('%s loads', async (_name, path) => {
    expect((await good(path)).clusterName).toBe('lab');
  });

  test('a profile without a script serves sessions only, with limits of 2 h and 48 h; one with a script serves them where it says so', async () => {
    const { profiles } = await full();
    expect(profiles.get('gang')).toMatchObject({
      scriptPath: null,
      nodes: 4,
      session: { idleLimitS: 7_200, maxLifetimeS: 172_800, agentPath: null, nodePath: 'node' },
    });
    expect(profiles.get('both')).toMatchObject({
      scriptPath: join(FIXTURES, 'scripts/smoke.sh'),
      session: {
        idleLimitS: 60,
        maxLifetimeS: 3_600,
        agentPath: join(FIXTURES, 'scripts/agent.mjs'),
        nodePath: '/opt/node/bin/node',
      },
    });
    expect(profiles.get('smoke')?.session).toBeNull();
  });

  test('is read with paths relative to it, and with every key', async () => {
    const config = await full();
    expect(config).toMatchObject({
      clusterName: 'lab',
      jobNamePrefix: 'oc',
      binariesDir: '/opt/slurm/bin',
      slurmConf: '/etc/slurm/slurm.conf',
      clusters: ['nautilus'],
    });
    expect(config.profiles.get('smoke')).toEqual({
      name: 'smoke',
      description: 'Transport smoke test',
      scriptPath: join(FIXTURES, 'scripts/smoke.sh'),
      session: null,
      sha256: 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
      cpus: 1,
      memoryMiB: 512,
      gpus: 0,
      nodes: 1,
      walltimeS: 300,
      heldFailsAfterS: 3600,
      parametersSchema: expect.objectContaining({ type: 'object', additionalProperties: false }),
      environment: { OMP_NUM_THREADS: '1', WANDB_API_KEY_FILE: '/home/science/wandb.key', PLACE: 'Köln' },
      placement: {
        partition: 'cpu,gpu',
        qos: 'high',
        account: 'lab',
        constraint: '[a100|h100]&ib',
        reservation: 'maintenance_1',
        cluster: 'nautilus',
        requeue: 'false',
      },
    });
    expect(config.profiles.get('train.v2')).toMatchObject({
      cpus: null,
      walltimeS: null,
      placement: {},
      environment: {},
    });
  });

  test.each(files('bad').map((path) => [basename(path), path]))(
    '%s is refused with file, line and key',
    async (_name, path) => {
      const expected = readFileSync(path, 'latin1')
        .split('\n')
        .flatMap((line) => /^# expect: (.*)$/.exec(line)?.[1] ?? []);
      expect(expected.length).toBeGreaterThan(0);
      const loaded = await loadClusterConfig(path);
      expect(loaded.kind).toBe('invalid');
      if (loaded.kind !== 'invalid') return;
      expect(loaded.problems).toHaveLength(1);
      for (const text of [path, ...expected]) expect(loaded.problems[0]).toContain(text);
      expect(loaded.problems[0]).not.toContain('\n');
    },
  );

  test('a missing file is not a malformed one', async () => {
    expect(await loadClusterConfig(join(folder, 'nowhere.toml'))).toEqual({
      kind: 'missing',
      file: join(folder, 'nowhere.toml'),
    });
    expect(await loadClusterConfig(folder)).toMatchObject({ kind: 'invalid' });
  });

  test('a file that everybody may write is refused', async () => {
    const path = join(folder, 'open.toml');
    copyFileSync(join(FIXTURES, 'good/minimal.toml'), path);
    chmodSync(path, 0o666);
    const loaded = await loadClusterConfig(path);
    expect(loaded.kind === 'invalid' ? loaded.problems[0] : '').toContain('chmod o-w');
  });

  test('several mistakes are told at once', async () => {
    const path = join(folder, 'many.toml');
    writeFileSync(path, '[cluster]\nname = "lab"\nfoo = 1\n[profiles.a]\nscript = 3\ncpus = 0\n');
    const loaded = await loadClusterConfig(path);
    const problems = loaded.kind === 'invalid' ? loaded.problems : [];
    expect(problems.map((problem) => problem.slice(path.length, path.length + 3)).sort()).toEqual([
      ':3:',
      ':5:',
      ':6:',
    ]);
  });

  test('any bytes: an answer, never a throw', async () => {
    const path = join(folder, 'any.toml');
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.uint8Array({ maxLength: 200 }),
          fc.string().map((text) => Buffer.from(`[cluster]\nname = ${text}`)),
        ),
        async (bytes) => {
          writeFileSync(path, bytes);
          expect(['ok', 'invalid']).toContain((await loadClusterConfig(path)).kind);
        },
      ),
      { numRuns: 100 },
    );
  });
});

describe('what everybody may see of a profile (INV-2)', () => {
  test('has no path, no setting of the scheduler and no variable in it', async () => {
    const profile = (await full()).profiles.get('smoke');
    if (profile === undefined) throw new Error('there is no such profile');
    const text = JSON.stringify(publicProfile(profile));
    const hidden = [
      ...Object.values(profile.placement).filter((value) => value !== 'false'),
      profile.scriptPath,
      'partition',
      'qos',
      'OMP_NUM_THREADS',
      profile.sha256 ?? '',
    ];
    for (const secret of hidden) expect(text).not.toContain(secret === 'lab' ? '"lab"' : secret);
    expect(JSON.parse(text)).toMatchObject({ name: 'smoke', cpus: 1, memoryMiB: 512, walltimeS: 300 });
  });
});

describe('a script on the command line', () => {
  test('is a profile with nothing but its script', () => {
    expect(profileFromPath('smoke', '/a/b.sh')).toMatchObject({
      name: 'smoke',
      scriptPath: '/a/b.sh',
      placement: {},
      sha256: null,
    });
  });
  test.each(['gpu; rm -rf /', '$(id)', 'a b', '', '-x', 'a\nb', 'x'.repeat(65), 'é', 'a\0'])(
    '%j is no name for it (INV-9)',
    (name) => {
      expect(() => profileFromPath(name, '/a/b.sh')).toThrow();
    },
  );
});

describe('the check of a script', () => {
  const script = (name: string, text: string | Buffer, mode = 0o755): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    chmodSync(path, mode);
    return path;
  };
  const check = (scriptPath: string, sha256: string | null = null): Promise<string | null> =>
    checkScript({ name: 'smoke', scriptPath, sha256 });

  test('a reviewed script passes, with its digest in any case', async () => {
    const text = '#!/bin/sh\n#SBATCH -t 1\ntrue\n';
    const path = script('ok.sh', text);
    const digest = createHash('sha256').update(text).digest('hex');
    expect(await check(path)).toBeNull();
    expect(await check(path, digest)).toBeNull();
  });

  test.each([
    ['missing', () => join(folder, 'nowhere.sh'), 'is missing'],
    ['a folder', () => folder, 'is not a regular file'],
    ['writable by everybody', () => script('open.sh', '#!/bin/sh\n', 0o757), 'is writable by everybody'],
    ['without an interpreter', () => script('bare.sh', 'true\n'), 'does not start with #!'],
    ['with DOS line breaks', () => script('dos.sh', '#!/bin/sh\r\ntrue\r\n'), 'has DOS line breaks'],
    [
      'an array of jobs',
      () => script('array.sh', '#!/bin/sh\n#SBATCH --array=1-3\n'),
      'line 2: --array is not allowed',
    ],
    ['empty', () => script('empty.sh', ''), 'does not start with #!'],
  ])('%s: refused, with its profile and path', async (_what, make, message) => {
    const path = make();
    const problem = await check(path);
    expect(problem).toContain(`profile smoke: script ${path} `);
    expect(problem).toContain(message);
  });

  test('another script than the pinned one is refused', async () => {
    expect(await check(script('other.sh', '#!/bin/sh\nfalse\n'), '0'.repeat(64))).toContain('is not the reviewed one');
  });

  test('a script in a folder where everybody can replace it is refused', async () => {
    const open = join(folder, 'open');
    mkdirSync(open);
    const path = join(open, 's.sh');
    writeFileSync(path, '#!/bin/sh\n');
    chmodSync(open, 0o777);
    expect(await check(path)).toContain('everybody can replace it');
    chmodSync(open, 0o1777);
    expect(await check(path)).toBeNull();
  });
});

describe("a profile's variables (INV-9)", () => {
  test.each([
    'HF_TOKEN',
    'AWS_SECRET_ACCESS_KEY',
    'PGPASSWORD',
    'DB_PASSWORD',
    'MY_API_KEY',
    'API_KEYS',
    'GITHUB_TOKEN',
    'my_token',
    'OPENAI_APIKEY',
    'AUTH',
    'SESSION_COOKIE',
    'LD_PRELOAD',
    'LD_LIBRARY_PATH',
    'DYLD_INSERT_LIBRARIES',
    'BASH_ENV',
    'ENV',
    'PYTHONPATH',
    'PERL5OPT',
    'NODE_OPTIONS',
    'IFS',
    'PS4',
    'BASH_FUNC_x',
    'SLURM_CONF',
    'SLURM_JOB_ID',
    'SBATCH_QOS',
    'SQUEUE_FORMAT',
    'SRUN_DEBUG',
    'PMI_RANK',
    'PMIX_RANK',
    'OPEN_COMPUTE_RESULT',
    '1A',
    'A-B',
    '',
    'A=B',
    'A B',
  ])('P52, P57: %j is refused', (name) => {
    expect(variableProblem(name, 'x')).not.toBeNull();
  });
  test.each([
    'OMP_NUM_THREADS',
    'TOKENIZERS_PARALLELISM',
    'CUDA_VISIBLE_DEVICES',
    'WANDB_API_KEY_FILE',
    'KEYBOARD',
    'MONKEY',
    'PATH',
    'AUTHOR',
  ])('%s is fine', (name) => {
    expect(variableProblem(name, 'x')).toBeNull();
  });
  test.each(['a,b', '1,ALL', 'a\nb', 'a\rb', 'a\0b', 'ALL', 'none', 'Nil', 'x'.repeat(5_000)])(
    'P55: the value %j is refused',
    (value) => {
      expect(variableProblem('HOSTS', value)).not.toBeNull();
    },
  );
  test.each(['', 'a b', "it's", '$(id)', 'ALLES', '"quoted"', '東京'])('the value %j is fine', (value) => {
    expect(variableProblem('X', value)).toBeNull();
  });
});

describe('lines of keys', () => {
  test('are found in tables, dotted and quoted keys, and not in long strings', () => {
    const lines = new TomlLines('[a]\nb = 1\n[a."c d"]\ne.f = 2\ng = """\nb = 3\n"""\nh = 4\n');
    expect(lines.of(['a', 'b'])).toBe(2);
    expect(lines.of(['a', 'c d', 'e', 'f'])).toBe(4);
    expect(lines.of(['a', 'c d', 'h'])).toBe(8);
    expect(lines.of(['a', 'c d', 'unknown'])).toBe(3);
    expect(lines.of(['nowhere'])).toBe(1);
  });

  test('a near key is found, a far one is not', () => {
    expect(nearestKey('memory', ['memory_mb', 'cpus'])).toBe('memory_mb');
    expect(nearestKey('CPUS', ['memory_mb', 'cpus'])).toBe('cpus');
    expect(nearestKey('entirely_else', ['memory_mb', 'cpus'])).toBeNull();
  });
});

test('a profile has no settings that this backend would not read', () => {
  const profile: Profile = profileFromPath('smoke', '/a/b.sh');
  expect(Object.keys(publicProfile(profile))).not.toContain('placement');
});
