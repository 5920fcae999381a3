import { readdirSync, readFileSync } from 'node:fs';
import { posix } from 'node:path';
import ts from 'typescript';

/** Source text by path from the repository's root, `/` between the parts. */
export type Tree = ReadonlyMap<string, string>;

export interface Leak {
  readonly path: string;
  /** 1-based; 0: the path itself. */
  readonly line: number;
  readonly what: string;
}

/** INV-2 goes by path: the scheduler's folder, and the one file that composes the parts. */
const SCHEDULER_FOLDER = 'src/slurm/';
const COMPOSITION_FILE = 'src/cli/compose.ts';
export const mayKnowScheduler = (path: string): boolean =>
  path.startsWith(SCHEDULER_FOLDER) || path === COMPOSITION_FILE;

/** Anywhere inside an identifier, comment, string or path, in any case: `slurm_backend`, `useSlurm`, `slurmctld`. */
const NAMES = /slurm|partition|qos/gi;
/** The commands need an edge before their `s`, or `isRunning` and `wantsCancel` would be leaks. */
const COMMANDS = ['batch', 'queue', 'acct', 'cancel', 'control', 'run'];
const COMMAND_FORMS = [
  new RegExp(`(?<![a-z])s(?:${COMMANDS.join('|')})`, 'gi'), // `srunArgs`, `via_srun`, `SRUN`
  new RegExp(`S(?:${COMMANDS.join('|')})`, 'g'), // `viaSrun`
  new RegExp(`(?<=[a-z])S(?:${COMMANDS.join('|').toUpperCase()})`, 'g'), // `viaSRUN`
];

const wordsIn = (text: string): Set<string> =>
  new Set([NAMES, ...COMMAND_FORMS].flatMap((form) => text.match(form) ?? []));

/** `'\u0073lurm'` and `'\x73lurm'` are the same word to the program. */
const unescapeText = (text: string): string =>
  text.replace(/\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|u\{([0-9a-f]{1,6})\})/gi, (_, ...groups: (string | undefined)[]) =>
    String.fromCodePoint(parseInt(groups[0] ?? groups[1] ?? groups[2] ?? '0', 16)),
  );

function leaksByWord(tree: Tree): Leak[] {
  const leaks: Leak[] = [];
  for (const [path, text] of tree) {
    if (mayKnowScheduler(path)) continue;
    for (const word of wordsIn(path)) leaks.push({ path, line: 0, what: `the path names ${word}` });
    unescapeText(text)
      .split('\n')
      .forEach((line, index) => {
        for (const word of wordsIn(line)) leaks.push({ path, line: index + 1, what: `names ${word}` });
      });
  }
  return leaks;
}

/** Everything that a file imports from this tree: static, type-only, dynamic, re-exported, or by the package's own name. */
function importsOf(path: string, text: string): string[] {
  return ts.preProcessFile(text, true, true).importedFiles.map(({ fileName: specifier }) => {
    const own = /^open-compute(\/.*)?$/.exec(specifier);
    if (own !== null) return `src${own[1] ?? ''}/index.ts`;
    if (!specifier.startsWith('.')) return specifier;
    return posix.join(posix.dirname(path), specifier).replace(/\.js$/, '.ts');
  });
}

/** Walks the imports from every file that may not know the scheduler; what composition imports is its own affair. */
function leaksByImport(tree: Tree): Leak[] {
  const leaks: Leak[] = [];
  for (const start of tree.keys()) {
    if (mayKnowScheduler(start)) continue;
    const chains: string[][] = [[start]];
    const seen = new Set([start]);
    for (let chain = chains.pop(); chain !== undefined; chain = chains.pop()) {
      const at = chain.at(-1) ?? start;
      for (const target of importsOf(at, tree.get(at) ?? '')) {
        if (seen.has(target) || target === COMPOSITION_FILE) continue;
        seen.add(target);
        if (target.startsWith(SCHEDULER_FOLDER)) {
          leaks.push({ path: start, line: 0, what: `imports ${[...chain, target].join(' -> ')}` });
        } else if (tree.has(target)) {
          chains.push([...chain, target]);
        }
      }
    }
  }
  return leaks;
}

/** Every place at which the tree breaks INV-2. */
export const leaksOf = (tree: Tree): Leak[] => [...leaksByWord(tree), ...leaksByImport(tree)];

/** The real sources, of every kind of file. */
export function sourceTree(root: string): Tree {
  const files = readdirSync(`${root}/src`, { recursive: true, withFileTypes: true }).filter(
    (entry) => !entry.isDirectory(),
  );
  return new Map(
    files.map((entry) => {
      const path = `${entry.parentPath}/${entry.name}`;
      return [posix.relative(root, path), readFileSync(path, 'utf8')];
    }),
  );
}
