import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { knownKeys } from '../../src/slurm/cluster-schema.js';
import { cli } from '../cli/support/cli.js';
import { installed, run } from '../cli/support/program.js';
import { temporaryDirectory } from '../support/temporary-directory.js';
import { eventually } from '../support/wait.js';
import { isShown, readBlocks, type Block } from './support/tutorial.js';

// Whole processes on a machine that may be busy, and perhaps a build.
jest.setTimeout(90_000);

const TUTORIAL = readFileSync(resolve(import.meta.dirname, '../../docs/sessions.md'), 'utf8');
const BLOCKS = readBlocks(TUTORIAL);
/** Seconds; the tutorial takes ten. */
const LIMIT_S = 60;

/** Stands in the output before that of each block. */
const MARK = '--- block ';

/** Everything that was started below this home, of whatever parent or group: it is in the environment of each. */
function processesOf(directory: string): readonly { readonly pid: number; readonly command: string }[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const environment = readFileSync(`/proc/${name}/environ`, 'utf8').split('\0');
      if (!environment.includes(`HOME=${directory}`)) return [];
      return [{ pid: Number(name), command: readFileSync(`/proc/${name}/cmdline`, 'utf8').replaceAll('\0', ' ') }];
    } catch {
      return []; // It has gone meanwhile, or is somebody else's.
    }
  });
}

describe('the tutorial on sessions, block by block in one shell', () => {
  let home: string;
  let output = '';

  beforeAll(async () => {
    home = temporaryDirectory();
    const bin = join(home, 'bin');
    mkdirSync(bin);
    mkdirSync(join(home, 'work'));
    const program = `#!/bin/sh\nexec '${process.execPath}' '${await installed()}' "$@"\n`;
    writeFileSync(join(bin, 'open-compute'), program, { mode: 0o755 });
    const script = join(home, 'tutorial.sh');
    writeFileSync(script, BLOCKS.map(({ commands }, at) => `echo '${MARK}${String(at)}'\n${commands}`).join(''));
    // Both streams into one file, as on a terminal; a pipe would stay open with whatever is left running. A newcomer
    // stops at the first command that fails.
    const said = join(home, 'said.txt');
    const shell = `exec timeout ${String(LIMIT_S)} bash -euo pipefail '${script}' >'${said}' 2>&1 </dev/null`;
    const env = { HOME: home, PATH: `${bin}:${process.env['PATH'] ?? ''}` };
    const { code } = await run('bash', ['--noprofile', '--norc', '-c', shell], { cwd: join(home, 'work'), env }).ended;
    output = `${readFileSync(said, 'utf8')}${MARK}end\nexit code ${String(code)}\n`;
  });

  afterAll(async () => {
    await eventually(() => {
      const left = processesOf(home);
      for (const { pid } of left) process.kill(pid, 'SIGKILL');
      return left.length === 0 ? true : null;
    });
  });

  /** What came out while the block ran; null: it was not reached. */
  function outputOf(at: number): string | null {
    const from = output.indexOf(`${MARK}${String(at)}\n`);
    if (from < 0) return null;
    return output.slice(output.indexOf('\n', from) + 1, output.indexOf(MARK, from + 1));
  }

  test.each(BLOCKS.map((block, at) => [block.title, block, at] as const))('%s', (_title, { shown }: Block, at) => {
    const seen = outputOf(at);
    if (seen === null) throw new Error(`not reached; all that was said:\n${output}`);
    // The comparison that fails is the one that shows a difference.
    if (!isShown(shown, seen)) expect(seen).toBe(shown);
  });

  test('every command works, and nothing is left running', async () => {
    expect(output.slice(output.indexOf(`${MARK}end`))).toBe(`${MARK}end\nexit code 0\n`);
    const left = await eventually(() => (processesOf(home).length === 0 ? [] : null)).catch(() => processesOf(home));
    expect(left).toEqual([]);
  });
});

test('the tutorial names the keys and the options that there are', async () => {
  const keys = [...TUTORIAL.matchAll(/^\| `(\w+)`/gm)].map(([, key]) => key);
  expect(keys).toEqual(knownKeys(['profiles', 'gang', 'session']));
  const options = (text: string) => [...new Set(text.match(/--session-[a-z-]+/g))].sort();
  expect(options(TUTORIAL)).toEqual(options((await cli(['worker', '--help'])).stdout));
});

describe('what a block shows', () => {
  test.each([
    ['exit code 3\n', 'exit code 3\n', true],
    ['exit code 3\n', 'exit code 4\n', false],
    ['exit code 3\n', 'exit code 3\nmore\n', false],
    ['exit code 3\n', '', false],
    ['', 'more\n', false],
    ['a…  …b.\n', 'a1 2 b.\n', true],
    ['a…b.\n', 'a1\nb.\n', false],
    ['a…b.\n', 'a12b!\n', false],
    ['…\nready\n', 'ready\n', true],
    ['…\nready\n', 'one\ntwo\nready\n', true],
    ['…\nready\n', 'one\ntwo\n', false],
    ['ID     AGE\nx…  1\n', 'ID          AGE\nx123456789  1\n', true],
  ])('%j allows %j: %s', (shown, seen, allowed) => {
    expect(isShown(shown, seen)).toBe(allowed);
  });
});
