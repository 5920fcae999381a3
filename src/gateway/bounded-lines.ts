const NEWLINE = 10;

/** Splits a stream of bytes into lines, and never holds more than one line's limit. */
export class BoundedLines {
  /** Bytes of a line without its end. Applies to the line that is being read. */
  limitBytes: number;
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }

  /**
   * Calls back with each line that the bytes complete, without its end. `take` answers whether to go on: what comes after
   * is not looked at otherwise. False: a line was longer than its limit; nothing may be pushed after that.
   */
  push(bytes: Buffer, take: (line: string) => boolean): boolean {
    let rest = bytes;
    for (;;) {
      const end = rest.indexOf(NEWLINE);
      const lineBytes = this.#heldBytes + (end < 0 ? rest.length : end);
      if (lineBytes > this.limitBytes) return false;
      if (end < 0) break;
      const line = Buffer.concat([...this.#held, rest.subarray(0, end)]).toString('utf8');
      this.#held = [];
      this.#heldBytes = 0;
      rest = rest.subarray(end + 1);
      if (!take(line)) return true;
    }
    if (rest.length > 0) this.#held.push(rest);
    this.#heldBytes += rest.length;
    return true;
  }
}
