/** Plain JSON values, and objects of them. */
export type Row = Readonly<Record<string, unknown>>;

/**
 * Objects of one kind, field by field. A field that holds an object in every row is such a table again; all else is kept
 * as it is. As JSON it is half as long as the objects, and read in less than half the time: no name is said twice.
 */
interface Group {
  readonly fields: readonly string[];
  readonly columns: readonly Column[];
}

type Column = { readonly values: readonly unknown[] } | { readonly rows: Table };

export interface Table {
  readonly groups: readonly Group[];
  /** For each row its group; within a group rows keep their order. */
  readonly order: readonly number[];
}

const isRow = (value: unknown): value is Row => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Rows that have the same fields, and objects in the same ones, become a group. */
export function toTable(rows: readonly Row[]): Table {
  const groups = new Map<string, { readonly index: number; readonly rows: Row[] }>();
  const order = rows.map((row) => {
    const key = JSON.stringify(Object.entries(row).map(([field, value]) => [field, isRow(value)]));
    const group = groups.get(key) ?? { index: groups.size, rows: [] };
    groups.set(key, group);
    group.rows.push(row);
    return group.index;
  });
  return { groups: [...groups.values()].map((group) => toGroup(group.rows)), order };
}

function toGroup(rows: readonly Row[]): Group {
  const fields = Object.keys(rows[0] ?? {});
  const columns = fields.map((field): Column => {
    const values = rows.map((row) => row[field]);
    return values.every(isRow) ? { rows: toTable(values) } : { values };
  });
  return { fields, columns };
}

/** Undoes `toTable`. */
export function fromTable({ groups, order }: Table): readonly Row[] {
  const readers = groups.map(({ fields, columns }) => {
    const values = columns.map((column) => ('rows' in column ? fromTable(column.rows) : column.values));
    let at = 0;
    return (): Row => {
      const row: Record<string, unknown> = {};
      for (let n = 0; n < fields.length; n += 1) row[fields[n] ?? ''] = values[n]?.[at];
      at += 1;
      return row;
    };
  });
  return order.map((group) => readers[group]?.() ?? {});
}
