import { PIECE_BYTES_MAX, type OutputPiece, type OutputStream } from './session-api.js';

/** Bytes of each stream, from its beginning. */
export interface Offsets {
  readonly stdout: number;
  readonly stderr: number;
}

interface Held {
  readonly stream: OutputStream;
  readonly offset: number;
  readonly bytes: Buffer;
}

/** On top of its bytes: what a piece takes in memory and in an answer. So a million pieces of a byte are no way around. */
const PIECE_COST = 256;

/** When the pieces of an answer have come to this, the others wait for the next one. */
const ANSWER_COST = 1024 * 1024;

/** The most that one piece adds to a buffer's cost. */
export const PIECE_COST_MAX = PIECE_BYTES_MAX + PIECE_COST;

/** A step's output on its way from its worker to its reader: what has come, less what the reader says that it has. */
export class StepBuffer {
  #pieces: Held[] = [];
  #cost = 0;
  readonly #taken: Record<OutputStream, number | null> = { stdout: null, stderr: null };

  /** Bytes, with what each piece takes beside them. */
  get cost(): number {
    return this.#cost;
  }

  /** How much of each stream has been taken over from the worker. */
  get taken(): Offsets {
    return { stdout: this.#taken.stdout ?? 0, stderr: this.#taken.stderr ?? 0 };
  }

  /**
   * Takes a piece that continues its stream, or what is new of it. False: it does not continue it, or costs more than
   * `room`. The first piece of a stream may start anywhere: the reader sees from its offset what is missing.
   */
  offer({ stream, offset, data }: OutputPiece, room: number): boolean {
    const known = this.#taken[stream];
    const from = known ?? offset;
    if (offset > from) return false;
    const all = Buffer.from(data, 'base64');
    const bytes = all.subarray(Math.min(all.length, from - offset));
    if (bytes.length === 0 && known !== null) return true;
    const cost = bytes.length + PIECE_COST;
    if (cost > room) return false;
    this.#pieces.push({ stream, offset: from, bytes });
    this.#cost += cost;
    this.#taken[stream] = from + bytes.length;
    return true;
  }

  /** Drops what the reader has. */
  confirm(read: Offsets): void {
    this.#pieces = this.#pieces.filter(({ stream, offset, bytes }) => offset + bytes.length > read[stream]);
    this.#cost = this.#pieces.reduce((sum, { bytes }) => sum + bytes.length + PIECE_COST, 0);
  }

  /** What follows `read`, in the order in which it came; `isAll`: nothing was left for the next answer. */
  after(read: Offsets): { readonly pieces: OutputPiece[]; readonly isAll: boolean } {
    const at = { ...read };
    const pieces: OutputPiece[] = [];
    let cost = 0;
    for (const { stream, offset, bytes } of this.#pieces) {
      const end = offset + bytes.length;
      if (end <= at[stream]) continue;
      if (cost >= ANSWER_COST) return { pieces, isAll: false };
      const start = Math.max(offset, at[stream]);
      const fresh = bytes.subarray(start - offset);
      pieces.push({ stream, offset: start, data: fresh.toString('base64') });
      cost += fresh.length + PIECE_COST;
      at[stream] = end;
    }
    return { pieces, isAll: true };
  }
}
