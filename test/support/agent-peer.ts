import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { eventually } from './wait.js';

export interface Peer {
  readonly socket: Socket;
  /** Whole lines that came so far. */
  lines(): readonly string[];
  /** Everything that came so far. */
  text(): string;
  closed(): boolean;
  say(line: string): void;
}

interface Where {
  readonly port: number;
  /** Which of this machine's addresses it comes from. */
  readonly localAddress?: string;
  /** PEM to trust: speaks TLS. */
  readonly trust?: string;
  /** Goes on after the gateway has said its last. */
  readonly allowHalfOpen?: boolean;
}

const open = new Set<Socket>();

/** For afterEach. */
export function hangUpPeers(): void {
  for (const socket of open) socket.destroy();
  open.clear();
}

/** A connection to a gateway, with a test at its other end. */
export function peer({ port, localAddress, trust, allowHalfOpen = false }: Where): Peer {
  const to = { host: '127.0.0.1', port, allowHalfOpen, ...(localAddress === undefined ? {} : { localAddress }) };
  const socket = trust === undefined ? connect(to) : connectTls({ ...to, ca: trust });
  open.add(socket);
  let text = '';
  let closed = false;
  socket.on('data', (bytes: Buffer) => (text += bytes.toString()));
  socket.on('error', () => undefined);
  socket.once('close', () => (closed = true));
  return {
    socket,
    lines: () => text.split('\n').slice(0, -1),
    text: () => text,
    closed: () => closed,
    say: (line) => void socket.write(`${line}\n`),
  };
}

export const closes = (one: Peer): Promise<true> => eventually(() => (one.closed() ? true : null));

/** Its `count`-th line, when it is there. */
export const lineOf = (one: Peer, count = 1): Promise<string> => eventually(() => one.lines()[count - 1] ?? null);

export const HELLO = JSON.stringify({ type: 'hello', node: 'n1', workspace: true, version: null });

/** Shows a credential, is welcomed, and says hello. */
export async function join(where: Where, credential: string): Promise<Peer> {
  const one = peer(where);
  one.say(credential);
  if ((await lineOf(one)) !== 'welcome') throw new Error(`not welcome: ${one.text()}`);
  one.say(HELLO);
  return one;
}
