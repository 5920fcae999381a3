import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { WebSocket, WebSocketServer } from 'ws';
import { CliError, messageOf, usageError } from './errors.js';
import { EXIT } from './exit-codes.js';

/** Sends messages to an inspector that listens at `url` (`ws://…`), in order; resolves when they have been taken. */
export async function sendToInspector(url: string, messages: readonly string[], signal: AbortSignal): Promise<void> {
  const socket = new WebSocket(url);
  const abort = (): void => socket.terminate();
  signal.addEventListener('abort', abort, { once: true });
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('error', reject);
      socket.once('close', resolve);
      socket.once('open', () => {
        for (const message of messages) socket.send(message);
        socket.close();
      });
    });
  } catch (cause) {
    const hint = 'start the receiver first, or give a port: then this command is the one that listens';
    throw new CliError(EXIT.unreachable, `no inspector answers at ${url}: ${messageOf(cause)}`, hint, { cause });
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

/**
 * Waits on 127.0.0.1 for an inspector: a page at `http://127.0.0.1:PORT` that holds the Stately inspector, or a receiver
 * of `@statelyai/inspect` at `ws://127.0.0.1:PORT`. Everybody who connects gets all messages. Resolves when somebody
 * has connected and nobody is connected any more, or when the signal aborts. `ready` is told the port.
 */
export async function serveInspector(
  port: number,
  messages: readonly string[],
  signal: AbortSignal,
  ready: (port: number) => void,
): Promise<void> {
  const http = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(PAGE);
  });
  const sockets = new WebSocketServer({
    server: http,
    // Any page that the same browser has open could connect: only our own page may, and programs, which name none.
    verifyClient: ({ origin }: { origin?: string }) => origin === undefined || isOwn(origin, http.address()),
  });
  try {
    await new Promise<void>((resolve, reject) => {
      http.once('error', reject);
      sockets.once('error', reject);
      signal.addEventListener('abort', () => resolve(), { once: true });
      sockets.on('connection', (socket) => {
        for (const message of messages) socket.send(message);
        socket.once('close', () => {
          if (sockets.clients.size === 0) resolve();
        });
      });
      http.listen(port, '127.0.0.1', () => ready(portOf(http.address())));
    });
  } catch (cause) {
    throw usageError(`can not listen on 127.0.0.1:${String(port)}: ${messageOf(cause)}`, 'choose another port');
  } finally {
    for (const socket of sockets.clients) socket.terminate();
    sockets.close();
    http.close();
    http.closeAllConnections();
  }
}

const portOf = (address: AddressInfo | string | null): number =>
  typeof address === 'object' && address !== null ? address.port : 0;

const isOwn = (origin: string, address: AddressInfo | string | null): boolean =>
  ['127.0.0.1', 'localhost'].some((host) => origin === `http://${host}:${String(portOf(address))}`);

/** Hands what comes over the socket to the hosted inspector, which takes it as window messages. */
const PAGE = `<!doctype html>
<meta charset="utf-8">
<title>Open Compute: inspector</title>
<style>html, body, iframe { margin: 0; width: 100%; height: 100%; border: 0 }</style>
<iframe id="inspector" src="https://stately.ai/inspect"></iframe>
<script>
  const inspector = document.getElementById('inspector').contentWindow;
  const waiting = [];
  let connected = false;
  const post = (message) => inspector.postMessage(message, 'https://stately.ai');
  window.addEventListener('message', (event) => {
    if (event.source !== inspector || event.data?.type !== '@statelyai.connected') return;
    connected = true;
    waiting.splice(0).forEach(post);
  });
  new WebSocket('ws://' + location.host).onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (connected) post(message);
    else waiting.push(message);
  };
</script>
`;
