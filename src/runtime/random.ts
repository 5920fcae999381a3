import { randomBytes } from 'node:crypto';

/** Chance as the shell hands it to the rest; the simulation passes a seeded one. */
export interface Random {
  bytes(count: number): Uint8Array;
}

export const systemRandom: Random = { bytes: (count) => randomBytes(count) };

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/**
 * 26 characters: 48 bits of `nowMs`, 80 bits of chance, in Crockford's base32 (the ULID layout, in lower case), so ids
 * sort by the time they were made and pass unharmed through a scheduler's output.
 */
export function uniquePart(nowMs: number, random: Random): string {
  let time = nowMs;
  let text = '';
  for (let i = 0; i < 10; i += 1) {
    text = (ALPHABET[time % 32] ?? '') + text;
    time = Math.floor(time / 32);
  }
  let bits = 0;
  let held = 0;
  for (const byte of random.bytes(10)) {
    held = held * 256 + byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      const digit = Math.floor(held / 2 ** bits);
      held -= digit * 2 ** bits;
      text += ALPHABET[digit] ?? '';
    }
  }
  return text;
}
