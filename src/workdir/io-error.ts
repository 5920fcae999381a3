/** A file system call that failed for a reason that may pass: nothing is known, and the caller tries again. */
export interface IoFailure {
  readonly kind: 'io';
  /** For people: what was being done, on which path, and the system's own words. */
  readonly detail: string;
}

// By shape, not by `instanceof Error`: what Node's own modules throw is of another realm inside a VM context.
const field = (error: unknown, name: 'code' | 'message'): string | null => {
  if (typeof error !== 'object' || error === null || !(name in error)) return null;
  const value: unknown = Reflect.get(error, name);
  return typeof value === 'string' ? value : null;
};

/** The errno name (`ENOENT`, …) of what a `node:fs` call threw; null if it is something else, as `ERR_INVALID_ARG_VALUE`. */
export function errnoOf(error: unknown): string | null {
  const code = field(error, 'code');
  return code !== null && /^E[A-Z0-9]+$/.test(code) ? code : null;
}

/** One line for people. */
export const messageOf = (error: unknown): string => field(error, 'message') ?? String(error);

/** Turns what a file system call threw into an answer. Rethrows what did not come from the file system. */
export function ioFailure(doing: string, error: unknown): IoFailure {
  const errno = errnoOf(error);
  if (errno === null) throw error;
  const hint = errno === 'ENOSPC' || errno === 'EDQUOT' ? ' (the disk is full or a quota is used up)' : '';
  return { kind: 'io', detail: `${doing}: ${messageOf(error)}${hint}` };
}
