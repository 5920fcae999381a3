import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { compileParametersCheck } from '../parameters.js';

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
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    return invalid(code === 'ENOENT' ? 'is missing' : `cannot be read (${code})`);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return invalid(`is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  const schema = SchemaObject.safeParse(value);
  if (!schema.success) return invalid('is not an object');
  try {
    compileParametersCheck(schema.data);
  } catch (error) {
    return invalid(`is not a JSON Schema: ${error instanceof Error ? error.message : String(error)}`);
  }
  return { kind: 'ok', schema: schema.data };
}
