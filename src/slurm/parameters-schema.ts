import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { compileParametersCheck } from '../parameters.js';
import { errnoOf, messageOf } from '../workdir/io-error.js';

export type ParametersSchema =
  | { readonly kind: 'ok'; readonly schema: Readonly<Record<string, unknown>> }
  | { readonly kind: 'invalid'; readonly problem: string };

const SchemaObject = z.record(z.string(), z.unknown());

/** Reads a JSON Schema file (draft 2020-12) and compiles it once, so that a mistake in it is found at start. */
export async function readParametersSchema(path: string): Promise<ParametersSchema> {
  const invalid = (what: string): ParametersSchema => ({ kind: 'invalid', problem: `the JSON Schema ${path} ${what}` });
  let text;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    return invalid(errnoOf(error) === 'ENOENT' ? 'is missing' : `cannot be read: ${messageOf(error)}`);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return invalid(`is not JSON: ${messageOf(error)}`);
  }
  const schema = SchemaObject.safeParse(value);
  if (!schema.success) return invalid('is not an object');
  try {
    compileParametersCheck(schema.data);
  } catch (error) {
    return invalid(`is not a JSON Schema: ${messageOf(error)}`);
  }
  return { kind: 'ok', schema: schema.data };
}
