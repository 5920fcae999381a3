import { describe, expect, test } from '@jest/globals';
import { createMachine } from 'xstate';
import { COMMANDS } from '../../src/cli/commands.js';
import { EXIT } from '../../src/cli/exit-codes.js';
import { printableLine, printableText, toDuration, toJson, toTable } from '../../src/cli/output.js';
import { machineGraph } from '../../src/machines/draw.js';
import { jobMachine } from '../../src/machines/job.js';
import { sessionMachine } from '../../src/machines/session.js';
import { taskMachine } from '../../src/machines/task.js';
import { PHASES } from '../../src/machines/vocabulary.js';
import { cli } from './support/cli.js';

/** The surface that scripts rely on. */
const SURFACE: readonly (readonly [command: string, ...words: readonly string[]])[] = [
  ['serve', '--state-dir', '--listen', '--lease-ttl', '--losses-max', 'admin.json'],
  ['credentials create', '--role', '--name', '--out', 'submitter', 'worker', 'viewer', 'admin'],
  ['credentials list', '--credentials'],
  ['credentials revoke', '<id>'],
  [
    'worker',
    ...['--backend', '--name', '--credentials', '--training-profile', '--cluster-config', '--state-dir', '--runs-dir'],
    ...['--capacity', '--poll', '--watch-limit', '--status-every'],
  ],
  ['submit', '--kind', '--payload', '--wait', '--credentials', 'OPEN_COMPUTE_CREDENTIALS'],
  ['status', '[task]'],
  ['watch', '[task]'],
  ['result', '<task>', '--wait'],
  ['logs', '<task>'],
  ['cancel', '<task>'],
  ['abandon', '<task>', 'MAY LIVE ON'],
  ['profiles'],
  ['session start', '--profile', '--wait', '--wait-limit', '--key', 'Exit code 6'],
  ['session list', '--all', '--limit'],
  ['session status', '<session>'],
  ['session run', '<session>', '<command...>', '--nodes', '--tasks', '--cpus-per-task', '--time-limit', 'Ctrl-C'],
  ['session exec', '<session>', '<command...>', '--rank', '--stdin', '--output-limit', '128 + n'],
  ['session cancel-step', '<session>', '<step>'],
  ['session stop', '<session>', '--wait'],
  ['events export', '--state-dir', '--stream'],
  ['events import', '--state-dir', '--stream', '<file>'],
  ['replay', '<file|dir>', '--job', '--until'],
  ['inspect', '<job|session>', '--state-dir', '--ws'],
  ['explain', '<job>', '--state-dir'],
  ['machine', '<machine>', '--format', 'json', 'mermaid', 'svg'],
  ['doctor', '--backend', '--credentials', '--state-dir'],
  ['demo'],
];

describe('help', () => {
  test('names every command and every exit code', async () => {
    const { code, stdout } = await cli(['--help']);
    expect(code).toBe(EXIT.ok);
    for (const { name } of COMMANDS) expect(stdout).toMatch(new RegExp(`^  ${name} `, 'm'));
    for (const number of Object.values(EXIT)) expect(stdout).toMatch(new RegExp(`^  ${String(number)} `, 'm'));
  });

  test.each(SURFACE)('%s is explained with all of its options, and takes --json', async (command, ...words) => {
    const { code, stdout } = await cli([...command.split(' '), '--help']);
    expect(code).toBe(EXIT.ok);
    expect(stdout).toContain(`Usage: open-compute ${command} [options]`);
    for (const word of [...words, '--json']) expect(stdout).toContain(word);
  });

  test('every command is in the table above', () => {
    const shown = new Set(SURFACE.map(([command]) => command.split(' ')[0]));
    expect(COMMANDS.map(({ name }) => name).filter((name) => !shown.has(name))).toEqual([]);
  });
});

describe('a wrong command line ends with code 2, one line for the error and one for the hint', () => {
  test.each([
    [['submti'], "unknown command 'submti'", 'Did you mean submit?'],
    [['submit'], "required option '--kind <kind>' not specified", 'open-compute submit --help'],
    [['submit', '--kind'], "option '--kind <kind>' argument missing", 'open-compute submit --help'],
    [['status', '--frobnicate'], "unknown option '--frobnicate'", 'open-compute status --help'],
    [['status', 'one', 'two'], 'too many arguments', 'open-compute status --help'],
    [['status', '--limit', '1e3'], 'whole number from 1', 'open-compute status --help'],
    [['status', '--phase', 'Running'], 'Allowed choices are', 'open-compute status --help'],
    [['worker', '--name', 'x'], "required option '--backend <backend>'", 'open-compute worker --help'],
    [['worker', '--backend', 'cloud', '--name', 'x'], 'Allowed choices are', 'open-compute worker --help'],
    [['worker', '--backend', 'local', '--name', 'x', '--poll', '-1'], 'number above 0', 'open-compute worker --help'],
    [['serve', '--state-dir', '/x', '--listen', '7077'], 'It must be HOST:PORT', 'open-compute serve --help'],
    [['serve', '--state-dir', '/x', '--listen', 'h:70770'], 'It must be HOST:PORT', 'open-compute serve --help'],
    [['machine', 'worker'], 'Allowed choices are job, task, session', 'open-compute machine --help'],
    [['credentials', 'create', '--role', 'root'], 'Allowed choices are', 'open-compute credentials --help'],
  ])('%j', async (argv, message, hint) => {
    const { code, stdout, stderr } = await cli(argv);
    expect(code).toBe(EXIT.usage);
    expect(stdout).toBe('');
    const [first, second, ...more] = stderr.trimEnd().split('\n');
    expect(first).toContain(`open-compute: `);
    expect(first).toContain(message);
    expect(second).toContain('hint: ');
    expect(second).toContain(hint);
    expect(more).toEqual([]);
  });

  test('with --json the error is an object on one line', async () => {
    const { code, stderr } = await cli(['status', '--frobnicate', '--json']);
    expect(code).toBe(EXIT.usage);
    expect(JSON.parse(stderr)).toEqual({
      error: { message: "unknown option '--frobnicate'", hint: 'see open-compute status --help', exitCode: 2 },
    });
  });

  test('without a command it explains itself, on stderr', async () => {
    const { code, stdout, stderr } = await cli([]);
    expect([code, stdout]).toEqual([EXIT.usage, '']);
    expect(stderr).toContain('Usage: open-compute');
  });
});

describe('machine', () => {
  test.each(['job', 'task', 'session'] as const)(
    '%s: the JSON is a config that XState takes, with named guards and actions',
    async (name) => {
      const { code, stdout } = await cli(['machine', name]);
      expect(code).toBe(EXIT.ok);
      const config = JSON.parse(stdout) as Parameters<typeof createMachine>[0];
      const original = { job: jobMachine, task: taskMachine, session: sessionMachine }[name];
      expect(machineGraph(createMachine(config))).toEqual(machineGraph(original));
      expect(stdout).not.toContain('"xstate.');
    },
  );

  test('mermaid has each state, and one arrow per pair of states', async () => {
    const { stdout } = await cli(['machine', 'job', '--format', 'mermaid']);
    for (const phase of PHASES) expect(stdout).toMatch(new RegExp(`\\b${phase}\\b`));
    const arrows = stdout.split('\n').flatMap((line) => /^ {2}(\w+ --> \w+) : /.exec(line)?.[1] ?? []);
    expect(arrows.length).toBeGreaterThan(15);
    expect(new Set(arrows).size).toBe(arrows.length);
    expect(stdout).toContain('  [*] --> Submitting\n');
    expect(stdout).toContain('  Lost --> [*]\n');
    expect(stdout).toContain('result.collected [completionReported]');
  });

  test('svg is a picture with a node per state', async () => {
    const { stdout } = await cli(['machine', 'task', '--format', 'svg']);
    expect(stdout).toContain('<svg');
    for (const state of ['Queued', 'Leased', 'DeadLetter']) expect(stdout).toContain(`<title>${state}</title>`);
  });
});

describe('text for a terminal', () => {
  test('has no control characters of others in it', () => {
    expect(printableLine('a\x1b[31m\nb\x7f\x9b\u202e')).toBe('a\\x1b[31m\\x0ab\\x7f\\x9b\\u202e');
    expect(printableText('a\n\tb\rc')).toBe('a\n\tb\\x0dc');
    expect(toTable(['A'], [['\x1b[2J']])).toBe('A\n\\x1b[2J\n');
    expect(toJson({ a: '\x1b\x9b\u202e' })).toBe('{"a":"\\u001b\\u009b\\u202e"}');
  });

  test('tables are aligned, and an empty cell is a dash', () => {
    expect(
      toTable(
        ['A', 'BB', 'C'],
        [
          ['x', '', 'z'],
          ['longer', 'ä', ''],
        ],
      ),
    ).toBe('A       BB  C\nx       -   z\nlonger  ä   -\n');
  });

  test.each([
    [-5, '0s'],
    [59_999, '59s'],
    [61_000, '1m01s'],
    [3_600_000, '1h00m'],
    [90_061_000, '1d01h'],
  ])('%d ms is %s', (ms, text) => {
    expect(toDuration(ms)).toBe(text);
  });
});
