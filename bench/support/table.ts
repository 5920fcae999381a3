import { isMet, short, type Figure } from './figures.js';

const HEAD = ['BENCH', 'WHAT', 'OURS', 'RAW', 'RATIO', 'AIM', '', 'NOTE'] as const;
const RIGHT = new Set([2, 3, 4]);

/** A text table for people, one line a figure. */
export function toTable(figures: readonly Figure[]): string {
  const rows = [[...HEAD], ...figures.map(rowOf)];
  const widths = HEAD.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) =>
        RIGHT.has(column) ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0),
      )
      .join('  ')
      .trimEnd();
  return `${rows.map(line).join('\n')}\n`;
}

function rowOf(figure: Figure): string[] {
  const { bench, what, unit, ours, raw, ratio, note } = figure;
  const met = isMet(figure);
  return [
    bench,
    `${what}, ${unit}`,
    short(ours),
    raw === null ? '' : short(raw),
    ratio === null ? '' : short(ratio),
    aimText(figure),
    met === null ? '' : met ? 'met' : 'MISSED',
    note,
  ];
}

function aimText({ aim, unit }: Figure): string {
  if (aim === null) return '';
  const sign = aim.is === 'atLeast' ? '≥' : '≤';
  return aim.of === 'ratio' ? `${sign} ${aim.value}×` : `${sign} ${aim.value} ${unit}`;
}
