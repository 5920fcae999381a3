import { createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import type { Epoch, JobId } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import type { Log } from '../runtime/log.js';
import type { Random } from '../runtime/random.js';
import { RegisteredAgent, type LivenessLimits } from './agent-link.js';
import type { AgentGateway, GatewayEvents, RankId } from './agent-port.js';
import { Handshakes, type Arrival, type HandshakeLimits } from './handshake.js';
import type { LineSocket } from './line-socket.js';
import { Hello, lineOf, readLine } from './messages.js';
import { RefusalLog } from './refusal-log.js';
import { Roster, type Place } from './roster.js';

export interface GatewayLimits extends HandshakeLimits, LivenessLimits {
  /** From its welcome to its first message: until then nobody knows of the agent. */
  readonly helloMs: number;
  readonly credentialTtlMs: number;
}

export const DEFAULT_LIMITS: GatewayLimits = {
  unfinishedMax: 64,
  firstLineMaxBytes: 512,
  handshakeMs: 5_000,
  helloMs: 10_000,
  credentialTtlMs: 3_600_000,
  pingEveryMs: 15_000,
  pingsMissedMax: 3,
};

export interface GatewayOptions {
  readonly host: string;
  /** 0: any that is free. */
  readonly port: number;
  /** What agents dial; see `advertisedName`. */
  readonly advertise: string;
  /** PEM texts; `trust` is what agents check the certificate with. null: plain TCP. */
  readonly tls: { readonly cert: string; readonly key: string; readonly trust: string } | null;
  readonly clock: Clock;
  readonly log: Log;
  readonly random: Random;
  readonly limits?: Partial<GatewayLimits>;
}

/** Opens the gateway. Rejects with an Error that says where it could not listen, and why. */
export async function listenGateway(options: GatewayOptions, events: GatewayEvents): Promise<Gateway> {
  const { host, port, tls } = options;
  const server = tls === null ? createServer() : createTlsServer({ cert: tls.cert, key: tls.key });
  const gateway = new Gateway(server, options, events);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: Error) => {
      reject(new Error(`the gateway for agents cannot listen on ${host}:${port}: ${error.message}`));
    });
    server.listen({ host, port }, resolve);
  });
  server.on('error', (error: Error) =>
    options.log.error({ error: error.message }, 'the gateway for agents has a problem'),
  );
  return gateway;
}

export class Gateway implements AgentGateway {
  readonly trust: string | null;
  readonly #server: Server;
  readonly #options: GatewayOptions;
  readonly #limits: GatewayLimits;
  readonly #events: GatewayEvents;
  readonly #roster: Roster<LineSocket>;
  readonly #handshakes: Handshakes;
  readonly #refusals: RefusalLog;
  readonly #sockets = new Set<Socket>();
  #closing = false;

  constructor(server: Server, options: GatewayOptions, events: GatewayEvents) {
    this.#server = server;
    this.#options = options;
    this.#events = events;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.trust = options.tls?.trust ?? null;
    this.#roster = new Roster(options.random, this.#limits.credentialTtlMs);
    this.#refusals = new RefusalLog(options.log, options.clock);
    this.#handshakes = new Handshakes(this.#limits, options.clock, {
      credential: (arrival, lines, text) => this.#admit(arrival, lines, text),
      refused: ({ address }, reason, about) => this.#refusals.refused({ address, ...about }, reason),
    });
    this.#accept(options.tls !== null);
  }

  get address(): { readonly host: string; readonly port: number } {
    const bound = this.#server.address();
    const port = typeof bound === 'object' && bound !== null ? bound.port : this.#options.port;
    return { host: this.#options.advertise, port };
  }

  /** Connections that have shown no credential yet. */
  get unfinished(): number {
    return this.#handshakes.unfinished;
  }

  expect(jobId: JobId, epoch: Epoch, ranks: number): void {
    this.#sendAway(this.#roster.expect(jobId, epoch, ranks), `epoch ${epoch} is in force now (INV-7)`);
  }

  dismiss(jobId: JobId): void {
    this.#sendAway(this.#roster.dismiss(jobId), 'the session is over');
  }

  issue(id: RankId): string {
    return this.#roster.issue(id, this.#options.clock.nowMs());
  }

  lacking(): readonly RankId[] {
    return this.#roster.lacking(this.#options.clock.nowMs());
  }

  async close(): Promise<void> {
    this.#closing = true;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const { occupant } of this.#roster.places()) occupant?.close('the gateway was closed');
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #accept(secure: boolean): void {
    // With TLS the server hands out another object for the same connection once its handshake is through.
    const arrivals = new Map<string, Arrival>();
    this.#server.on('connection', (raw: Socket) => {
      raw.setKeepAlive(true, 15_000);
      raw.setNoDelay(true);
      raw.on('error', () => undefined); // It closes, which is what counts.
      this.#sockets.add(raw);
      const peer = peerOf(raw);
      const arrival = this.#handshakes.arrive(raw);
      if (secure) arrivals.set(peer, arrival);
      else this.#handshakes.listen(arrival, raw);
      raw.once('close', () => {
        this.#sockets.delete(raw);
        if (arrivals.get(peer) === arrival) arrivals.delete(peer);
      });
    });
    this.#server.on('secureConnection', (socket: Socket) => {
      const arrival = arrivals.get(peerOf(socket));
      if (arrival === undefined) socket.destroy();
      else this.#handshakes.listen(arrival, socket);
    });
    this.#server.on('tlsClientError', (error: Error, socket: Socket) => {
      this.#refusals.refused({ address: socket.remoteAddress }, `no TLS: ${error.message}`);
    });
  }

  #admit(arrival: Arrival, lines: LineSocket, credential: string): void {
    const admission = this.#roster.admit(credential, this.#options.clock.nowMs());
    if (admission.kind === 'refused') {
      this.#handshakes.refuse(arrival, admission.reason, admission.id ?? {});
      return;
    }
    const { place } = admission;
    // Its old connection may be half open: the agent that is there now is the one that could show a fresh credential.
    place.occupant?.close('the rank registered again');
    // Whoever was told just now may have dismissed the job.
    if (!this.#roster.holds(place)) {
      this.#handshakes.refuse(arrival, 'the job was dismissed meanwhile');
      return;
    }
    place.occupant = lines;
    const over = new AbortController();
    lines.onClosed((detail) => {
      over.abort();
      if (place.occupant === lines) place.occupant = null;
      this.#options.log.warn({ ...place.id, detail }, 'an agent went before it had said where it is');
    });
    lines.read({
      limitBytes: 1_024,
      line: (text) => {
        over.abort();
        this.#register(place, lines, text);
      },
      tooLong: () => lines.close('its first message is too long'),
    });
    void this.#options.clock.sleep(this.#limits.helloMs, over.signal).then(() => {
      if (!over.signal.aborted) lines.close(`it said nothing for ${this.#limits.helloMs} ms after its welcome`);
    });
    lines.send('welcome');
  }

  #register(place: Place<LineSocket>, lines: LineSocket, text: string): void {
    const { id } = place;
    const { clock, log } = this.#options;
    const hello = readLine(Hello, text);
    if (!hello.ok) {
      lines.close(`its first message makes no sense: ${hello.why}`);
      return;
    }
    const agent = new RegisteredAgent(id, hello.message, lines, clock, this.#limits, (detail) => {
      if (place.occupant === lines) place.occupant = null;
      log.info({ ...id, node: agent.node, detail }, 'an agent left');
      // Whoever sent it away knows.
      if (this.#roster.holds(place) && !this.#closing) this.#events.left(id, detail);
    });
    const { node, workspace, version } = hello.message;
    log.info({ ...id, node, workspace, version }, 'an agent registered');
    this.#events.registered(agent);
  }

  /** Nobody awaits them: those that are in end, and those on their way in find no place. */
  #sendAway(places: readonly Place<LineSocket>[], why: string): void {
    for (const { occupant } of places) occupant?.close(why, lineOf({ type: 'end' }));
  }
}

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress ?? ''} ${remotePort ?? ''}`;
