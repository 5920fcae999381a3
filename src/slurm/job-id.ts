/** What a submission printed: an id, nothing that is one, or more than one thing that is. */
export type PrintedId =
  | { readonly kind: 'one'; readonly id: string; readonly cluster: string | null }
  | { readonly kind: 'none' }
  | { readonly kind: 'several' };

/** `--parsable` prints the id, and `;cluster` where the cluster was named or is part of a federation. */
const ID_LINE = /^([1-9][0-9]{0,9})(?:;([A-Za-z0-9][A-Za-z0-9._-]{0,127}))?$/;

/**
 * Reads the standard output of `sbatch --parsable`. Only a line that is wholly an id counts: site plugins print advice
 * before and after it, and no word of that may ever become an id. A last line without its newline may be half an id.
 */
export function parsePrintedId(stdout: string): PrintedId {
  const lines = stdout.split('\n').slice(0, -1);
  const matches = lines.map((line) => ID_LINE.exec(line)).filter((match) => match !== null);
  const [match] = matches;
  if (match?.[1] === undefined) return { kind: 'none' };
  if (matches.length > 1) return { kind: 'several' };
  return { kind: 'one', id: match[1], cluster: match[2] ?? null };
}

/** An id in an answer that is not to be trusted otherwise, to be confirmed by token. */
export function hintFrom(stdout: string): string | null {
  const printed = parsePrintedId(stdout);
  return printed.kind === 'one' ? printed.id : null;
}
