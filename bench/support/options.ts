import { tmpdir } from 'node:os';
import { parseArgs } from 'node:util';

export const USAGE = `npm run bench -- [NAME…] [--list] [--json] [--divisor N] [--directory DIR]

Runs the benchmarks with these names, or all, and shows our figures beside those of the bare commands. Exits 1 if one failed.
  --list           what there is
  --json           figures for programs, on stdout
  --divisor N      sizes divided by N: to see that everything works, not for figures (1)
  --directory DIR  where to write; on a real local disk (${tmpdir()})`;

export interface Options {
  readonly names: readonly string[];
  readonly help: boolean;
  readonly list: boolean;
  /** For run.sh: only say whether one of the named benchmarks needs a cluster. */
  readonly needsCluster: boolean;
  readonly json: boolean;
  readonly divisor: number;
  /** The root of the built package. */
  readonly app: string;
  readonly directory: string;
}

/** Throws an error whose message is for people. */
export function parseOptions(argv: readonly string[]): Options {
  const { values, positionals } = parseArgs({
    args: [...argv],
    allowPositionals: true,
    options: {
      json: { type: 'boolean', default: false },
      list: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
      'needs-cluster': { type: 'boolean', default: false },
      divisor: { type: 'string', default: '1' },
      app: { type: 'string', default: '.' },
      directory: { type: 'string', default: tmpdir() },
    },
  });
  const divisor = Number(values.divisor);
  if (!(divisor >= 1)) throw new Error(`--divisor ${values.divisor}: not a number of at least 1`);
  return { ...values, names: positionals, needsCluster: values['needs-cluster'], divisor };
}
