import { expect, test } from '@jest/globals';
import fc from 'fast-check';
import type { OutputPiece, OutputStream } from '../../../src/coordinator/session-api.js';
import { OutputBudget, StepOutput } from '../../../src/worker/sessions/step-output.js';

const newOutput = (limitBytes: number, budgetBytes = 1e9): StepOutput =>
  new StepOutput(limitBytes, new OutputBudget(budgetBytes));

const STREAMS = ['stdout', 'stderr'] as const;
const PIECE_BYTES = 64 * 1024;

interface Write {
  readonly stream: OutputStream;
  readonly bytes: Buffer;
}

/** What a reader of one stream has. */
interface Reader {
  readonly bytes: Buffer[];
  has: number;
}

type Op =
  | { readonly do: 'write'; readonly stream: OutputStream; readonly length: number }
  /** The reader gets at most so many pieces, and keeps this part of the bytes of each stream. */
  | {
      readonly do: 'take';
      readonly count: number;
      readonly limitBytes: number;
      readonly kept: readonly [number, number];
    };

const part = fc.constantFrom(0, 0.1, 0.5, 0.9, 1);

const op: fc.Arbitrary<Op> = fc.oneof(
  fc.record({
    do: fc.constant('write' as const),
    stream: fc.constantFrom(...STREAMS),
    length: fc.oneof(fc.nat(40), fc.constantFrom(PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES)),
  }),
  fc.record({
    do: fc.constant('take' as const),
    count: fc.integer({ min: 1, max: 5 }),
    limitBytes: fc.constantFrom(1, 50, PIECE_BYTES, 10 * PIECE_BYTES),
    kept: fc.tuple(part, part),
  }),
);

const limit = fc.oneof(fc.nat(200), fc.constantFrom(0, PIECE_BYTES, 2 * PIECE_BYTES + 7, 100 * PIECE_BYTES));

/** Bytes that tell where they belong: no two windows look alike soon. */
const written = (start: number, length: number): Buffer =>
  Buffer.from(Uint8Array.from({ length }, (_, n) => ((start + n) * 31 + ((start + n) >> 8)) & 0xff));

const bytesOf = ({ data }: OutputPiece): Buffer => Buffer.from(data, 'base64');

/** The first `limitBytes` of everything, by stream. */
function expected(writes: readonly Write[], limitBytes: number): Record<OutputStream, Buffer> {
  const parts: Record<OutputStream, Buffer[]> = { stdout: [], stderr: [] };
  let room = limitBytes;
  for (const { stream, bytes } of writes) {
    parts[stream].push(bytes.subarray(0, room));
    room -= Math.min(room, bytes.length);
  }
  return { stdout: Buffer.concat(parts.stdout), stderr: Buffer.concat(parts.stderr) };
}

/** Offers pieces, checks that they follow what the reader has, and hands the reader a part of each stream. */
function offer(
  output: StepOutput,
  readers: Record<OutputStream, Reader>,
  { count, limitBytes, kept }: Extract<Op, { do: 'take' }>,
): void {
  const pieces = output.pieces(count, limitBytes);
  expect(pieces.length).toBeLessThanOrEqual(count);
  expect(pieces.length > 0).toBe(!output.isEmpty);
  const sizes = pieces.map((piece) => bytesOf(piece).length);
  if (pieces.length > 1) expect(sizes.reduce((a, b) => a + b)).toBeLessThanOrEqual(limitBytes);
  for (const size of sizes) expect(size).toBeLessThanOrEqual(PIECE_BYTES);
  const before = { stdout: readers.stdout.has, stderr: readers.stderr.has };
  for (const [index, stream] of STREAMS.entries()) {
    const reader = readers[stream];
    const mine = pieces.filter((piece) => piece.stream === stream);
    let next = reader.has;
    for (const piece of mine) {
      expect(piece.offset).toBe(next);
      next += bytesOf(piece).length;
    }
    const all = Buffer.concat(mine.map(bytesOf));
    const takes = Math.floor(all.length * (kept[index] ?? 0));
    reader.bytes.push(all.subarray(0, takes));
    reader.has += takes;
  }
  const moved = readers.stdout.has > before.stdout || readers.stderr.has > before.stderr;
  expect(output.taken({ stdout: readers.stdout.has, stderr: readers.stderr.has })).toBe(moved);
}

test('whatever is written and however it is taken, the pieces joined are the first bytes up to the limit, in order, none lost and none twice', () => {
  fc.assert(
    fc.property(fc.array(op, { maxLength: 40 }), limit, (ops, limitBytes) => {
      const output = newOutput(limitBytes);
      const readers: Record<OutputStream, Reader> = { stdout: { bytes: [], has: 0 }, stderr: { bytes: [], has: 0 } };
      const writes: Write[] = [];
      let total = 0;
      for (const one of ops) {
        if (one.do === 'take') {
          offer(output, readers, one);
          continue;
        }
        const bytes = written(total, one.length);
        total += bytes.length;
        writes.push({ stream: one.stream, bytes });
        // What a pipe hands out is used again for what comes next.
        const lent = Buffer.from(bytes);
        output.add(one.stream, lent);
        lent.fill(0);
      }
      for (let turns = 0; !output.isEmpty; turns += 1) {
        expect(turns).toBeLessThan(1_000);
        offer(output, readers, { do: 'take', count: 64, limitBytes: 4 * 1024 * 1024, kept: [1, 1] });
      }
      const wanted = expected(writes, limitBytes);
      for (const stream of STREAMS) expect(Buffer.concat(readers[stream].bytes).equals(wanted[stream])).toBe(true);
      expect(output.droppedBytes).toBe(total - wanted.stdout.length - wanted.stderr.length);
      expect(output.count).toBe(0);
    }),
    { numRuns: 200 },
  );
});

test('a coordinator that says the same again, or less, takes nothing back', () => {
  const output = newOutput(100);
  output.add('stdout', Buffer.from('abcdef'));
  expect(output.taken({ stdout: 4, stderr: 0 })).toBe(true);
  for (const stdout of [4, 2, 0]) {
    expect(output.taken({ stdout, stderr: 0 })).toBe(false);
    expect(output.pieces(9, 100)).toEqual([
      { stream: 'stdout', offset: 4, data: Buffer.from('ef').toString('base64') },
    ]);
  }
});

test('what the steps of a worker hold together is bounded; what is taken, or given up, makes room for the others', () => {
  const budget = new OutputBudget(10);
  const [first, second, third] = [1, 2, 3].map(() => new StepOutput(100, budget));
  first?.add('stdout', Buffer.from('eight...'));
  second?.add('stderr', Buffer.from('four'));
  expect([first?.droppedBytes, second?.droppedBytes, second?.sizes]).toEqual([0, 2, { stdout: 0, stderr: 2 }]);
  first?.taken({ stdout: 3, stderr: 0 });
  second?.abandon();
  third?.add('stdout', Buffer.from('six...'));
  expect([third?.droppedBytes, third?.sizes]).toEqual([1, { stdout: 5, stderr: 0 }]);
});

test('small writes that follow each other become one piece, and the order between the streams is kept', () => {
  const output = newOutput(100);
  for (const [stream, text] of [
    ['stdout', 'a'],
    ['stdout', 'b'],
    ['stderr', 'c'],
    ['stdout', 'd'],
  ] as const)
    output.add(stream, Buffer.from(text));
  const pieces = output.pieces(9, 100);
  expect(pieces.map((piece) => [piece.stream, piece.offset, bytesOf(piece).toString()])).toEqual([
    ['stdout', 0, 'ab'],
    ['stderr', 0, 'c'],
    ['stdout', 2, 'd'],
  ]);
});
