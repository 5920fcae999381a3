import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import type { JobFiles } from './directory.js';
import { ioFailure, messageOf, type IoFailure } from './io-error.js';
import { openRegular } from './markers.js';
import { presenceOf } from './presence.js';

export type CollectResult =
  | { readonly kind: 'ok'; readonly value: unknown; readonly bytes: number; readonly sha256: string }
  /** The file system is there and the result is not. */
  | { readonly kind: 'missing'; readonly detail: string }
  /** Names the file and says why it does not count. */
  | { readonly kind: 'invalid'; readonly detail: string }
  | IoFailure;

/** Deeper than this, JSON writers that recurse would run out of stack far from here. */
const DEPTH_LIMIT = 512;

/**
 * Reads a job's result: a regular file of at most `limitBytes`, in UTF-8, with one JSON value. When nothing of the runs
 * directory can be seen, the answer is `io`: the file system may be away, and nothing is known.
 */
export async function collectResult(files: JobFiles, limitBytes: number): Promise<CollectResult> {
  let opened = await openRegular(files.result);
  if (opened.kind === 'missing') {
    // A network file system may remember that the file was not there; this asks the server again.
    const presence = await presenceOf(files);
    if (presence.kind === 'io') return presence;
    if (presence.kind === 'gone') return { kind: 'missing', detail: `the job directory ${files.directory} is gone` };
    opened = await openRegular(files.result);
  }
  if (opened.kind === 'missing') return { kind: 'missing', detail: `${files.result} is not there` };
  if (opened.kind !== 'ok') return opened;
  const { handle, sizeBytes } = opened;
  try {
    if (sizeBytes > limitBytes) return tooLarge(files.result, limitBytes);
    const bytes = await readAtMost(handle, limitBytes + 1);
    if (bytes.length > limitBytes) return tooLarge(files.result, limitBytes);
    return parseResult(files.result, bytes);
  } catch (error) {
    return ioFailure(`reading ${files.result}`, error);
  } finally {
    await handle.close();
  }
}

const tooLarge = (path: string, limitBytes: number): CollectResult => ({
  kind: 'invalid',
  detail: `${path} is larger than ${String(limitBytes)} bytes`,
});

/** Reads until the end or until `countBytes`, whatever the size was said to be. */
async function readAtMost(handle: FileHandle, countBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let total = 0;
  while (total < countBytes) {
    const part = Buffer.alloc(Math.min(countBytes - total, 1024 * 1024));
    const { bytesRead } = await handle.read(part, 0, part.length, total);
    if (bytesRead === 0) break;
    parts.push(part.subarray(0, bytesRead));
    total += bytesRead;
  }
  return Buffer.concat(parts, total);
}

function parseResult(path: string, bytes: Buffer): CollectResult {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return { kind: 'invalid', detail: `${path} is not UTF-8` };
  }
  if (text.trim() === '') return { kind: 'invalid', detail: `${path} is empty` };
  if (jsonDepth(text) > DEPTH_LIMIT) {
    return { kind: 'invalid', detail: `${path} is nested more than ${String(DEPTH_LIMIT)} levels deep` };
  }
  try {
    const value: unknown = JSON.parse(text);
    return { kind: 'ok', value, bytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') };
  } catch (error) {
    return { kind: 'invalid', detail: `${path} is not JSON: ${messageOf(error)}` };
  }
}

function jsonDepth(text: string): number {
  let depth = 0;
  let deepest = 0;
  let inString = false;
  for (let i = 0; i < text.length; i += 1) {
    const char = text[i];
    if (inString) {
      if (char === '\\') i += 1;
      else if (char === '"') inString = false;
    } else if (char === '"') inString = true;
    else if (char === '[' || char === '{') deepest = Math.max(deepest, (depth += 1));
    else if (char === ']' || char === '}') depth -= 1;
  }
  return deepest;
}

export type ReadTail =
  | {
      readonly kind: 'ok';
      /** Undecodable bytes are replaced; control characters are left for the caller to escape. */
      readonly text: string;
      readonly sizeBytes: number;
      readonly truncated: boolean;
    }
  | { readonly kind: 'missing' }
  | { readonly kind: 'invalid'; readonly detail: string }
  | IoFailure;

/** The last `limitBytes` of a job's output, from the start of a character on. */
export async function readTail(path: string, limitBytes: number): Promise<ReadTail> {
  const opened = await openRegular(path);
  if (opened.kind !== 'ok') return opened;
  const { handle, sizeBytes } = opened;
  try {
    const fromByte = Math.max(0, sizeBytes - limitBytes);
    const buffer = Buffer.alloc(Math.min(sizeBytes, limitBytes));
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, fromByte);
    let start = 0;
    // Cut inside a character: its rest, at most three continuation bytes, is not worth a replacement character.
    while (fromByte > 0 && start < 3 && start < bytesRead && ((buffer[start] ?? 0) & 0xc0) === 0x80) start += 1;
    return { kind: 'ok', text: buffer.toString('utf8', start, bytesRead), sizeBytes, truncated: fromByte > 0 };
  } catch (error) {
    return ioFailure(`reading ${path}`, error);
  } finally {
    await handle.close();
  }
}
