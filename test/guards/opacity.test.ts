import { describe, expect, test } from '@jest/globals';
import { leaksOf, mayKnowScheduler, sourceTree, type Tree } from './opacity.js';

const sources = sourceTree(process.cwd());
/** A planted file stands alone, so that a leak elsewhere cannot be taken for it. */
const planted = (path: string, text: string): Tree => new Map([[path, text]]);
const found = (tree: Tree) => leaksOf(tree).map(({ path, line, what }) => `${path}:${line} ${what}`);

describe('INV-2 opacity', () => {
  test('INV-2: outside its folder and the composition file no source names the scheduler or reaches it by import', () => {
    expect(found(sources)).toEqual([]);
  });

  test('the guard reads the whole source tree, and the folder that it leaves out does name the scheduler', () => {
    for (const path of ['src/backend.ts', 'src/machines/job.ts', 'src/worker/worker.ts'])
      expect([...sources.keys()]).toContain(path);
    const inside = [...sources].filter(([path]) => mayKnowScheduler(path));
    expect(inside.length).toBeGreaterThan(0);
    // The same texts one folder further on are leaks.
    expect(
      leaksOf(new Map(inside.map(([path, text]) => [path.replace('src/slurm/', 'src/other/'), text]))),
    ).not.toEqual([]);
  });

  test.each([
    ['a snake-case identifier', 'const slurm_backend = 1;'],
    ['a camel-case identifier', 'const slurmBackend = 1;'],
    ['the tail of a camel-case identifier', 'const viaSlurm = 1;'],
    ['a constant', 'const SLURM_CONF = 1;'],
    ['a daemon', '// slurmctld keeps it'],
    ['a line comment', '// asks squeue'],
    ['a doc comment', '/** like sacct */'],
    ['a string', "const command = 'scancel';"],
    ['a template', 'const command = `${dir}/sbatch`;'],
    ['an escaped string', "const command = '\\u0073lurm \\x73batch';"],
    ['a property', 'interface P { readonly qos: string }'],
    ['mixed case', 'const maxQoS = 1;'],
    ['a plural', 'const partitions = [];'],
    ['a step launcher', "const argv = ['srun', '--jobid'];"],
    ['a command at the head of an identifier', 'const srunArgs = [];'],
    ['a command at the tail of an identifier', 'const viaSrun = [];'],
    ['a command in capitals at the tail of an identifier', 'const viaSRUN = [];'],
    ['a command in a constant', 'const SRUN_OPTIONS = [];'],
    ['a command as a word', "run('scontrol');"],
  ])('INV-2: a planted leak is caught: %s', (_, text) => {
    expect(found(planted('src/worker/planted.ts', `export {};\n${text}\n`))).toContainEqual(
      expect.stringMatching(/^src\/worker\/planted\.ts:2 names /),
    );
  });

  test('INV-2: a file whose name gives the scheduler away is caught', () => {
    expect(found(planted('src/worker/slurm-quirks.ts', 'export {};\n'))).toEqual([
      'src/worker/slurm-quirks.ts:0 the path names slurm',
    ]);
  });

  test('INV-2: ordinary words that only look like a command are no leak', () => {
    const text =
      'const isRunning = jobsRun + IS_RUNNING; // wantsCancel; tasksQueue; the runs run; a queue, an account\n';
    expect(found(planted('src/worker/planted.ts', text))).toEqual([]);
  });

  test.each([
    ['an import', "import { x } from '../slurm/broker.js';"],
    ['a type-only import', "import type { X } from '../slurm/broker.js';"],
    ['a re-export', "export { x } from '../slurm/broker.js';"],
    ['a dynamic import', "const x = await import('../slurm/broker.js');"],
    ["an import by the package's name", "import { x } from 'open-compute/slurm';"],
    ['a detour in the path', "import { x } from '../machines/../slurm/broker.js';"],
  ])('INV-2: reaching the scheduler by import is caught: %s', (_, text) => {
    expect(found(planted('src/worker/planted.ts', text))).toContainEqual(
      expect.stringMatching(/^src\/worker\/planted\.ts:0 imports src\/worker\/planted\.ts -> src\/slurm\//),
    );
  });

  test('INV-2: reaching the scheduler through a third file is caught, through the composition file it is not', () => {
    const tree = new Map([
      ['src/worker/a.ts', "import './b.js';"],
      ['src/worker/b.ts', "import '../slurm/index.js';"],
      ['src/cli/compose.ts', "import '../slurm/index.js';"],
      ['src/cli/main.ts', "import './compose.js';"],
    ]);
    expect(found(tree).filter((each) => each.includes('imports'))).toEqual([
      'src/worker/a.ts:0 imports src/worker/a.ts -> src/worker/b.ts -> src/slurm/index.ts',
      'src/worker/b.ts:0 imports src/worker/b.ts -> src/slurm/index.ts',
    ]);
  });
});
