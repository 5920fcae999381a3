import { fc, test } from '@fast-check/jest';
import { expect } from '@jest/globals';
import { fromTable, toTable, type Table } from '../../src/events/columns.js';

const field = fc.constantFrom('id', 'phase', 'seen', 'why', 'n');
const value = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constant(null),
    fc.integer(),
    fc.string(),
    fc.array(tie('value'), { maxLength: 2 }),
    fc.dictionary(field, tie('value'), { maxKeys: 3, noNullPrototype: true }),
  ),
})).value;
const rows = fc.array(fc.dictionary(field, value, { noNullPrototype: true }), { maxLength: 20 });

test.prop([rows])('rows come back as they were, in their order, also through JSON', (given) => {
  const kept = JSON.parse(JSON.stringify(toTable(given))) as Table;
  expect(fromTable(kept)).toEqual(given);
});
