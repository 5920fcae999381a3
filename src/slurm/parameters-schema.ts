import { readFile } from 'node:fs/promises';
import { Ajv } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { z } from 'zod';

export type ParametersSchema =
  | { readonly kind: 'ok'; readonly schema: Readonly<Record<string, unknown>> }
  | { readonly kind: 'invalid'; readonly problem: string };

const SchemaObject = z.record(z.string(), z.unknown());

/**
 * Reads a JSON Schema file and compiles it once, so that a mistake in it is found at start. Draft 2020-12, or draft 7
 * where `$schema` says so.
 */
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
    const draft7 = typeof schema.data['$schema'] === 'string' && schema.data['$schema'].includes('draft-07');
    const ajv = draft7 ? new Ajv({ strict: false }) : new Ajv2020({ strict: false });
    ajv.compile(schema.data);
  } catch (error) {
    return invalid(`is not a JSON Schema: ${error instanceof Error ? error.message : String(error)}`);
  }
  return { kind: 'ok', schema: schema.data };
}
