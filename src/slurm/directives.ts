/**
 * The `#SBATCH` lines of a script, as sbatch reads them: from the second line on, as long as lines are comments or
 * blank. `problems` names those that would break what this backend relies on.
 */
export interface Directives {
  readonly lines: readonly string[];
  readonly problems: readonly string[];
}

/** Long options that a profile's script may not use, and why. Abbreviations count: sbatch takes those too. */
const FORBIDDEN: Readonly<Record<string, string>> = {
  array: 'one task is one job',
  wait: 'the submission would last as long as the job',
  'test-only': 'nothing would be submitted',
  quiet: 'the job id would not be printed',
  parsable: 'the submission already asks for it',
  dependency: 'it is used to keep two jobs of one task from running at once',
  export: 'the environment of a job is built by the worker: use [profiles.NAME.environment]',
  'export-file': 'the environment of a job is built by the worker: use [profiles.NAME.environment]',
  'get-user-env': 'the environment of a job is built by the worker: use [profiles.NAME.environment]',
  clusters: 'use the key cluster of the profile, so that the job is looked for there',
  wrap: 'the script itself is what runs',
  uid: 'jobs run as the user of the worker',
  gid: 'jobs run as the user of the worker',
  help: 'nothing would be submitted',
  usage: 'nothing would be submitted',
  version: 'nothing would be submitted',
};

const FORBIDDEN_SHORT: Readonly<Record<string, string>> = {
  a: 'array',
  W: 'wait',
  Q: 'quiet',
  d: 'dependency',
  M: 'clusters',
  h: 'help',
  V: 'version',
};

/** Short options that take no value, so that others may follow in the same word. */
const FLAGS = new Set(['H', 'h', 'k', 'K', 'O', 'Q', 's', 'v', 'V', 'W', 'X']);

export function readDirectives(script: string): Directives {
  const lines: string[] = [];
  const problems: string[] = [];
  const all = script.split('\n');
  for (const [index, line] of all.entries()) {
    if (index === 0) continue;
    if (line.trim() !== '' && !line.startsWith('#')) break;
    if (!line.startsWith('#SBATCH')) continue;
    lines.push(line.trimEnd());
    for (const problem of problemsOf(line.slice('#SBATCH'.length)))
      problems.push(`line ${String(index + 1)}: ${problem}`);
  }
  return { lines, problems };
}

function problemsOf(text: string): readonly string[] {
  if (/[\u0000-\u0008\u000b-\u001f\u007f]/.test(text.replace(/\r$/, '')))
    return ['a control character in a #SBATCH line'];
  const words = splitWords(text);
  if (words[0] === 'hetjob' || words[0] === 'packjob' || words.includes(':'))
    return ['a job of several parts (hetjob): one task is one job'];
  return words.flatMap((word) => forbidden(word) ?? []);
}

function forbidden(word: string): string | null {
  if (word.startsWith('--')) {
    const name = word.slice(2).split('=', 1)[0] ?? '';
    const match = Object.keys(FORBIDDEN).find(
      (option) => option === name || (name.length > 1 && option.startsWith(name)),
    );
    return match === undefined ? null : `--${match} is not allowed in a profile: ${FORBIDDEN[match] ?? ''}`;
  }
  if (!word.startsWith('-')) return null;
  for (const letter of word.slice(1)) {
    const match = FORBIDDEN_SHORT[letter];
    if (match !== undefined) return `-${letter} (--${match}) is not allowed in a profile: ${FORBIDDEN[match] ?? ''}`;
    if (!FLAGS.has(letter)) return null;
  }
  return null;
}

/** Words as sbatch splits them: quotes and backslashes keep blanks, `#` starts a comment. */
function splitWords(text: string): readonly string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quote: string | null = null;
  for (let i = 0; i < text.length; i += 1) {
    const char = text[i] ?? '';
    if (char === '\\' && i + 1 < text.length) {
      word = (word ?? '') + (text[i + 1] ?? '');
      i += 1;
    } else if (quote !== null) {
      if (char === quote) quote = null;
      else word = (word ?? '') + char;
    } else if (char === '"' || char === "'") {
      quote = char;
      word ??= '';
    } else if (char === '#' && word === null) {
      break;
    } else if (/\s/.test(char)) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      word = (word ?? '') + char;
    }
  }
  if (word !== null) words.push(word);
  return words;
}
