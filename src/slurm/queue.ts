import type { SeenAnswer } from '../backend.js';
import type { TokenReader } from './identity.js';
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

export interface QueueSnapshot {
  readonly byToken: ReadonlyMap<string, readonly QueueRow[]>;
  /** Tokens that stand in something that could not be read: nothing is known about these jobs. */
  readonly garbled: ReadonlySet<string>;
  /** Each odd thing once, when it turns up. */
  readonly oddities: readonly string[];
}

const NO_TOKENS: ReadonlySet<string> = new Set();

type Line =
  | { readonly kind: 'ours'; readonly rows: readonly [QueueRow] }
  | { readonly kind: 'foreign' }
  | { readonly kind: 'garbled'; readonly tokens: readonly string[]; readonly oddity: string };

const FOREIGN: Line = { kind: 'foreign' };

/** Seconds since the epoch as ms; `N/A`, `NONE`, `Unknown`, empty and anything else is null. */
export function epochMs(text: string): number | null {
  return /^[1-9][0-9]{0,11}$/.test(text) ? Number(text) * 1000 : null;
}

/**
 * Reads squeue's answers. A line that has not changed since the last one is not read again: with 10,000 jobs that is
 * the difference between 40 and 10 ms. Memory: about one answer's text and a small object per job of ours.
 */
export class QueueReader {
  readonly #tokens: TokenReader;
  readonly #cluster: string | null;
  #known: ReadonlyMap<string, Line> = new Map();

  constructor(tokens: TokenReader, cluster: string | null) {
    this.#tokens = tokens;
    this.#cluster = cluster;
  }

  /** `stdout` is empty or ends with a newline. Any bytes may be in it: never throws. */
  read(stdout: string): QueueSnapshot {
    const known = new Map<string, Line>();
    const byToken = new Map<string, readonly QueueRow[]>();
    const oddities: string[] = [];
    let garbled: Set<string> | null = null;
    let start = 0;
    for (let end = stdout.indexOf('\n'); end !== -1; end = stdout.indexOf('\n', start)) {
      const text = stdout.slice(start, end);
      start = end + 1;
      if (text === '') continue;
      const before = this.#known.get(text);
      const line = before ?? this.#parse(text);
      known.set(text, line);
      if (line.kind === 'ours') {
        const [row] = line.rows;
        const others = byToken.get(row.token);
        byToken.set(row.token, others === undefined ? line.rows : [...others, row]);
      } else if (line.kind === 'garbled') {
        garbled ??= new Set();
        for (const token of line.tokens) garbled.add(token);
        if (before === undefined) oddities.push(line.oddity);
      }
    }
    this.#known = known;
    return { byToken, garbled: garbled ?? NO_TOKENS, oddities };
  }

  #parse(text: string): Line {
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
      stateText,
      submittedAtMs: epochMs(submitted),
      endsAtMs: epochMs(ends),
      nodes,
      reason,
      token,
      answer: null,
    };
    return { kind: 'ours', rows: [row] };
  }

  #garbled(text: string, what: string): Line {
    return {
      kind: 'garbled',
      tokens: this.#tokens.within(text),
      oddity: `${what}: ${JSON.stringify(text.slice(0, 200))}`,
    };
  }
}
