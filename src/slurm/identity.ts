import type { WatchItem } from '../backend.js';
import type { Token } from '../machines/vocabulary.js';

/**
 * How far the clocks of the submit host and the controller may be apart. A row counts only if it was submitted no
 * earlier than the job (INV-13); a requeue moves a row's submit time forward, never back.
 */
export const CLOCK_SLACK_MS = 10 * 60_000;

const TOKEN_LENGTH = 26;
const TOKEN = /^[0-9a-hjkmnp-tv-z]{26}$/;

/** The name of a job at the scheduler: what it is found by. The comment carries the same text as a second proof. */
export const jobName = (prefix: string, token: Token): string => `${prefix}-${token}`;

/** Reads tokens out of names. `prefix` is the site's `job_name_prefix`. */
export class TokenReader {
  readonly #start: string;
  readonly #length: number;
  readonly #anywhere: RegExp;

  constructor(prefix: string) {
    this.#start = `${prefix}-`;
    this.#length = this.#start.length + TOKEN_LENGTH;
    // A prefix is letters, digits, '.', '_' and '-': of these only '.' means something to a pattern.
    this.#anywhere = new RegExp(`${this.#start.replaceAll('.', '\\.')}([0-9a-hjkmnp-tv-z]{26})`, 'g');
  }

  /** The token of a name that is wholly `<prefix>-<token>`, else null. */
  exact(name: string): string | null {
    if (name.length !== this.#length || !name.startsWith(this.#start)) return null;
    const token = name.slice(this.#start.length);
    return TOKEN.test(token) ? token : null;
  }

  /**
   * The token that a row belongs to: by its name, and by its comment where the name carries none (somebody renamed the
   * job). A name that carries another job's token is never overruled.
   */
  of(name: string, comment: string): string | null {
    return this.exact(name) ?? this.exact(comment);
  }

  /** Every token in a text that could not be read as a row: what is said about these jobs is not known. */
  within(text: string): readonly string[] {
    return [...text.matchAll(this.#anywhere)].flatMap((match) => match[1] ?? []);
  }
}

/** Is a row with our token young enough to be ours? A row without a submit time proves nothing. */
export function isSubmittedSince(submittedAtMs: number | null, item: WatchItem): boolean {
  return submittedAtMs !== null && submittedAtMs >= item.sinceMs - CLOCK_SLACK_MS;
}

/** What is said about a job whose row cannot be told to be its own, and, in one text for all, about the source. */
export interface Doubt {
  readonly detail: string;
  readonly oddity: string;
}

/**
 * Of a row with our token that is not `isSubmittedSince`. It is no proof of a job, and less than ever of its absence:
 * nobody else makes up a token, so the likely reason is a clock that is wrong, and the job may be running.
 */
export function doubtOf(
  row: { readonly id: string; readonly submittedAtMs: number | null },
  source: 'the queue' | 'accounting',
  item: WatchItem,
): Doubt {
  if (row.submittedAtMs === null) {
    const oddity = `${source} shows jobs of ours without a submit time; nothing is concluded about them`;
    return { detail: `${source} shows job ${row.id} without a submit time`, oddity };
  }
  const disagree = 'the clocks of gateway and cluster disagree';
  const submitted = new Date(row.submittedAtMs).toISOString();
  const since = new Date(item.sinceMs).toISOString();
  return {
    detail: `${disagree}: by ${source} job ${row.id} was submitted at ${submitted}, by ours not before ${since}`,
    oddity: `${disagree}: ${source} shows jobs of ours as older than they are; nothing is concluded about them`,
  };
}
