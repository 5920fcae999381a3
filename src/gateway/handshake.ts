import type { Socket } from 'node:net';
import type { Clock } from '../runtime/clock.js';
import { LineSocket } from './line-socket.js';

export interface HandshakeLimits {
  /** Connections that have not shown a credential, at the same time. */
  readonly unfinishedMax: number;
  readonly firstLineMaxBytes: number;
  /** From the connection to the end of the first line; with TLS, its handshake is part of it. */
  readonly handshakeMs: number;
}

/** The one answer to everybody who does not come in. */
export const REFUSED = 'refused';

/** A connection that has not been let in. */
export interface Arrival {
  readonly address: string;
  readonly raw: Socket;
  readonly deadline: AbortController;
  /** null: TLS is not through. */
  lines: LineSocket | null;
}

interface HandshakeEvents {
  /** The first line is there; the arrival counts no longer. To be let in, or refused, before anything else is read. */
  readonly credential: (arrival: Arrival, lines: LineSocket, text: string) => void;
  /** `about`: what else is known of it, for the log. */
  readonly refused: (arrival: Arrival, reason: string, about: object) => void;
}

/**
 * Connections up to their first line: how many, how long, and how much of them is held.
 *
 * When there are too many, one makes room for the newcomer: the oldest of the address that has most of them. To turn the
 * newcomer away instead would let anybody who opens connections and says nothing keep all agents out. An agent shows its
 * credential as soon as it is connected, so it is among the oldest of its address only for a round trip; and who floods
 * from one machine pushes out their own. An agent that is pushed out all the same dials again after a moment.
 */
export class Handshakes {
  readonly #limits: HandshakeLimits;
  readonly #clock: Clock;
  readonly #events: HandshakeEvents;
  /** In the order of their arrival. */
  readonly #unfinished = new Set<Arrival>();
  /** Refused, and not closed by the other end yet. */
  readonly #leaving = new Set<Socket>();

  constructor(limits: HandshakeLimits, clock: Clock, events: HandshakeEvents) {
    this.#limits = limits;
    this.#clock = clock;
    this.#events = events;
  }

  get unfinished(): number {
    return this.#unfinished.size;
  }

  /** A connection is there; nothing is read from it before `listen`. */
  arrive(raw: Socket): Arrival {
    const arrival: Arrival = {
      address: raw.remoteAddress ?? 'unknown',
      raw,
      deadline: new AbortController(),
      lines: null,
    };
    if (this.#unfinished.size >= this.#limits.unfinishedMax) this.#makeRoom();
    this.#unfinished.add(arrival);
    raw.once('close', () => {
      this.#finish(arrival);
      this.#leaving.delete(raw);
    });
    void this.#clock.sleep(this.#limits.handshakeMs, arrival.deadline.signal).then(() => {
      this.#refuseUnfinished(arrival, `no credential within ${this.#limits.handshakeMs} ms`);
    });
    return arrival;
  }

  /** Reads the first line from the socket: the raw one, or what TLS made of it. */
  listen(arrival: Arrival, socket: Socket): void {
    const limitBytes = this.#limits.firstLineMaxBytes;
    const lines = new LineSocket(socket, limitBytes, this.#clock);
    arrival.lines = lines;
    lines.onClosed(() => this.#finish(arrival));
    lines.read({
      limitBytes,
      line: (text) => {
        if (this.#finish(arrival)) this.#events.credential(arrival, lines, text);
      },
      tooLong: () => this.#refuseUnfinished(arrival, 'the first line is longer than a credential can be'),
    });
  }

  /** Says the one word and closes. */
  refuse(arrival: Arrival, reason: string, about: object = {}): void {
    this.#finish(arrival);
    // Inside of TLS's handshake there are no words yet.
    if (arrival.lines === null) arrival.raw.destroy();
    else arrival.lines.close(reason, REFUSED);
    if (!arrival.raw.destroyed) this.#leaving.add(arrival.raw);
    for (const socket of this.#leaving) {
      if (this.#leaving.size <= this.#limits.unfinishedMax) break;
      this.#leaving.delete(socket);
      socket.destroy();
    }
    this.#events.refused(arrival, reason, about);
  }

  #refuseUnfinished(arrival: Arrival, reason: string): void {
    if (this.#unfinished.has(arrival)) this.refuse(arrival, reason);
  }

  #makeRoom(): void {
    const counts = new Map<string, number>();
    let most = { address: '', count: 0 };
    for (const { address } of this.#unfinished) {
      const count = (counts.get(address) ?? 0) + 1;
      counts.set(address, count);
      if (count > most.count) most = { address, count };
    }
    for (const arrival of this.#unfinished) {
      if (arrival.address === most.address) {
        this.refuse(arrival, 'too many connections without a credential');
        return;
      }
    }
  }

  /** False: it was over already. */
  #finish(arrival: Arrival): boolean {
    arrival.deadline.abort();
    return this.#unfinished.delete(arrival);
  }
}
