/** The arguments of a command line, taken apart: what it was asked for, in exactly the forms that the backend makes. */
export class Argv {
  readonly #text: string;
  readonly #left: string[];

  constructor(command: string, argv: readonly string[]) {
    this.#text = `${command} ${argv.join(' ')}`;
    this.#left = [...argv];
  }

  flag(name: string): boolean {
    const at = this.#left.indexOf(name);
    if (at === -1) return false;
    this.#left.splice(at, 1);
    return true;
  }

  /** The value of `--name=value`, or null. */
  option(name: string): string | null {
    const at = this.#left.findIndex((word) => word.startsWith(`${name}=`));
    if (at === -1) return null;
    const [word = ''] = this.#left.splice(at, 1);
    return word.slice(name.length + 1);
  }

  needFlag(name: string): void {
    if (!this.flag(name)) throw new Error(`the scripted scheduler misses ${name} in: ${this.#text}`);
  }

  need(name: string): string {
    const value = this.option(name);
    if (value === null) throw new Error(`the scripted scheduler misses ${name}= in: ${this.#text}`);
    return value;
  }

  /** What is left: words without a name. Throws on an option that nobody took: a form that the script does not know. */
  rest(): readonly string[] {
    const unknown = this.#left.find((word) => word.startsWith('-'));
    if (unknown !== undefined) throw new Error(`the scripted scheduler does not know ${unknown} in: ${this.#text}`);
    return this.#left;
  }
}
