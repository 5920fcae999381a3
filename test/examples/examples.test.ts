import { describe, expect, jest, test } from '@jest/globals';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { readDirectives } from '../../src/slurm/directives.js';
import { loadClusterConfig } from '../../src/slurm/profiles.js';
import { z } from 'zod';
import { freshDirectory } from '../support/job-directory.js';

// Real processes on a busy machine: the bound is for a hang, not for speed.
jest.setTimeout(60_000);

const EXAMPLES = resolve('examples');

describe.each([
  ['dash', ['dash']],
  ['bash --posix', ['bash', '--posix']],
] as const)('slurm-smoke.sh under %s', (_name, [command, ...args]) => {
  /** Runs the profile on an input given as text; `result` is what it wrote, or null. */
  function run(inputText: string) {
    const home = freshDirectory();
    const [input, result] = [join(home, 'input.json'), join(home, 'result.json')];
    writeFileSync(input, inputText);
    const started = performance.now();
    const ended = spawnSync(command, [...args, join(EXAMPLES, 'slurm-smoke.sh'), input, result], {
      cwd: home,
      encoding: 'utf8',
      timeout: 20_000,
      env: { PATH: process.env['PATH'], OPEN_COMPUTE_JOB_ID: 'job_x' },
    });
    return {
      status: ended.status,
      stderr: ended.stderr,
      tookMs: performance.now() - started,
      left: readdirSync(home).sort(),
      result: existsSync(result) ? (JSON.parse(readFileSync(result, 'utf8')) as unknown) : null,
    };
  }

  test('gives back any message, whatever it holds', () => {
    const messages = [
      'hello',
      '',
      'a "quoted" \\ back\\\\slashed\\" \t\n\r\b\f\0 text',
      '\\',
      '"',
      'ü € 😀 \u2028',
      '$(touch planted) `touch planted` \'; touch planted; "',
      '},{"message":"not this"',
      '%s %d \\n & | < >',
    ];
    for (const message of messages) {
      const { status, result, left } = run(JSON.stringify({ message }));
      expect([message, status]).toEqual([message, 0]);
      expect(result).toMatchObject({ message, slept: 0, job: 'job_x' });
      expect(left).toEqual(['input.json', 'result.json']);
    }
    expect(run('{"message":"\\u00fc\\ud83d\\ude00\\/"}').result).toMatchObject({ message: 'ü😀/' });
  });

  test('takes the message from the top level only, in whatever order and layout', () => {
    const parameters = {
      deep: { message: 'no', list: ['}', { exit: 9 }] },
      message: 'yes',
      other: [1, 'x"y'],
      exit: 0,
    };
    for (const text of [JSON.stringify(parameters), JSON.stringify(parameters, null, 2)]) {
      expect(run(text)).toMatchObject({ status: 0, result: { message: 'yes' } });
    }
  });

  test('sleeps, fills memory and exits as it was told, with the result written before', () => {
    const ended = run('{"message":"m","sleep":0.3,"exit":7,"memory_mb":3}');
    expect(ended).toMatchObject({ status: 7, result: { message: 'm', slept: 0.3 } });
    expect(ended.tookMs).toBeGreaterThan(300);
  });

  test('refuses a bad input with status 2 and one line, and writes no result', () => {
    for (const [text, why] of [
      ['', 'not a JSON object'],
      ['nonsense', 'not an object'],
      ['[]', 'not an object'],
      ['{}', 'message is missing'],
      ['{"message":"x"', 'not a JSON object'],
      ['{"message":"x', 'a text does not end'],
      ['{"message":"x"} more', 'something comes after'],
      ['{"message":5}', 'message is not text'],
      ['{"message":null}', 'message is not text'],
      ['{"message":"x","sleep":"1"}', 'sleep is not such a number'],
      ['{"message":"x","sleep":-1}', 'sleep is not such a number'],
      ['{"message":"x","exit":256}', 'exit is over 255'],
      ['{"message":"x","memory_mb":1.5}', 'memory_mb is not such a number'],
    ] as const) {
      const { status, stderr, left } = run(text);
      expect([text, status]).toEqual([text, 2]);
      expect(stderr).toContain(`slurm-smoke: bad input: ${why}`);
      expect(left).toEqual(['input.json']);
    }
  });
});

test('every script is executable, not writable by everybody, and its directive lines are fit for submission', () => {
  for (const name of readdirSync(EXAMPLES).filter((each) => each.endsWith('.sh'))) {
    const path = join(EXAMPLES, name);
    expect([name, (statSync(path).mode & 0o111) !== 0, statSync(path).mode & 0o002]).toEqual([name, true, 0]);
    const { lines, problems } = readDirectives(readFileSync(path, 'utf8'));
    expect([name, problems]).toEqual([name, []]);
    expect(lines).toContain('#SBATCH --ntasks=1');
  }
});

test('cluster.toml is accepted as it is, and its schemas take what the scripts take', async () => {
  const loaded = await loadClusterConfig(join(EXAMPLES, 'cluster.toml'));
  if (loaded.kind !== 'ok') throw new Error(JSON.stringify(loaded));
  const { profiles } = loaded.config;
  expect([...profiles.keys()]).toEqual(['smoke', 'pytorch', 'gang']);
  expect(profiles.get('gang')).toMatchObject({ scriptPath: null, nodes: 4, session: { idleLimitS: 7200 } });
  for (const profile of profiles.values()) {
    if (profile.scriptPath === null) continue;
    const text = readFileSync(profile.scriptPath, 'utf8');
    for (const parameter of Object.keys(
      z.record(z.string(), z.unknown()).parse(profile.parametersSchema?.['properties']),
    )) {
      expect([parameter, text.includes(`"${parameter}"`)]).toEqual([parameter, true]);
    }
  }
});
