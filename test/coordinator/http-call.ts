import { Agent, request, type IncomingHttpHeaders } from 'node:http';

export interface Reply {
  readonly statusCode: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  json(): unknown;
}

export interface Call {
  readonly method?: 'GET' | 'POST';
  /** Sent as it is: nothing is normalised. */
  readonly url: string;
  /** An object is sent as JSON. */
  readonly payload?: object | string;
  readonly headers?: Readonly<Record<string, string>>;
}

const agent = new Agent({ keepAlive: true, maxSockets: 4 });

/** One request over a real socket: fastify's own `inject` needs require(esm), which Jest lacks on Node 20. */
export function httpCall(port: number, { method = 'GET', url, payload, headers = {} }: Call): Promise<Reply> {
  const text = payload === undefined ? null : typeof payload === 'string' ? payload : JSON.stringify(payload);
  const type = text === null ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
  return new Promise((resolve, reject) => {
    const sent = request(
      { host: '127.0.0.1', port, method, path: url, agent, headers: { ...type, ...headers } },
      (response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (piece: string) => (body += piece));
        response.on('error', reject);
        response.on('end', () => {
          resolve({
            statusCode: response.statusCode ?? 0,
            headers: response.headers,
            body,
            json: (): unknown => JSON.parse(body),
          });
        });
      },
    );
    sent.on('error', reject);
    if (text === null) sent.end();
    else sent.end(text);
  });
}

/** Closes the kept connections, so that a server can end. */
export const hangUp = (): void => {
  agent.destroy();
};
