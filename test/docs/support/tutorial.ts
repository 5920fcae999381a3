/**
 * A page whose sh blocks are to be given in order, in one shell. A text block after one is all that it shows then, on
 * both streams; without a text block it shows nothing.
 */
export interface Block {
  /** Its section and its first command. */
  readonly title: string;
  readonly commands: string;
  readonly shown: string;
}

const FENCE = /^```/;

export function readBlocks(page: string): readonly Block[] {
  const blocks: Block[] = [];
  let section = '';
  let fenced: { readonly language: string; readonly lines: string[] } | null = null;
  for (const line of page.split('\n')) {
    if (fenced === null) {
      if (FENCE.test(line)) fenced = { language: line.slice(3).trim(), lines: [] };
      else section = /^#+ (.*)/.exec(line)?.[1] ?? section;
    } else if (FENCE.test(line)) {
      take(blocks, section, fenced.language, fenced.lines);
      fenced = null;
    } else {
      fenced.lines.push(line);
    }
  }
  return blocks;
}

function take(blocks: Block[], section: string, language: string, lines: readonly string[]): void {
  const text = lines.map((line) => `${line}\n`).join('');
  if (language === 'sh') {
    blocks.push({ title: `${section}: ${lines[0] ?? ''}`, commands: text, shown: '' });
    return;
  }
  const before = blocks.at(-1);
  if (language !== 'text' || before === undefined || before.shown !== '') {
    throw new Error(`in "${section}": a block of "${language}" that belongs to no command`);
  }
  blocks[blocks.length - 1] = { ...before, shown: text };
}

/**
 * Whether the output is what the page shows. `…` is anything within a line; a line that is nothing else, any number of
 * lines. How many blanks there are between words does not count: columns are as wide as what is in them.
 */
export function isShown(shown: string, seen: string): boolean {
  const pattern = linesOf(shown).map((line) =>
    line === '…' ? '(?:.*\\n)*?' : `${line.split('…').map(literally).join('.*')}\\n`,
  );
  const text = linesOf(seen).map((line) => `${line}\n`);
  return new RegExp(`^${pattern.join('')}$`).test(text.join(''));
}

const linesOf = (text: string): readonly string[] =>
  text === ''
    ? []
    : text
        .replace(/\n$/, '')
        .split('\n')
        .map((line) => line.replace(/ +/g, ' ').trimEnd());

const literally = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
