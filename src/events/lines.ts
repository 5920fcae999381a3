import { closeSync, openSync, readSync } from 'node:fs';

const CHUNK_BYTES = 256 * 1024;
/** Longer than any event: a file that is no text is given up early. */
const LINE_BYTES_MAX = 64 * 1024 * 1024;

const NEWLINE = 0x0a;

/**
 * The lines of a file in UTF-8, without their ends, one after the other: memory stays flat. Synchronous, so that an
 * import is one transaction that nothing else can get into. Throws what the file system throws, TypeError on bytes that
 * are not UTF-8, RangeError on a line of more than 64 MiB.
 */
export function* readLines(path: string): Generator<string> {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
  const file = openSync(path, 'r');
  try {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    let begun: Buffer[] = [];
    let begunBytes = 0;
    for (let length = readSync(file, chunk); length > 0; length = readSync(file, chunk)) {
      let from = 0;
      for (let end = chunk.indexOf(NEWLINE); end !== -1 && end < length; end = chunk.indexOf(NEWLINE, from)) {
        yield decoder.decode(Buffer.concat([...begun, chunk.subarray(from, end)]));
        begun = [];
        begunBytes = 0;
        from = end + 1;
      }
      begun.push(Buffer.from(chunk.subarray(from, length)));
      begunBytes += length - from;
      if (begunBytes > LINE_BYTES_MAX) throw new RangeError('a line of more than 64 MiB');
    }
    if (begunBytes > 0) yield decoder.decode(Buffer.concat(begun));
  } finally {
    closeSync(file);
  }
}
