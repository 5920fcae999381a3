import { resolve } from 'node:path';
import type { Command } from 'commander';
import { DEFAULT_CONFIG } from '../../coordinator/config.js';
import { startServer, type Server } from '../../coordinator/server.js';
import { openStateDirectory } from '../../events/state-directory.js';
import { CliError, errnoOf, messageOf } from '../errors.js';
import { EXIT } from '../exit-codes.js';
import type { Io } from '../io.js';
import { serviceLog } from '../logging.js';
import {
  jsonOption,
  listenAddress,
  positiveNumber,
  wholeNumber,
  type JsonOption,
  type ListenAddress,
} from '../options.js';
import { packageVersion } from '../package-version.js';

interface Options extends JsonOption {
  readonly stateDir: string;
  readonly listen: ListenAddress;
  readonly publicUrl?: string;
  readonly leaseTtl?: number;
  readonly lossesMax?: number;
}

const DEFAULT_LISTEN: ListenAddress = { host: '127.0.0.1', port: 7077 };

export function define(command: Command, io: Io): void {
  command
    .requiredOption('--state-dir <dir>', 'where the log and the credentials are kept, on a local disk; made if missing')
    .option(
      '--listen <host:port>',
      'where to listen; port 0 is any free one (default: 127.0.0.1:7077)',
      listenAddress,
      DEFAULT_LISTEN,
    )
    .option('--public-url <url>', 'what the first credentials file says; default: made from --listen')
    .option(
      '--lease-ttl <seconds>',
      `how long a worker may be silent before its tasks are given away (default: ${String(DEFAULT_CONFIG.leaseTtlMs / 1000)})`,
      positiveNumber(86_400),
    )
    .option(
      '--losses-max <n>',
      `how many jobs of one task may be lost before it is a dead letter (default: ${String(DEFAULT_CONFIG.lossesMax)})`,
      wholeNumber(0, 1000),
    )
    .addOption(jsonOption())
    .addHelpText(
      'after',
      `
The first start writes DIR/admin.json, mode 0600: the credentials of the first administrator. Make the others with
  open-compute credentials create --credentials DIR/admin.json --role worker --name NAME --out FILE
There is no TLS: beyond this machine, listen behind a proxy that has it.
The log goes to stderr: short lines on a terminal, JSON lines elsewhere or with --json. SIGTERM or Ctrl-C ends it.`,
    )
    .action((options: Options) => serve(io, options));
}

const IN_THE_CLEAR =
  'other machines can reach this without TLS: secrets, payloads and results travel in the clear. Listen on 127.0.0.1 behind a proxy that has TLS, or let only that proxy in';

/** What only this machine can reach. Any other name may be anything: it counts as reachable. */
const isLoopback = (host: string): boolean => host === 'localhost' || host === '::1' || /^127(\.\d+){3}$/.test(host);

async function serve(io: Io, options: Options): Promise<void> {
  const log = serviceLog(io, options.json === true);
  const stopping = new AbortController();
  const state = await openStateDirectory(resolve(io.cwd, options.stateDir), {
    mode: 'write',
    create: true,
    writer: 'coordinator',
    nowMs: () => io.clock.nowMs(),
    onBroken: (error) => stopping.abort(error),
  });
  try {
    const server = await start(io, options, { stateDir: state.path, store: state.store, log });
    const { url, adminFile } = server;
    if (adminFile !== null)
      log.info({ adminFile, mode: '0600' }, "first start: the administrator's credentials are written");
    log.info({ url, stateDir: state.path }, 'listening');
    if (!isLoopback(options.listen.host)) log.warn({ listen: options.listen.host }, IN_THE_CLEAR);
    const ending = AbortSignal.any([io.signal, stopping.signal]);
    await new Promise<void>((done) => {
      if (ending.aborted) done();
      ending.addEventListener('abort', () => done(), { once: true });
    });
    log.info({}, 'stopping');
    await server.close();
    // Answering "not now" for ever helps nobody: the next start reads what the log really holds.
    stopping.signal.throwIfAborted();
  } finally {
    await state.close();
  }
}

async function start(
  io: Io,
  { listen, publicUrl, leaseTtl, lossesMax }: Options,
  parts: Pick<Parameters<typeof startServer>[0], 'stateDir' | 'store' | 'log'>,
): Promise<Server> {
  try {
    return await startServer({
      ...parts,
      clock: io.clock,
      random: io.random,
      version: packageVersion(),
      host: listen.host,
      port: listen.port,
      publicUrl: publicUrl ?? null,
      config: {
        ...(leaseTtl === undefined ? {} : { leaseTtlMs: leaseTtl * 1000 }),
        ...(lossesMax === undefined ? {} : { lossesMax }),
      },
    });
  } catch (cause) {
    const errno = errnoOf(cause);
    if (errno === null || !/^E(ADDR|ACCES|NOTFOUND|AI)/.test(errno)) throw cause;
    const where = `${listen.host}:${String(listen.port)}`;
    throw new CliError(EXIT.failed, `can not listen on ${where}: ${messageOf(cause)}`, 'choose another --listen', {
      cause,
    });
  }
}
