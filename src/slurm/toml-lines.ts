/**
 * Finds keys in TOML text, to say in which line something is wrong: the parser gives values only. Good enough for
 * messages: a key that is not found (inside an inline table, say) has the line of what it is in.
 */
export class TomlLines {
  readonly #lines = new Map<string, number>();

  constructor(text: string) {
    let table: readonly string[] = [];
    let inString: '"""' | "'''" | null = null;
    for (const [index, line] of text.split('\n').entries()) {
      if (inString !== null) {
        if (line.includes(inString)) inString = null;
        continue;
      }
      const header = /^\s*\[\[?([^[\]]+)\]\]?\s*(?:#.*)?$/.exec(line);
      const assignment =
        /^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=(.*)$/.exec(line);
      if (header?.[1] !== undefined) {
        table = keys(header[1]);
        this.#note(table, index + 1);
      } else if (assignment?.[1] !== undefined) {
        this.#note([...table, ...keys(assignment[1])], index + 1);
        const value = (assignment[2] ?? '').trim();
        for (const quote of ['"""', "'''"] as const) {
          if (value.startsWith(quote) && !value.slice(3).includes(quote)) inString = quote;
        }
      }
    }
  }

  /** The line (from 1) of a key, or of the closest table that holds it. */
  of(path: readonly PropertyKey[]): number {
    for (let length = path.length; length > 0; length -= 1) {
      const line = this.#lines.get(path.slice(0, length).map(String).join('\0'));
      if (line !== undefined) return line;
    }
    return 1;
  }

  #note(path: readonly string[], line: number): void {
    for (let length = 1; length <= path.length; length += 1) {
      const key = path.slice(0, length).join('\0');
      if (!this.#lines.has(key)) this.#lines.set(key, line);
    }
  }
}

function keys(text: string): readonly string[] {
  return [...text.matchAll(/"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)/g)].map(
    (match) => match[1] ?? match[2] ?? match[3] ?? '',
  );
}

/** The known key that a mistyped one is nearest to, or null if none is near. */
export function nearestKey(key: string, known: readonly string[]): string | null {
  let best: string | null = null;
  let bestDistance = Math.max(2, Math.floor(key.length / 3)) + 1;
  for (const candidate of known) {
    const typed = key.toLowerCase();
    const begun = typed.length > 2 && (candidate.startsWith(typed) || typed.startsWith(candidate));
    const distance = begun ? 1 : editDistance(typed, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
