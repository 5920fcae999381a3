import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = process.cwd();

/** One snippet for each way to get at a clock, a timer, chance or a process. */
const BANNED = {
  clock: [
    'export const a = Date.now();',
    'export const a = new Date();',
    'export const a = Date();',
    'export const a = performance.now();',
    'export const a = globalThis.performance.now();',
    'export const a = process.hrtime();',
    'export const a = process.uptime();',
    "import { performance } from 'node:perf_hooks'; export const a = performance;",
  ],
  timer: [
    'setTimeout(() => {}, 1);',
    'setInterval(() => {}, 1);',
    'setImmediate(() => {});',
    'globalThis.setTimeout(() => {}, 1);',
    'export const a = AbortSignal.timeout(1);',
    "import { setTimeout as wait } from 'node:timers/promises'; await wait(1);",
    "const { setTimeout: wait } = await import('node:timers/promises'); await wait(1);",
  ],
  chance: [
    'export const a = Math.random();',
    'export const a = crypto.randomUUID();',
    'export const a = globalThis.crypto.randomUUID();',
    "import { randomBytes } from 'node:crypto'; export const a = randomBytes;",
    "import { randomUUID as make } from 'crypto'; export const a = make;",
    "import * as everything from 'node:crypto'; export const a = everything;",
    "import everything from 'node:crypto'; export const a = everything;",
  ],
  spawn: [
    "import { spawn } from 'node:child_process'; spawn('true');",
    "import { spawn } from 'child_process'; spawn('true');",
    "import { execa } from 'execa'; export const a = execa;",
    "export const a = await import('node:child_process');",
    "export const a = process.getBuiltinModule('child_process');",
  ],
} as const;
type Ban = keyof typeof BANNED;
const BANS = Object.keys(BANNED) as readonly Ban[];

/** What each kind of file may not do. */
const FORBIDDEN_AT: Readonly<Record<string, readonly Ban[]>> = {
  'src/machines/planted.ts': BANS,
  'src/events/planted.ts': BANS,
  'src/worker/planted.ts': BANS,
  'src/coordinator/planted.ts': BANS,
  'src/cli/demo.ts': BANS,
  'src/slurm/planted.ts': BANS,
  'src/slurm/broker.ts': ['clock', 'timer', 'chance'],
  'src/local/process.ts': ['clock', 'timer', 'chance'],
  'src/runtime/planted.ts': ['spawn'],
};

const IN_TESTS = [
  'await new Promise((resolve) => setTimeout(resolve, 100));',
  "import { setTimeout as wait } from 'node:timers/promises'; await wait(1);",
  'export const a = Math.random();',
  "test.only('x', () => {});",
  "test.skip('x', () => {});",
  "describe.only.each([1])('x', () => {});",
  "test.each([1]).skip('x', () => {});",
  "it.todo('x');",
  "fit('x', () => {});",
];

describe('time, chance and processes stay in their homes', () => {
  const cases = [
    ...Object.keys(FORBIDDEN_AT).flatMap((path) =>
      BANS.flatMap((ban) =>
        BANNED[ban].map((code) => ({ path, code, caught: FORBIDDEN_AT[path]?.includes(ban) === true })),
      ),
    ),
    ...IN_TESTS.map((code) => ({ path: 'test/worker/planted.test.ts', code, caught: true })),
    { path: 'test/support/wait.ts', code: IN_TESTS[0] ?? '', caught: false },
    { path: 'src/machines/index.ts', code: "export * from './job.js';", caught: true },
    { path: 'src/worker/planted.ts', code: "const a = 'x'; export const b = await import(`./${a}.js`);", caught: true },
    // What is not a clock, nor chance: a time that came in, and a digest.
    { path: 'src/machines/planted.ts', code: 'export const a = (ms) => new Date(ms).toISOString();', caught: false },
    {
      path: 'src/events/planted.ts',
      code: "import { createHash } from 'node:crypto'; export const a = createHash;",
      caught: false,
    },
  ];

  test('each way to get at one is reported where it is forbidden, and only there', () => {
    const answers = JSON.parse(
      execFileSync(process.execPath, [join(root, 'test/guards/lint-snippets.js')], {
        cwd: root,
        input: JSON.stringify(cases),
        encoding: 'utf8',
      }),
    ) as string[][];
    expect(answers).toHaveLength(cases.length);
    expect(cases.map((each, i) => ({ ...each, caught: answers[i]?.length !== 0 }))).toEqual(cases);
  });
});

describe('the arrows', () => {
  /** Each file and what it imports; the last column is the rule that must object, or null. */
  const EDGES: readonly (readonly [from: string, to: string, rule: string | null])[] = [
    ['src/machines/a.ts', '../backend.js', 'machines-know-nothing'],
    ['src/machines/b.ts', 'execa', 'machines-use-xstate-and-zod-only'],
    ['src/machines/c.ts', 'node:fs', 'machines-use-xstate-and-zod-only'],
    ['src/machines/d.ts', 'zod', null],
    ['src/events/a.ts', '../worker/worker.js', 'events-know-machines'],
    ['src/events/b.ts', '../machines/job.js', null],
    ['src/backend.ts', './machines/job.js', null],
    ['src/workdir/a.ts', '../slurm/index.js', 'workdir-knows-the-port'],
    ['src/slurm/a.ts', '../worker/worker.js', 'slurm-fills-the-port'],
    ['src/slurm/b.ts', '../local/index.js', 'slurm-fills-the-port'],
    ['src/local/a.ts', '../slurm/index.js', 'local-fills-the-port'],
    ['src/local/b.ts', '../backend.js', null],
    ['src/worker/a.ts', '../slurm/index.js', 'worker-uses-the-port'],
    ['src/worker/b.ts', '../local/index.js', 'backends-are-composed-in-one-place'],
    ['src/worker/c.ts', '../coordinator/service.js', 'worker-uses-the-port'],
    ['src/worker/d.ts', '../coordinator/worker-api.js', null],
    ['src/worker/e.ts', 'better-sqlite3', 'sqlite-has-a-home'],
    ['src/coordinator/a.ts', '../backend.js', 'coordinator-keeps-tasks'],
    ['src/cli/a.ts', '../slurm/index.js', 'backends-are-composed-in-one-place'],
    ['src/cli/compose.ts', '../slurm/index.js', null],
    ['src/cli/b.ts', 'node:child_process', 'node-spawning-has-a-home'],
    ['src/slurm/broker.ts', 'execa', null],
    ['src/slurm/c.ts', 'execa', 'spawning-has-a-home'],
    ['src/worker/f.ts', '../cli/compose.js', 'nobody-imports-the-command-line'],
    ['src/cli/c.ts', 'jest', 'no-development-dependencies'],
  ];
  let copy = '';
  beforeAll(() => {
    copy = mkdtempSync(join(tmpdir(), 'open-compute-arrows-'));
  });
  afterAll(() => rmSync(copy, { recursive: true }));

  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(copy, path)), { recursive: true });
    writeFileSync(join(copy, path), text);
  };

  test('a planted edge, type-only or not, is reported by its rule, a cycle and an orphan too, and allowed edges are not', () => {
    cpSync(join(root, 'tsconfig.json'), join(copy, 'tsconfig.json'));
    write(
      'package.json',
      '{"type":"module","dependencies":{"execa":"*","zod":"*","better-sqlite3":"*"},"devDependencies":{"jest":"*"}}',
    );
    for (const name of ['execa', 'zod', 'better-sqlite3', 'jest']) {
      write(`node_modules/${name}/package.json`, `{"name":"${name}","main":"index.js"}`);
      write(`node_modules/${name}/index.js`, '');
    }
    const targets = [
      'machines/job',
      'worker/worker',
      'slurm/index',
      'local/index',
      'coordinator/service',
      'coordinator/worker-api',
    ];
    for (const name of targets) write(`src/${name}.ts`, 'export interface X { readonly x: 1 }\n');
    EDGES.forEach(([from, to], i) =>
      write(from, i % 2 === 0 ? `import '${to}';\n` : `import type { X } from '${to}';\nexport type Y = X;\n`),
    );
    write('src/events/one.ts', "import type { Two } from './two.js';\nexport interface One { readonly two: Two }\n");
    write('src/events/two.ts', "import type { One } from './one.js';\nexport interface Two { readonly one: One }\n");
    write('src/runtime/alone.ts', 'export {};\n');

    const bin = join(root, 'node_modules/dependency-cruiser/bin/dependency-cruise.mjs');
    const argv = [bin, '--config', join(root, '.dependency-cruiser.cjs'), '--output-type', 'json', 'src'];
    const report = execFileSync(process.execPath, argv, { cwd: copy, encoding: 'utf8' });
    const { summary } = JSON.parse(report) as { summary: { violations: { from: string; rule: { name: string } }[] } };
    const objections = new Set(summary.violations.map(({ from, rule }) => `${from}: ${rule.name}`));
    expect(
      EDGES.flatMap(([from, , rule]) => (rule === null ? [] : [`${from}: ${rule}`])).filter(
        (each) => !objections.has(each),
      ),
    ).toEqual([]);
    const innocent = EDGES.flatMap(([from, , rule]) => (rule === null ? [from] : []));
    expect(summary.violations.filter(({ from }) => innocent.includes(from))).toEqual([]);
    expect([...objections]).toEqual(
      expect.arrayContaining(['src/events/one.ts: no-cycles', 'src/runtime/alone.ts: no-orphans']),
    );
  });
});
