import type { FastifyInstance } from 'fastify';
import type { CoordinatorConfig } from '../../src/coordinator/config.js';
import { MemoryCredentials } from '../../src/coordinator/credential-store.js';
import { Credentials } from '../../src/coordinator/credentials.js';
import { createHttp } from '../../src/coordinator/http.js';
import { Harness } from '../coordinator/harness.js';
import { hangUp, httpCall, type Call, type Reply } from '../coordinator/http-call.js';

const PEOPLE = {
  alice: 'submitter',
  bob: 'submitter',
  w1: 'worker',
  w2: 'worker',
  viewer: 'viewer',
  root: 'admin',
} as const;
export type Person = keyof typeof PEOPLE;

/** A coordinator on a real socket, with two submitters and two workers. */
export class WireSite {
  readonly h: Harness;
  readonly app: FastifyInstance;
  readonly port: number;
  readonly bearer: Readonly<Record<Person, string>>;

  private constructor(h: Harness, app: FastifyInstance, port: number, bearer: Readonly<Record<Person, string>>) {
    this.h = h;
    this.app = app;
    this.port = port;
    this.bearer = bearer;
  }

  static async start(config: Partial<CoordinatorConfig> = {}): Promise<WireSite> {
    const h = await Harness.start(config);
    const credentials = await Credentials.open(new MemoryCredentials(), h.clock, h.random);
    const make = async (name: Person): Promise<string> => {
      const { id, secret } = await credentials.create({ role: PEOPLE[name], name });
      return `Bearer ${id}.${secret}`;
    };
    const bearer = {
      alice: await make('alice'),
      bob: await make('bob'),
      w1: await make('w1'),
      w2: await make('w2'),
      viewer: await make('viewer'),
      root: await make('root'),
    };
    const app = await createHttp({ coordinator: h.coordinator, credentials, clock: h.clock, log: h.log, version: '1' });
    await app.listen({ host: '127.0.0.1', port: 0 });
    const address = app.server.address();
    return new WireSite(h, app, typeof address === 'object' && address !== null ? address.port : 0, bearer);
  }

  call(who: Person, call: Call): Promise<Reply> {
    return httpCall(this.port, { ...call, headers: { ...call.headers, authorization: this.bearer[who] } });
  }

  post(who: Person, url: string, payload: object): Promise<Reply> {
    return this.call(who, { method: 'POST', url, payload });
  }

  /** Every route that is served, as `METHOD /path/:parameter`. */
  routes(): readonly string[] {
    const found: string[] = [];
    let path: string[] = [];
    for (const line of this.app.printRoutes({ commonPrefix: false }).split('\n')) {
      const [, indent = '', name = '', methods = ''] = /^([ │]*)[├└]── (\S*) \((.*)\)$/.exec(line) ?? [];
      if (name === '') continue;
      path = [...path.slice(0, indent.length / 4), name];
      for (const method of methods.split(', ')) if (method !== 'HEAD') found.push(`${method} ${path.join('')}`);
    }
    return found;
  }

  async close(): Promise<void> {
    hangUp();
    await this.app.close();
  }
}
