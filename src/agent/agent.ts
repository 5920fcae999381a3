/**
 * The agent of one rank. A program of its own: this one file is copied to the session's shared directory and run there by
 * whatever `node` the compute node has (16 or later), so it imports nothing but `node:*`.
 *
 *     node agent.mjs CONFIG RANK_VARIABLE
 *
 * It dials the gateway for as long as the session lives, shows its one-line credential, and runs argument vectors for it.
 * Exits 0 only when the gateway said that the session is over: in a gang one agent's other end has to be everybody's.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { connect as connectTcp, type Socket } from 'node:net';
import { constants, hostname } from 'node:os';
import { connect as connectTls } from 'node:tls';

const PIECE_BYTES = 64 * 1024;
const LINE_MAX_BYTES = 8 * 1024 * 1024;
const KILL_GRACE_MS = 5_000;
/** What a command left behind may hold its pipes for so long after its end. */
const DRAIN_GRACE_MS = 500;
const DIAL_LIMIT_MS = 10_000;
/** The gateway pings four times as often: one that is silent for so long is gone, whatever TCP says. */
const SILENCE_LIMIT_MS = 60_000;
const BACKOFF_MS = { first: 200, last: 5_000 };
/** Six looks in a row, 2 s apart: a shared file system that blinks does not end a session. */
const GONE = { everyMs: 2_000, looks: 6 };
/** A path template; commands do not see it. */
const CREDENTIALS_VARIABLE = 'OPEN_COMPUTE_CREDENTIALS';
const EXIT = { usage: 2, directoryGone: 3, alone: 4 };

interface Config {
  readonly host: string;
  readonly port: number;
  /** PEM; null: plain TCP. */
  readonly trust: string | null;
  readonly directory: string;
  /** Path of the credential's file, with `{rank}`. */
  readonly credentials: string;
  readonly version: string | null;
  /** Without a gateway for so long nobody can have used the session: it is over, whoever was to say so. null: no limit. */
  readonly aloneLimitS: number | null;
}

interface Start {
  readonly stepId: string;
  readonly argv: readonly string[];
  readonly stdin: boolean;
  readonly timeLimitMs: number | null;
  readonly outputLimitBytes: number;
}

type Fields = Readonly<Record<string, unknown>>;
type Stop = 'cancel' | 'timeLimit';
const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

function fieldsOf(text: string): Fields {
  const value: unknown = JSON.parse(text);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('it is not a JSON object');
  return value as Fields;
}

function readConfig(path: string): Config {
  const { host, port, trust, directory, credentials, version, aloneLimitS } = fieldsOf(readFileSync(path, 'utf8'));
  if (!isText(host)) throw new Error('"host" must be a name or address');
  if (typeof port !== 'number' || !Number.isInteger(port) || port < 1 || port > 65_535) {
    throw new Error('"port" must be a number from 1 to 65535');
  }
  if (trust !== null && !isText(trust)) throw new Error('"trust" must be a PEM text or null');
  if (!isText(directory) || !directory.startsWith('/')) throw new Error('"directory" must be an absolute path');
  const template = credentials ?? process.env[CREDENTIALS_VARIABLE];
  if (!isText(template) || !template.includes('{rank}')) {
    throw new Error(`"credentials" (or the variable ${CREDENTIALS_VARIABLE}) must be a path with {rank}`);
  }
  return {
    ...{ host, port, trust, directory, credentials: template },
    version: isText(version) ? version : null,
    aloneLimitS: typeof aloneLimitS === 'number' ? aloneLimitS : null,
  };
}

/** The settings as they are now; a file that can not be read for a moment changes nothing. */
function configOr(before: Config, path: string): Config {
  try {
    return readConfig(path);
  } catch {
    return before;
  }
}

function readRank(variable: string): number {
  const text = process.env[variable];
  if (text === undefined) throw new Error(`the environment has no variable ${variable}, which holds the rank`);
  if (!/^\d{1,6}$/.test(text)) throw new Error(`${variable} must be a rank (0, 1, …), not ${JSON.stringify(text)}`);
  return Number(text);
}

/** A bad message must not take an agent down with everything that it runs; null: not understood. */
function readStart(from: Fields): Start | null {
  const { stepId, argv, stdin, timeLimitMs, outputLimitBytes } = from;
  if (!isText(stepId) || typeof stdin !== 'boolean' || typeof outputLimitBytes !== 'number') return null;
  if (!Array.isArray(argv) || !argv.every((word) => typeof word === 'string')) return null;
  return { stepId, argv, stdin, outputLimitBytes, timeLimitMs: typeof timeLimitMs === 'number' ? timeLimitMs : null };
}

/** The gateway's end of one connection. */
class Link {
  readonly commands = new Map<string, Command>();
  /** The socket holds as much as it should: commands' pipes are left alone until it drains. */
  blocked = false;
  alive = true;
  readonly socket: Socket;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on('drain', () => this.#flow());
  }

  send(message: object): void {
    if (this.alive && !this.socket.write(`${JSON.stringify(message)}\n`)) this.blocked = true;
  }

  /** Nobody can see or stop its commands any more. What they still write is dropped, so that they can end. */
  lost(): void {
    this.alive = false;
    for (const command of this.commands.values()) command.stop('cancel');
    this.#flow();
  }

  #flow(): void {
    this.blocked = false;
    for (const command of this.commands.values()) command.resume();
  }
}

class Command {
  readonly #stepId: string;
  readonly #link: Link;
  readonly #child: ChildProcess;
  readonly #timers = new Set<NodeJS.Timeout>();
  #roomBytes: number;
  #droppedBytes = 0;
  #stoppedBy: 'itself' | Stop = 'itself';
  #exit: { readonly exitCode: number | null; readonly signal: string | null } | null = null;
  #settled = false;

  /** Throws where Node refuses to try: a word with a NUL byte, no word at all. */
  constructor(start: Start, directory: string, link: Link) {
    this.#stepId = start.stepId;
    this.#link = link;
    this.#roomBytes = start.outputLimitBytes;
    const [program = '', ...words] = start.argv;
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name !== CREDENTIALS_VARIABLE));
    const input = start.stdin ? 'pipe' : 'ignore';
    // Detached: a process group of its own, which can be signalled as one.
    this.#child = spawn(program, words, { cwd: directory, env, detached: true, stdio: [input, 'pipe', 'pipe'] });
    // The command may end, or close its input, while there is more of it.
    this.#child.stdin?.on('error', () => undefined);
    this.#child.stdout?.on('data', (bytes: Buffer) => this.#output('stdout', bytes));
    this.#child.stderr?.on('data', (bytes: Buffer) => this.#output('stderr', bytes));
    this.#child.once('error', (error) => {
      if (this.#child.pid !== undefined) return;
      const detail = `cannot start ${JSON.stringify(program)} in ${directory}: ${messageOf(error)}`;
      this.#settle({ type: 'notStarted', stepId: this.#stepId, detail: detail.slice(0, 1_000) });
    });
    this.#child.once('exit', (exitCode, signal) => {
      this.#exit = { exitCode, signal };
      this.#after(DRAIN_GRACE_MS, () => this.#endLeftovers());
    });
    this.#child.once('close', () => this.#close());
    if (start.timeLimitMs !== null) this.#after(start.timeLimitMs, () => this.stop('timeLimit'));
    all.add(this);
    link.commands.set(start.stepId, this);
  }

  /** `SIGTERM` to the process group, `SIGKILL` after a grace. The first reason stands. */
  stop(why: Stop): void {
    if (this.#settled || this.#exit !== null || this.#stoppedBy !== 'itself') return;
    this.#stoppedBy = why;
    this.#signal('SIGTERM');
    this.#after(KILL_GRACE_MS, () => this.#signal('SIGKILL'));
  }

  write(bytes: Buffer): void {
    const taken = (): void => this.#link.send({ type: 'inputTaken', stepId: this.#stepId, bytes: bytes.length });
    if (this.#child.stdin === null) taken();
    else this.#child.stdin.write(bytes, taken);
  }

  endInput(): void {
    this.#child.stdin?.end();
  }

  resume(): void {
    this.#child.stdout?.resume();
    this.#child.stderr?.resume();
  }

  #output(stream: 'stdout' | 'stderr', bytes: Buffer): void {
    const kept = this.#link.alive ? bytes.subarray(0, this.#roomBytes) : bytes.subarray(0, 0);
    this.#roomBytes -= kept.length;
    this.#droppedBytes += bytes.length - kept.length;
    for (let at = 0; at < kept.length; at += PIECE_BYTES) {
      const data = kept.subarray(at, at + PIECE_BYTES).toString('base64');
      this.#link.send({ type: 'output', stepId: this.#stepId, stream, data });
    }
    if (kept.length > 0 && this.#link.blocked) this.#child[stream]?.pause();
  }

  /** The command is over, but something that it started holds its pipes. What has left the group too is let go. */
  #endLeftovers(): void {
    this.#signal('SIGKILL');
    const letGo = (): void => {
      // What is in the pipes was written by the command: it waits for the socket.
      if (this.#link.blocked) {
        this.#after(DRAIN_GRACE_MS, letGo);
        return;
      }
      this.#child.stdout?.destroy();
      this.#child.stderr?.destroy();
    };
    this.#after(DRAIN_GRACE_MS, letGo);
  }

  #close(): void {
    if (this.#exit === null) return; // It was never started.
    if (this.#stoppedBy !== 'itself') this.#signal('SIGKILL');
    const end = { ...this.#exit, stoppedBy: this.#stoppedBy, droppedBytes: this.#droppedBytes };
    this.#settle({ type: 'ended', stepId: this.#stepId, ...end });
  }

  #settle(message: object): void {
    if (this.#settled) return;
    this.#settled = true;
    for (const timer of this.#timers) clearTimeout(timer);
    all.delete(this);
    this.#link.commands.delete(this.#stepId);
    this.#link.send(message);
  }

  #signal(signal: 'SIGTERM' | 'SIGKILL'): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // The group has gone already.
    }
  }

  #after(ms: number, then: () => void): void {
    // A longer time than a timer can hold is no limit within the life of a session.
    this.#timers.add(setTimeout(then, Math.min(ms, 2 ** 31 - 1)));
  }
}

/** Every command that runs, over all connections. */
const all = new Set<Command>();
let link: Link | null = null;
let ending = false;
let lastSaid = '';

function say(text: string): void {
  if (text === lastSaid) return; // One line for an outage, not one for every attempt.
  lastSaid = text;
  process.stderr.write(`open-compute agent: ${text}\n`);
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function end(exitCode: number, why: string): Promise<void> {
  if (ending) return;
  ending = true;
  say(`${why}; it ends`);
  for (const command of all) command.stop('cancel');
  for (let waitedMs = 0; all.size > 0 && waitedMs < KILL_GRACE_MS + 2_000; waitedMs += 20) await pause(20);
  const { socket } = link ?? {};
  // Their ends are told, if anybody still listens.
  if (socket !== undefined) await Promise.race([new Promise<void>((done) => socket.end(done)), pause(500)]);
  process.exit(exitCode);
}

function obey(from: Link, config: Config, message: Fields): void {
  const command = isText(message['stepId']) ? from.commands.get(message['stepId']) : undefined;
  switch (message['type']) {
    case 'ping': {
      from.send({ type: 'pong', id: message['id'] });
      return;
    }
    case 'start': {
      const start = readStart(message);
      if (start === null || command !== undefined || ending) return;
      try {
        new Command(start, config.directory, from);
      } catch (error) {
        const detail = `cannot start it: ${messageOf(error)}`.slice(0, 1_000);
        from.send({ type: 'notStarted', stepId: start.stepId, detail });
      }
      return;
    }
    case 'input':
      return command?.write(Buffer.from(String(message['data']), 'base64'));
    case 'endInput':
      return command?.endInput();
    case 'cancel':
      return command?.stop('cancel');
    case 'end':
      return void end(0, 'the session is over');
  }
}

/** Calls back with each line, without its end. False: a line is longer than it may be. */
function lineReader(onLine: (line: string) => void): (bytes: Buffer) => boolean {
  let held: Buffer[] = [];
  let heldBytes = 0;
  return (bytes) => {
    let rest = bytes;
    for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
      const line = Buffer.concat([...held, rest.subarray(0, at)]).toString();
      rest = rest.subarray(at + 1);
      held = [];
      heldBytes = 0;
      onLine(line);
    }
    held.push(rest);
    heldBytes += rest.length;
    return heldBytes <= LINE_MAX_BYTES;
  };
}

/** One connection, from dialling to its end. Gives whether the gateway took the credential. */
function dial(config: Config, credential: string): Promise<boolean> {
  const { host, port, trust } = config;
  const secure = trust !== null;
  // Said and not left to the default, which a variable of the environment can turn off.
  const socket = secure ? connectTls({ host, port, ca: trust, rejectUnauthorized: true }) : connectTcp({ host, port });
  const current = new Link(socket);
  let welcomed = false;
  let why = 'the connection was closed';
  const fail = (reason: string): void => {
    why = reason;
    socket.destroy();
  };
  let timer = setTimeout(() => fail('no welcome in time'), DIAL_LIMIT_MS);
  socket.setKeepAlive(true, 15_000);
  socket.setNoDelay(true);
  socket.once(secure ? 'secureConnect' : 'connect', () => socket.write(`${credential}\n`));

  async function greet(line: string): Promise<void> {
    if (line !== 'welcome') {
      fail(line === 'refused' ? 'the credential was refused' : 'this is no gateway');
      return;
    }
    welcomed = true;
    clearTimeout(timer);
    timer = setTimeout(() => fail('the gateway is silent'), SILENCE_LIMIT_MS);
    link = current;
    say(`in at ${host}:${port}`);
    const workspace = await stat(config.directory).then(
      (seen) => seen.isDirectory(),
      () => false,
    );
    current.send({ type: 'hello', node: hostname(), workspace, version: config.version });
  }
  const read = lineReader((line) => {
    if (!welcomed) return void greet(line);
    try {
      obey(current, config, fieldsOf(line));
    } catch (error) {
      fail(`a message makes no sense: ${messageOf(error)}`);
    }
  });
  socket.on('data', (bytes: Buffer) => {
    if (welcomed) timer.refresh();
    if (!read(bytes)) fail('a line is too long');
  });
  socket.on('error', (error) => (why = messageOf(error)));
  return new Promise((resolve) => {
    socket.once('close', () => {
      clearTimeout(timer);
      current.lost();
      if (link === current) link = null;
      if (!ending) say(`not connected to ${host}:${port}: ${why}`);
      resolve(welcomed);
    });
  });
}

async function stayConnected(configPath: string, first: Config, rank: number): Promise<never> {
  let config = first;
  let spent = '';
  let waitMs = BACKOFF_MS.first;
  let aloneSinceMs = performance.now();
  for (;;) {
    // Read anew each time: a gateway that restarted may be at another address, and a credential is good for one
    // connection; its file is replaced after that.
    config = configOr(config, configPath);
    const path = config.credentials.split('{rank}').join(String(rank));
    const credential = await readFile(path, 'utf8').then(
      (text) => text.trim(),
      () => '',
    );
    if (credential === '') say(`there is no credential at ${path} yet`);
    if (credential !== '' && credential !== spent && !ending && (await dial(config, credential))) {
      spent = credential;
      waitMs = BACKOFF_MS.first;
      aloneSinceMs = performance.now();
    }
    const { aloneLimitS } = config;
    if (aloneLimitS !== null && performance.now() - aloneSinceMs > aloneLimitS * 1000) {
      await end(EXIT.alone, `nobody has reached this agent for ${aloneLimitS} s`);
    }
    // Jitter, so that a gang does not come back in one wave.
    await pause(waitMs * (0.5 + Math.random()));
    waitMs = Math.min(waitMs * 2, BACKOFF_MS.last);
  }
}

/** The session's directory goes when the session does: an agent that nobody reaches any more must not stay for ever. */
async function watchDirectory(directory: string): Promise<void> {
  for (let missing = 0; missing < GONE.looks;) {
    await pause(GONE.everyMs);
    // Only "there is no such directory" counts; a file system that does not answer proves nothing.
    const gone = await stat(directory).then(
      () => false,
      (error: unknown) => (error as { code?: string }).code === 'ENOENT',
    );
    missing = gone ? missing + 1 : 0;
  }
  await end(EXIT.directoryGone, `${directory} is gone`);
}

function main(argv: readonly string[]): void {
  process.stderr.on('error', () => undefined);
  const [configPath, rankVariable] = argv;
  if (configPath === undefined || rankVariable === undefined || argv.length !== 2) {
    say('usage: node agent.mjs CONFIG RANK_VARIABLE');
    process.exit(EXIT.usage);
  }
  try {
    const config = readConfig(configPath);
    const rank = readRank(rankVariable);
    for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
      process.on(signal, () => void end(128 + constants.signals[signal], `it got ${signal}`));
    }
    void stayConnected(configPath, config, rank);
    void watchDirectory(config.directory);
  } catch (error) {
    say(`cannot start with ${configPath}: ${messageOf(error)}`);
    process.exit(EXIT.usage);
  }
}

main(process.argv.slice(2));
