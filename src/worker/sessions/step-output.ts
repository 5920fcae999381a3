import type { OutputPiece, OutputStream } from '../../coordinator/session-api.js';

/** Bytes of one piece on the wire, before base64. */
const PIECE_BYTES = 64 * 1024;

/** What the output of all steps of a worker may take together, bytes. */
export class OutputBudget {
  #freeBytes: number;

  constructor(limitBytes: number) {
    this.#freeBytes = limitBytes;
  }

  /** Gives as many of these bytes as there is room for. */
  take(bytes: number): number {
    const given = Math.min(bytes, Math.max(0, this.#freeBytes));
    this.#freeBytes -= given;
    return given;
  }

  giveBack(bytes: number): void {
    this.#freeBytes += bytes;
  }
}

interface Held {
  readonly stream: OutputStream;
  readonly offset: number;
  readonly bytes: Buffer;
}

/**
 * What a step has written and the coordinator has not taken yet. Both streams together are kept up to a limit; what is
 * beyond is counted and dropped, so that the step itself never waits (its pipes are drained all the time).
 */
export class StepOutput {
  readonly #limitBytes: number;
  readonly #budget: OutputBudget;
  #held: Held[] = [];
  readonly #next = { stdout: 0, stderr: 0 };
  #kept = 0;
  #dropped = 0;

  constructor(limitBytes: number, budget: OutputBudget) {
    this.#limitBytes = limitBytes;
    this.#budget = budget;
  }

  /** How much there was of each stream, less what was dropped. */
  get sizes(): Readonly<Record<OutputStream, number>> {
    return { ...this.#next };
  }

  get droppedBytes(): number {
    return this.#dropped;
  }

  get isEmpty(): boolean {
    return this.#held.length === 0;
  }

  /** How many pieces are held. */
  get count(): number {
    return this.#held.length;
  }

  add(stream: OutputStream, bytes: Buffer): void {
    // Where something was dropped nothing follows: a hole in the middle would look like output.
    const room = this.#dropped > 0 ? 0 : Math.min(bytes.length, this.#limitBytes - this.#kept);
    const kept = bytes.subarray(0, this.#budget.take(room));
    this.#dropped += bytes.length - kept.length;
    this.#kept += kept.length;
    for (let from = 0; from < kept.length; from += PIECE_BYTES) {
      // A copy: what a stream hands out may be a window of a larger block that would be kept with it.
      const part = Buffer.from(kept.subarray(from, from + PIECE_BYTES));
      if (!this.#grow(stream, part)) this.#held.push({ stream, offset: this.#next[stream], bytes: part });
      this.#next[stream] += part.length;
    }
  }

  /** Small writes that follow each other become one piece. */
  #grow(stream: OutputStream, part: Buffer): boolean {
    const last = this.#held.at(-1);
    if (last?.stream !== stream || last.bytes.length + part.length > PIECE_BYTES) return false;
    this.#held[this.#held.length - 1] = { ...last, bytes: Buffer.concat([last.bytes, part]) };
    return true;
  }

  /** The oldest pieces, at most so many and so many bytes, but one if there is any. */
  pieces(count: number, limitBytes: number): readonly OutputPiece[] {
    const pieces: OutputPiece[] = [];
    let bytes = 0;
    for (const held of this.#held.slice(0, count)) {
      if (pieces.length > 0 && bytes + held.bytes.length > limitBytes) break;
      bytes += held.bytes.length;
      pieces.push({ stream: held.stream, offset: held.offset, data: held.bytes.toString('base64') });
    }
    return pieces;
  }

  /** Forgets what the coordinator has: all bytes of each stream before these. True: that was something. */
  taken(until: Readonly<Record<OutputStream, number>>): boolean {
    let freed = 0;
    this.#held = this.#held.flatMap((held) => {
      const drop = Math.min(held.bytes.length, until[held.stream] - held.offset);
      if (drop <= 0) return [held];
      freed += drop;
      if (drop === held.bytes.length) return [];
      return [{ stream: held.stream, offset: held.offset + drop, bytes: held.bytes.subarray(drop) }];
    });
    this.#budget.giveBack(freed);
    return freed > 0;
  }

  /** Nobody came for what is left: whoever still does sees from the sizes what is missing. */
  abandon(): void {
    this.taken(this.#next);
  }
}
