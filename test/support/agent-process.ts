import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach } from '@jest/globals';
import type { AgentLink, AgentStep, AgentStepControl, AgentStepEnd, RankId } from '../../src/gateway/agent-port.js';
import { StepId } from '../../src/machines/vocabulary.js';
import { compiled } from './compiled.js';
import { temporaryDirectory } from './temporary-directory.js';
import { eventually } from './wait.js';

/** A compute node's `node` may be older than ours: `AGENT_NODE=/path/to/node16` runs these tests with it. */
const NODE = process.env['AGENT_NODE'] ?? process.execPath;
/** The name of the variable that holds the rank is data. */
const RANK_VARIABLE = 'TEST_RANK';

let program: string | null = null;
/** The agent as a compute node gets it: one file of its own. */
function agentFile(): string {
  if (program !== null) return program;
  program = join(temporaryDirectory(), 'agent.mjs');
  copyFileSync(join(compiled('agent'), 'agent', 'agent.js'), program);
  return program;
}
afterAll(() => {
  program = null;
});

export interface SessionDirectory {
  readonly path: string;
  readonly config: string;
  /** Puts a rank's credential where its agent looks for it. */
  give(rank: number, credential: string): void;
  /** The gateway is at another address from now on; `more`: other settings. */
  moved(address: { host: string; port: number }, more?: object): void;
}

/** A session's directory with its agents' configuration, as the worker prepares it. */
export function sessionDirectory(address: { host: string; port: number }, trust: string | null): SessionDirectory {
  const path = join(temporaryDirectory(), 'session');
  const secrets = join(path, '.credentials');
  mkdirSync(secrets, { recursive: true, mode: 0o700 });
  const config = join(path, 'agent.json');
  const credentials = join(secrets, 'rank-{rank}');
  const moved = (to: { host: string; port: number }, more: object = {}): void => {
    const settings = { ...to, trust, directory: path, credentials, version: 'test', ...more };
    writeFileSync(`${config}.new`, JSON.stringify(settings));
    renameSync(`${config}.new`, config);
  };
  moved(address);
  const give = (rank: number, credential: string): void => {
    const file = join(secrets, `rank-${String(rank)}`);
    writeFileSync(`${file}.new`, `${credential}\n`, { mode: 0o600 });
    renameSync(`${file}.new`, file);
  };
  return { path, config, give, moved };
}

export interface AgentProcess {
  readonly pid: number;
  /** What it said on stderr. */
  said(): string;
  readonly exit: Promise<{ readonly exitCode: number | null; readonly signal: string | null }>;
  kill(signal: NodeJS.Signals): void;
}

const running = new Set<AgentProcess>();
afterEach(async () => {
  for (const agent of running) agent.kill('SIGKILL');
  await Promise.all([...running].map((agent) => agent.exit));
});

/** Starts a real agent in a process of its own. It is gone after the test. */
export function startAgent(
  argv: readonly string[],
  rank: number,
  environment: Readonly<Record<string, string>> = {},
): AgentProcess {
  const env = { ...process.env, [RANK_VARIABLE]: String(rank), ...environment };
  const child = spawn(NODE, [agentFile(), ...argv], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  child.stderr.on('data', (bytes: Buffer) => (text += bytes.toString()));
  const agent: AgentProcess = {
    pid: child.pid ?? 0,
    said: () => text,
    exit: new Promise((resolve) => {
      child.once('close', (exitCode, signal) => {
        running.delete(agent);
        resolve({ exitCode, signal });
      });
    }),
    kill: (signal) => void child.kill(signal),
  };
  running.add(agent);
  return agent;
}

export const startRank = (
  session: SessionDirectory,
  rank: number,
  environment: Readonly<Record<string, string>> = {},
): AgentProcess => startAgent([session.config, RANK_VARIABLE], rank, environment);

/** What gateway events told, in order. */
export class Seen {
  readonly links: AgentLink[] = [];
  readonly left: { readonly id: RankId; readonly detail: string }[] = [];
  readonly events = {
    registered: (link: AgentLink): void => void this.links.push(link),
    left: (id: RankId, detail: string): void => void this.left.push({ id, detail }),
  };

  /** The `count`-th registration, when it is there. */
  link(count = 1): Promise<AgentLink> {
    return eventually(() => this.links[count - 1] ?? null, 20_000);
  }
}

export interface StepRun {
  readonly control: AgentStepControl;
  stdout(): string;
  stderr(): string;
  /** Both streams. */
  outputBytes(): number;
  readonly end: Promise<AgentStepEnd>;
}

let steps = 0;

export function step(argv: readonly string[], more: Partial<AgentStep> = {}): AgentStep {
  steps += 1;
  const stepId = StepId.parse(`step_${String(steps).padStart(26, '0')}`);
  return { stepId, argv, stdin: false, timeLimitMs: null, outputLimitBytes: 64 * 1024 * 1024, ...more };
}

export function runStep(link: AgentLink, argv: readonly string[], more: Partial<AgentStep> = {}): StepRun {
  const pieces = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  let resolveEnd: (end: AgentStepEnd) => void = () => undefined;
  const end = new Promise<AgentStepEnd>((resolve) => (resolveEnd = resolve));
  let ends = 0;
  const control = link.start(step(argv, more), {
    output: (stream, bytes) => void pieces[stream].push(bytes),
    ended: (how) => {
      ends += 1;
      if (ends > 1) throw new Error('a step ended twice');
      resolveEnd(how);
    },
  });
  return {
    control,
    stdout: () => Buffer.concat(pieces.stdout).toString(),
    stderr: () => Buffer.concat(pieces.stderr).toString(),
    outputBytes: () => [...pieces.stdout, ...pieces.stderr].reduce((sum, piece) => sum + piece.length, 0),
    end,
  };
}
