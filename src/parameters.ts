import { Ajv2020, type ErrorObject } from 'ajv/dist/2020.js';

/** Returns what is wrong with a value, one line per fault with its JSON path; nothing when it fits. */
export type ParametersCheck = (value: unknown) => readonly string[];

const compiled = new WeakMap<object, ParametersCheck>();

/** The check of a schema object, compiled once. Throws like `compileParametersCheck`. */
export function parametersCheck(schema: Readonly<Record<string, unknown>>): ParametersCheck {
  const known = compiled.get(schema);
  if (known !== undefined) return known;
  const check = compileParametersCheck(schema);
  compiled.set(schema, check);
  return check;
}

/**
 * Compiles a profile's JSON Schema (draft 2020-12). Throws an Error that says what is wrong with the schema itself.
 * The standard validator for JSON Schema, which fastify brings anyway.
 */
export function compileParametersCheck(schema: Readonly<Record<string, unknown>>): ParametersCheck {
  const validate = new Ajv2020({ allErrors: true, strict: false, validateFormats: false }).compile(schema);
  return (value) => (validate(value) ? [] : (validate.errors ?? []).map(describe));
}

function describe(error: ErrorObject): string {
  const where = `parameters${error.instancePath}`;
  const extra = Object.values(error.params).filter((value): value is string => typeof value === 'string');
  return `${where} ${error.message ?? 'does not fit'}${extra.length > 0 ? ` (${extra.join(', ')})` : ''}`;
}
