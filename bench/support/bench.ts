import type { Figure } from './figures.js';

/** What a benchmark gets. */
export interface BenchContext {
  /** A directory of its own on a real disk; it is removed afterwards. */
  readonly directory: string;
  /** The root of the built package: `dist/cli/main.js` is the program that is measured. */
  readonly app: string;
  /** Sizes are divided by this: 1 for figures that count, more to see that it works. */
  readonly divisor: number;
  readonly say: (text: string) => void;
}

/** One benchmark; its aims are on its figures. */
export interface Bench {
  readonly name: string;
  readonly summary: string;
  /** Needs a cluster that the commands of this environment reach. */
  readonly needsCluster: boolean;
  readonly run: (context: BenchContext) => Promise<readonly Omit<Figure, 'bench'>[]>;
}
