import type { Clock } from '../runtime/clock.js';
import type { Random } from '../runtime/random.js';

/** Where text goes, or bytes as they are. Resolves when the system took it; rejects with the stream's error (`EPIPE`, …). */
export interface Sink {
  write(text: string | Uint8Array): Promise<void>;
  /** A terminal: tables may be cut to its width, JSON is indented. */
  readonly isTerminal: boolean;
  readonly columns: number;
}

/** Everything a command touches of the process that it runs in: tests pass their own. */
export interface Io {
  readonly stdout: Sink;
  readonly stderr: Sink;
  readonly stdin: AsyncIterable<Uint8Array>;
  /** Nobody waits for more of it: whoever still does gets an error, and it does not keep the process alive. */
  closeStdin(): void;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Absolute. */
  readonly cwd: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Aborts on the first SIGINT or SIGTERM. */
  readonly signal: AbortSignal;
  /**
   * Runs when the process ends because nobody reads its output any more; given up after 2 s. Returns what takes it back.
   * A test's Io has none.
   */
  readonly beforeExit?: (run: () => Promise<void>) => () => void;
}
