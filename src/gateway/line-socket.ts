import type { Socket } from 'node:net';
import type { Clock } from '../runtime/clock.js';
import { BoundedLines } from './bounded-lines.js';

/** How long a peer has to read its last line and close its end. */
const LINGER_MS = 1_000;

interface Reading {
  readonly limitBytes: number;
  readonly line: (text: string) => void;
  readonly tooLong: () => void;
}

/** A connection that speaks in lines. What a line means is set by `read`, and changes as the conversation goes on. */
export class LineSocket {
  readonly #socket: Socket;
  readonly #clock: Clock;
  readonly #lines: BoundedLines;
  #reading: Reading | null = null;
  #onClosed: ((detail: string) => void) | null = null;
  #closed = false;

  constructor(socket: Socket, limitBytes: number, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
    this.#lines = new BoundedLines(limitBytes);
    socket.on('data', (bytes: Buffer) => this.#take(bytes));
    socket.on('error', (error) => this.#over(error.message));
    socket.once('close', () => this.#over('the other end closed the connection'));
  }

  /** From the next line on, until the next call. */
  read(reading: Reading): void {
    this.#lines.limitBytes = reading.limitBytes;
    this.#reading = reading;
  }

  /** Calls back once, when nothing comes or goes any more; only the last listener counts. */
  onClosed(listener: (detail: string) => void): void {
    this.#onClosed = listener;
  }

  send(line: string): void {
    if (!this.#closed) this.#socket.write(`${line}\n`);
  }

  /** Nothing that comes after this is read. The peer gets to see the last line, if there is one. */
  close(detail: string, lastLine: string | null = null): void {
    if (this.#closed) return;
    const socket = this.#socket;
    if (lastLine === null) {
      socket.destroy();
    } else {
      // Destroyed at once, what it still sends would reset the connection, and the peer might not see the line.
      const gone = new AbortController();
      socket.once('close', () => gone.abort());
      socket.end(`${lastLine}\n`);
      void this.#clock.sleep(LINGER_MS, gone.signal).then(() => socket.destroy());
    }
    this.#over(detail);
  }

  #take(bytes: Buffer): void {
    if (this.#closed) return;
    const fits = this.#lines.push(bytes, (line) => {
      this.#reading?.line(line);
      return !this.#closed;
    });
    if (!fits) this.#reading?.tooLong();
  }

  #over(detail: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#onClosed?.(detail);
  }
}
