import { readFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { SessionPort } from '../coordinator/session-api.js';
import { advertisedName } from '../gateway/advertised-name.js';
import { listenGateway, type GatewayOptions } from '../gateway/gateway.js';
import type { Log } from '../runtime/log.js';
import { sessionDirectories } from '../worker/job-directories.js';
import { WorkerStartError } from '../worker/context.js';
import type { SessionDeps } from '../worker/sessions/context.js';
import { messageOf, usageError } from './errors.js';
import type { Io } from './io.js';
import type { ListenAddress } from './options.js';
import { quoted } from './payload.js';

/** The agent that comes with the package. */
const AGENT = fileURLToPath(new URL('../agent/agent.js', import.meta.url));

export const SESSIONS_HELP = `Sessions are served with --session-listen, for profiles without a script, or with a [profiles.NAME.session] table. On
each node of a session an agent runs that dials back to that address; it has to be one that the compute nodes reach.
Commands and their output pass over it: use a network that others can not listen on, or TLS.`;

/** Where agents dial in. */
export type SessionGateway = Pick<GatewayOptions, 'host' | 'port' | 'advertise' | 'tls'>;

interface Options {
  readonly sessionListen?: ListenAddress;
  readonly sessionAdvertise?: string;
  readonly sessionTlsCert?: string;
  readonly sessionTlsKey?: string;
  readonly sessionTlsTrust?: string;
}

/** What the worker's options say about the gateway; null: it is off. Throws a usage error that names the option. */
export async function readSessionGateway(io: Pick<Io, 'cwd'>, options: Options): Promise<SessionGateway | null> {
  const { sessionListen, sessionAdvertise, sessionTlsCert, sessionTlsKey, sessionTlsTrust } = options;
  if (sessionListen === undefined) {
    const without = Object.entries({ sessionAdvertise, sessionTlsCert, sessionTlsKey, sessionTlsTrust });
    if (without.every(([, value]) => value === undefined)) return null;
    throw usageError('there are options about sessions, but no --session-listen', 'give --session-listen HOST:PORT');
  }
  const { host, port } = sessionListen;
  let advertise;
  try {
    advertise = advertisedName(host, sessionAdvertise ?? null, hostname());
  } catch (error) {
    throw usageError(messageOf(error), 'with --session-advertise HOST');
  }
  if ((sessionTlsCert === undefined) !== (sessionTlsKey === undefined))
    throw usageError('--session-tls-cert and --session-tls-key belong together', 'give both, or none');
  if (sessionTlsCert === undefined || sessionTlsKey === undefined) {
    if (sessionTlsTrust !== undefined)
      throw usageError(
        '--session-tls-trust without a certificate',
        'give --session-tls-cert and --session-tls-key too',
      );
    return { host, port, advertise, tls: null };
  }
  const cert = await readPem(io, '--session-tls-cert', sessionTlsCert);
  const key = await readPem(io, '--session-tls-key', sessionTlsKey);
  const trust = sessionTlsTrust === undefined ? cert : await readPem(io, '--session-tls-trust', sessionTlsTrust);
  return { host, port, advertise, tls: { cert, key, trust } };
}

async function readPem(io: Pick<Io, 'cwd'>, option: string, path: string): Promise<string> {
  let text;
  try {
    text = await readFile(resolve(io.cwd, path), 'utf8');
  } catch (error) {
    throw usageError(`${option} ${quoted(path)} can not be read: ${messageOf(error)}`, 'nothing was started');
  }
  if (text.includes('-----BEGIN ')) return text;
  throw usageError(`${option} ${quoted(path)} is no PEM file`, 'it begins with a line -----BEGIN …-----');
}

/** The parts of the worker that serve sessions. */
export function sessionDeps(
  { clock, random }: Pick<Io, 'clock' | 'random'>,
  gateway: SessionGateway,
  { coordinator, runsDir, log }: { readonly coordinator: SessionPort; readonly runsDir: string; readonly log: Log },
): SessionDeps {
  return {
    coordinator,
    directories: sessionDirectories(runsDir),
    agentSource: AGENT,
    listen: async (events) => {
      try {
        return await listenGateway({ ...gateway, clock, random, log }, events);
      } catch (cause) {
        throw new WorkerStartError(messageOf(cause), { cause });
      }
    },
  };
}
