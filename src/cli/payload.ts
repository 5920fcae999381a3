import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { CliError, errnoOf, messageOf, usageError } from './errors.js';
import { EXIT } from './exit-codes.js';
import type { Io } from './io.js';
import { cut, printableLine } from './output.js';

/** The coordinator's own limit is the one that counts; this keeps a file of any size out of memory. */
export const PAYLOAD_LIMIT_BYTES = 256 * 1024;

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const NAME_RULE =
  'a name starts with a letter or digit, has only letters, digits, ".", "_" and "-", and at most 64 of them';

/** Any text inside an error: quoted, in one line, not longer than is of use. */
export const quoted = (text: string): string => JSON.stringify(cut(printableLine(text), 80));

/** Checks a name before anything is sent. Throws a usage error. */
export function checkName(what: string, text: string): string {
  if (NAME.test(text)) return text;
  throw usageError(`${what} ${quoted(text)} is not a name`, NAME_RULE);
}

/**
 * Reads `--payload`: JSON itself, `@FILE`, or `-` for standard input. Throws a usage error on text that is not UTF-8, not
 * JSON, too large, or of a shape that `kind` can not have.
 */
export async function readPayload(io: Io, kind: string, spec: string): Promise<unknown> {
  const { text, from } = await textOf(io, spec);
  if (text.trim() === '') throw usageError(`${from} is empty`, 'a payload is a JSON value');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const hint = spec.startsWith('@') || spec === '-' ? '' : 'quote the JSON for your shell, or use --payload @FILE';
    throw usageError(`${from} is not JSON: ${printableLine(cut(messageOf(error), 200))}`, hint);
  }
  const size = Buffer.byteLength(JSON.stringify(value));
  if (size > PAYLOAD_LIMIT_BYTES) throw tooLarge(from, size);
  if (kind === 'training') checkTraining(value);
  return value;
}

const tooLarge = (from: string, size: number | null): CliError =>
  usageError(
    `${from} is ${size === null ? 'larger' : `${String(size)} bytes, more`} than the ${String(PAYLOAD_LIMIT_BYTES)} bytes that a payload may have`,
    'put large inputs into a file on the shared file system and pass its path',
  );

async function textOf(io: Io, spec: string): Promise<{ readonly text: string; readonly from: string }> {
  if (spec === '-')
    return { text: decode(await readAll(io.stdin, 'standard input'), 'standard input'), from: 'standard input' };
  if (!spec.startsWith('@')) {
    if (Buffer.byteLength(spec) > PAYLOAD_LIMIT_BYTES) throw tooLarge('the payload', null);
    // The shell's bytes reach us decoded with replacement: what was not UTF-8 can not be told apart any more.
    if (spec.includes('\ufffd')) throw usageError('the payload is not UTF-8', 'use --payload @FILE with a UTF-8 file');
    return { text: spec, from: 'the payload' };
  }
  const from = `payload file ${quoted(spec.slice(1))}`;
  if (spec.length === 1) throw usageError('--payload @ names no file', 'write --payload @FILE');
  return { text: decode(await readFileBounded(resolve(io.cwd, spec.slice(1)), from), from), from };
}

async function readFileBounded(path: string, from: string): Promise<Buffer> {
  try {
    const handle = await open(path, 'r');
    try {
      if ((await handle.stat()).isDirectory()) throw usageError(`${from} is a directory`);
      return await readAll(handle.createReadStream({ autoClose: false }), from);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof CliError) throw error;
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ENOTDIR') throw usageError(`${from} does not exist`);
    if (errno === 'EACCES' || errno === 'EPERM') throw usageError(`${from} is not readable`);
    throw new CliError(EXIT.usage, `${from} can not be read: ${printableLine(cut(messageOf(error), 200))}`);
  }
}

/** Stops reading at the limit. */
async function readAll(chunks: AsyncIterable<Uint8Array>, from: string): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    size += chunk.length;
    // White space between the values may take room as well.
    if (size > 4 * PAYLOAD_LIMIT_BYTES) throw tooLarge(from, null);
    parts.push(chunk);
  }
  return Buffer.concat(parts);
}

function decode(bytes: Buffer, from: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw usageError(`${from} is not UTF-8`);
  }
}

/** `{"profile": NAME, "parameters": {…}}`; what the parameters may hold is the profile's own schema's to say. */
function checkTraining(value: unknown): void {
  const example = 'such as {"profile":"smoke","parameters":{"message":"hello"}}';
  const wrong = (why: string): CliError => usageError(`a payload of kind training ${why}`, example);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong('is an object');
  const { profile, parameters, ...rest } = value as Readonly<Record<string, unknown>>;
  if (profile === undefined) throw wrong('names a profile');
  if (typeof profile !== 'string') throw wrong('names its profile in a string');
  checkName('profile', profile);
  if (parameters !== undefined && (typeof parameters !== 'object' || parameters === null || Array.isArray(parameters)))
    throw wrong('has its parameters in an object');
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw wrong(`has no ${quoted(unknown)}`);
}
