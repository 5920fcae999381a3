import { z } from 'zod';

/** Longest free text an event keeps, in UTF-16 units. Longer texts are cut by the writer (`clip`), not refused. */
export const TEXT_MAX = 4000;

const CUT_MARK = '… [cut]';

/** The text itself, or its beginning with a mark, at most `max` UTF-16 units and never half a surrogate pair. */
export function clip(text: string, max: number = TEXT_MAX): string {
  if (text.length <= max) return text;
  const kept = text.slice(0, Math.max(0, max - CUT_MARK.length));
  return (/[\uD800-\uDBFF]$/.test(kept) ? kept.slice(0, -1) : kept) + CUT_MARK;
}

/** `clip` for a backend's own words: at most `DIAGNOSTICS_MAX` entries, each value cut. */
export function clipDiagnostics(words: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(words)
      .slice(0, DIAGNOSTICS_MAX)
      .map(([key, value]) => [clip(key, NAME_MAX), clip(value)]),
  );
}

export const NAME_MAX = 200;
export const DIAGNOSTICS_MAX = 100;
export const TEXTS_MAX = 100;

/** Unix epoch ms, or a length of time in ms. */
export const Milliseconds = z.int().nonnegative();
export const Count = z.int().nonnegative();
/** For people. */
export const Text = z.string().max(TEXT_MAX);
/** Credential ids, workers, sites, limits: short, not empty. */
export const Name = z.string().min(1).max(NAME_MAX);
export const Texts = z.array(Text).max(TEXTS_MAX);
export const Diagnostics = z
  .record(z.string().max(NAME_MAX), Text)
  .refine((words) => Object.keys(words).length <= DIAGNOSTICS_MAX, `at most ${String(DIAGNOSTICS_MAX)} entries`);
/** JSON of somebody else's making. `undefined` is refused: JSON would drop the key. */
export const Json = z.unknown().refine((value): boolean => value !== undefined, 'missing');
export const LossReason = z.enum(['NOT_FOUND', 'NODE_FAILED', 'PREEMPTED']);

/** The head of every event shape of version 1: its type, `v`, and when the writer's clock said it happened. */
export const head = <T extends string>(type: T) => ({ type: z.literal(type), v: z.literal(1), atMs: Milliseconds });

type Unread<T> = T extends string | number | boolean | null | undefined
  ? T
  : T extends readonly (infer Item)[]
    ? Unread<Item>[]
    : T extends object
      ? { -readonly [Key in keyof T]: Unread<T[Key]> }
      : T;

// Two types are identical when a conditional type can not tell them apart.
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

/**
 * Ties a schema to the type that a machine owns: compiles only if the schema's output is that type, in both directions,
 * apart from `readonly`.
 */
export const describes =
  <T>() =>
  <S extends z.ZodType>(
    schema: S & (Same<Unread<z.output<S>>, Unread<T>> extends true ? unknown : { schemaDiffersFrom: T }),
  ): S =>
    schema;
