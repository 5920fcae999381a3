/** What one benchmark measured, side by side: ours, the raw thing it stands on, and what it should be. */
export interface Figure {
  readonly bench: string;
  readonly what: string;
  readonly unit: string;
  readonly ours: number;
  /** The bare commands or calls that do the same without us; null: there is nothing to compare with. */
  readonly raw: number | null;
  /** ours / raw, unless a round-by-round comparison gives a better one. */
  readonly ratio: number | null;
  readonly aim: Aim | null;
  /** How it was measured, how often, how far the rounds were apart. */
  readonly note: string;
}

/** `of`: which column has to be at least, or at most, `value`. */
export interface Aim {
  readonly of: 'ours' | 'ratio';
  readonly is: 'atLeast' | 'atMost';
  readonly value: number;
}

export const atLeast = (value: number, of: Aim['of'] = 'ours'): Aim => ({ of, is: 'atLeast', value });
export const atMost = (value: number, of: Aim['of'] = 'ours'): Aim => ({ of, is: 'atMost', value });

/** null: there is no aim, or nothing to hold against it. */
export function isMet({ aim, ours, ratio }: Pick<Figure, 'aim' | 'ours' | 'ratio'>): boolean | null {
  const value = aim?.of === 'ratio' ? ratio : ours;
  if (aim === null || value === null) return null;
  return aim.is === 'atLeast' ? value >= aim.value : value <= aim.value;
}

/** Throws on an empty list. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const [low, high] = [sorted[Math.ceil(sorted.length / 2) - 1], sorted[middle]];
  if (low === undefined || high === undefined) throw new RangeError('the median of nothing');
  return (low + high) / 2;
}

/** `5 rounds, 0.88–0.97`. */
export function spread(values: readonly number[], what = 'rounds'): string {
  return `${values.length} ${what}, ${short(Math.min(...values))}–${short(Math.max(...values))}`;
}

/** Three figures that count, whatever the size. */
export function short(value: number): string {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/** A pair of rates or times that were measured in turns: the ratio is the median of the rounds' ratios. */
export function compared(
  rounds: readonly { readonly ours: number; readonly raw: number }[],
): Pick<Figure, 'ours' | 'raw' | 'ratio' | 'note'> {
  const ratios = rounds.map(({ ours, raw }) => ours / raw);
  return {
    ours: median(rounds.map(({ ours }) => ours)),
    raw: median(rounds.map(({ raw }) => raw)),
    ratio: median(ratios),
    note: `ratio: ${spread(ratios)}`,
  };
}
