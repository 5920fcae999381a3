import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import { BoundedLines } from '../../src/gateway/bounded-lines.js';

test('gives the same lines however the bytes are cut into pieces', () => {
  const line = fc.string({ unit: 'grapheme', maxLength: 20 }).filter((text) => !text.includes('\n'));
  fc.assert(
    fc.property(fc.array(line), fc.array(fc.nat(400)), (texts, cuts) => {
      const bytes = Buffer.from(texts.map((text) => `${text}\n`).join(''));
      const lines = new BoundedLines(10_000);
      const taken: string[] = [];
      const ends = [...cuts.filter((at) => at < bytes.length).sort((a, b) => a - b), bytes.length];
      let from = 0;
      for (const end of ends) {
        expect(lines.push(bytes.subarray(from, end), (text) => taken.push(text) > 0)).toBe(true);
        from = end;
      }
      expect(taken).toEqual(texts);
    }),
  );
});

test('takes a line of its limit and none that is longer, finished or not', () => {
  const push = (text: string): boolean => new BoundedLines(4).push(Buffer.from(text), () => true);
  expect(['', 'abcd', 'abcd\n', '\n\nabcd\nabcd', 'abcde', 'abcde\n', 'ab\nabcde'].map(push)).toEqual([
    true,
    true,
    true,
    true,
    false,
    false,
    false,
  ]);
});

test('looks at nothing more once it is told to stop', () => {
  const taken: string[] = [];
  new BoundedLines(9).push(Buffer.from('one\ntwo\nfar too long a line\n'), (text) => taken.push(text) > 5);
  expect(taken).toEqual(['one']);
});
