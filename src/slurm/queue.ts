import type { SeenAnswer } from '../backend.js';
import type { TokenReader } from './identity.js';
import { kept } from './kept.js';
import { parseState, type SlurmState } from './states.js';

/** Cannot occur in a row unless somebody puts it into a name on purpose; such a row has too many fields. */
const SEPARATOR = '\u001f';
/** id, state, submit time, end time, nodes, reason, name, comment: what people write comes last. */
const FIELDS = ['%i', '%T', '%V', '%e', '%N', '%r', '%j', '%k'] as const;
/** The header of these, as all three releases print it: what the self-test looks for. */
export const QUEUE_HEADER = ['JOBID', 'STATE', 'SUBMIT_TIME', 'END_TIME', 'NODELIST', 'REASON', 'NAME', 'COMMENT'].join(
  SEPARATOR,
);

/**
 * One squeue for every job of ours: all states, all partitions, also hidden ones (`-a`), told apart on our side. It
 * names its columns and its user, so that no setting of the account changes the answer. `header`: for the self-test.
 */
export function queueArgv(options: {
  readonly uid: number;
  readonly cluster: string | null;
  readonly header: boolean;
}) {
  return [
    ...(options.header ? [] : ['--noheader']),
    '--all',
    '--states=all',
    `--user=${String(options.uid)}`,
    ...(options.cluster === null ? [] : [`--clusters=${options.cluster}`]),
    `--format=${FIELDS.join(SEPARATOR)}`,
  ];
}

/** One job of ours in the queue. */
export interface QueueRow {
  readonly id: string;
  readonly cluster: string | null;
  readonly state: SlurmState;
  readonly stateText: string;
  /** Unix epoch ms. A requeue changes it. */
  readonly submittedAtMs: number | null;
  readonly endsAtMs: number | null;
  readonly nodes: string;
  readonly reason: string;
  readonly token: string;
  /** The answer that was made of this row, kept as long as the row stays the same. */
  answer: SeenAnswer | null;
}

/** What one answer said. Valid until the next answer of the same reader is read. */
export interface QueueSnapshot {
  readonly byToken: ReadonlyMap<string, readonly QueueRow[]>;
  /** Tokens that stand in something that could not be read: nothing is known about these jobs. */
  readonly garbled: ReadonlySet<string>;
  /** Each odd thing once, when it turns up. */
  readonly oddities: readonly string[];
  /** Whether this id, or an array or several parts under it, belongs to another job than the token's (INV-13). */
  readonly isForeign: (id: string, token: string) => boolean;
}

type Meaning =
  | { readonly kind: 'ours'; readonly rows: readonly [QueueRow] }
  | { readonly kind: 'foreign' }
  | { readonly kind: 'garbled'; readonly tokens: readonly string[]; readonly oddity: string };

/** One line of the last answer and what it meant. */
interface Line {
  readonly text: string;
  readonly meaning: Meaning;
  /** The number of the answer that it was seen in last. */
  seenIn: number;
}

function tokensOf(meaning: Meaning): readonly string[] {
  if (meaning.kind === 'garbled') return meaning.tokens;
  return meaning.kind === 'ours' ? [meaning.rows[0].token] : [];
}

const FOREIGN: Meaning = { kind: 'foreign' };
const NEWLINE = '\n';

/** Seconds since the epoch as ms; `N/A`, `NONE`, `Unknown`, empty and anything else is null. */
export function epochMs(text: string): number | null {
  return /^[1-9][0-9]{0,11}$/.test(text) ? Number(text) * 1000 : null;
}

/**
 * Reads squeue's answers. A line that is the same as in the last one, found by the number it starts with, is not read
 * again: with 10,000 jobs that is the difference between 40 and 4 ms. Memory: each line's text once, and a small object
 * per job of ours.
 */
export class QueueReader {
  readonly #tokens: TokenReader;
  readonly #cluster: string | null;
  readonly #byId = new Map<number, Line>();
  /** Lines that do not start with a plain id: parts of arrays, and what is no row at all. */
  readonly #others = new Map<string, Line>();
  readonly #byToken = new Map<string, readonly QueueRow[]>();
  readonly #odd = new Set<Line>();
  /** One copy of each state, reason and list of nodes. */
  readonly #word = kept((text) => text);
  /** Ids that the last answer listed twice. */
  #twice: ReadonlySet<number> = new Set();
  #answers = 0;

  constructor(tokens: TokenReader, cluster: string | null) {
    this.#tokens = tokens;
    this.#cluster = cluster;
  }

  /** `stdout` is empty or ends with a newline. Any bytes may be in it: never throws. */
  read(stdout: string): QueueSnapshot {
    this.#answers += 1;
    const answer = this.#answers;
    const oddities: string[] = [];
    const twice = new Set<number>();
    let lines = 0;
    let start = 0;
    for (let end = stdout.indexOf(NEWLINE); end !== -1; end = stdout.indexOf(NEWLINE, start)) {
      const from = start;
      start = end + 1;
      if (end === from) continue;
      const id = leadingId(stdout, from);
      const known = id === null ? this.#others.get(stdout.slice(from, end)) : this.#byId.get(id);
      if (known?.text.length === end - from && stdout.startsWith(known.text, from)) {
        // The same line a second time says nothing new.
        if (known.seenIn !== answer) lines += 1;
        known.seenIn = answer;
        continue;
      }
      // A copy: a slice would keep the whole answer in memory for as long as the row lives.
      const text = Buffer.from(stdout.slice(from, end), 'utf8').toString('utf8');
      if (known?.seenIn === answer && id !== null) {
        // Its text is that of no line, so that neither of the two is taken for known in the next answer.
        const tokens = [...tokensOf(known.meaning), ...this.#tokens.within(text)];
        const oddity = `two queue rows with the id ${String(id)}`;
        this.#replace(id, known, { text: '', meaning: { kind: 'garbled', tokens, oddity }, seenIn: answer });
        if (!this.#twice.has(id) && !twice.has(id)) oddities.push(oddity);
        twice.add(id);
        continue;
      }
      lines += 1;
      const meaning = this.#parse(text);
      this.#replace(id, known, { text, meaning, seenIn: answer });
      if (meaning.kind === 'garbled') oddities.push(meaning.oddity);
    }
    this.#twice = twice;
    if (lines !== this.#byId.size + this.#others.size) this.#forget(answer);
    return {
      byToken: this.#byToken,
      garbled: this.#garbledTokens(),
      oddities,
      isForeign: (id, token) => this.#isForeign(id, token),
    };
  }

  #replace(id: number | null, before: Line | undefined, line: Line): void {
    if (before !== undefined) this.#drop(before);
    if (id === null) this.#others.set(line.text, line);
    else this.#byId.set(id, line);
    if (line.meaning.kind === 'garbled') this.#odd.add(line);
    if (line.meaning.kind !== 'ours') return;
    const [row] = line.meaning.rows;
    const others = this.#byToken.get(row.token);
    this.#byToken.set(row.token, others === undefined ? line.meaning.rows : [...others, row]);
  }

  #drop(line: Line): void {
    const { meaning } = line;
    this.#odd.delete(line);
    if (meaning.kind !== 'ours') return;
    const [row] = meaning.rows;
    const left = (this.#byToken.get(row.token) ?? []).filter((one) => one !== row);
    if (left.length === 0) this.#byToken.delete(row.token);
    else this.#byToken.set(row.token, left);
  }

  /** Drops what the last answer did not say any more. */
  #forget(answer: number): void {
    for (const [key, line] of this.#byId) {
      if (line.seenIn === answer) continue;
      this.#byId.delete(key);
      this.#drop(line);
    }
    for (const [key, line] of this.#others) {
      if (line.seenIn === answer) continue;
      this.#others.delete(key);
      this.#drop(line);
    }
  }

  /**
   * A row that cannot be read is the token's only if the token is in it. Not seen: an element of an array or a part of a
   * job that is shown under another number (`100_1`, `100+1`) and has this one; that would take another column.
   */
  #isForeign(id: string, token: string): boolean {
    const meaning = this.#byId.get(Number(id))?.meaning;
    if (meaning !== undefined && !tokensOf(meaning).includes(token)) return true;
    for (const text of this.#others.keys()) if (text.startsWith(`${id}_`) || text.startsWith(`${id}+`)) return true;
    return false;
  }

  #garbledTokens(): ReadonlySet<string> {
    return new Set([...this.#odd].flatMap(({ meaning }) => tokensOf(meaning)));
  }

  #parse(text: string): Meaning {
    const fields = text.split(SEPARATOR);
    const [id, stateText, submitted, ends, nodes, reason, name, comment] = fields;
    if (
      fields.length !== FIELDS.length ||
      id === undefined ||
      stateText === undefined ||
      submitted === undefined ||
      ends === undefined ||
      nodes === undefined ||
      reason === undefined ||
      name === undefined ||
      comment === undefined
    ) {
      return this.#garbled(
        text,
        `a queue row with ${String(fields.length)} instead of ${String(FIELDS.length)} fields`,
      );
    }
    const token = this.#tokens.of(name, comment);
    if (token === null) return FOREIGN;
    // Our jobs are neither arrays nor parts of one job (`92_[4-5]`, `100+0`): such an id is not one of ours.
    if (!/^[1-9][0-9]{0,9}$/.test(id)) return this.#garbled(text, `a job with our name and the id ${id}`);
    const state = parseState(stateText);
    if (state === undefined) return this.#garbled(text, `job ${id} is in the unknown state ${stateText}`);
    const row: QueueRow = {
      id,
      cluster: this.#cluster,
      state,
      stateText: this.#word(stateText),
      submittedAtMs: epochMs(submitted),
      endsAtMs: epochMs(ends),
      nodes: this.#word(nodes),
      reason: this.#word(reason),
      token,
      answer: null,
    };
    return { kind: 'ours', rows: [row] };
  }

  #garbled(text: string, what: string): Meaning {
    return {
      kind: 'garbled',
      tokens: this.#tokens.within(text),
      oddity: `${what}: ${JSON.stringify(text.slice(0, 200))}`,
    };
  }
}

const DIGIT_0 = 48;
const SEPARATOR_CODE = SEPARATOR.charCodeAt(0);

/** The number before the first separator, if there is one of at most 10 digits. */
function leadingId(text: string, from: number): number | null {
  let id = 0;
  for (let at = from; at < from + 11; at += 1) {
    const code = text.charCodeAt(at);
    if (code === SEPARATOR_CODE) return at === from ? null : id;
    const digit = code - DIGIT_0;
    if (!(digit >= 0 && digit <= 9)) return null;
    id = id * 10 + digit;
  }
  return null;
}
