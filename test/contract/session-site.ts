import { connect, type Socket } from 'node:net';
import { z } from 'zod';

/** What a command printed and how it ended. */
export interface Finished {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command that is under way. */
export interface Started {
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly interrupt: () => void;
  readonly ended: Promise<Finished>;
}

/** A coordinator and one worker that serves sessions, and a user of theirs. */
export interface SessionSite {
  /** Shared by all nodes; holds cluster.toml, and `runs`. */
  readonly directory: string;
  /** `open-compute …` as the user, to its end. */
  run(argv: readonly string[], stdin?: string): Promise<Finished>;
  start(argv: readonly string[]): Started;
  /** A shell command line of the user's, in which `open-compute` is the program. */
  shell(line: string): Promise<Finished>;
  startShell(line: string): Started;
  restartWorker(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
  restartCoordinator(): Promise<void>;
  workerLog(): string;
  /** Takes away, without a word, what a session's job runs on. */
  loseJob(jobId: string): Promise<void>;
  close(): Promise<void>;
}

export interface SessionHints {
  /** Holds the name of the node of a step's process. */
  readonly nodeVariable: string;
  /** Holds the rank of an agent. */
  readonly rankVariable: string;
  /** How long a change may take to be seen, ms. */
  readonly patienceMs: number;
  /** How long until a job that vanished counts as lost, and another one runs in its place, ms. */
  readonly recoveryMs: number;
  readonly idleLimitS: number;
}

/** Rank 2 does not start its agent before there is a file `go`. */
const LATE_NODE = `#!/bin/sh
eval "rank=\\$$3"
here=$(dirname "$0")
while [ "$rank" = 2 ] && [ ! -e "$here/go" ]; do sleep 0.05; done
exec node "$@"
`;

/** What the suite needs beside cluster.toml, by name: executable, in the same directory. */
export const SITE_SCRIPTS = { 'late-node.sh': LATE_NODE } as const;

/** The profiles that the suite needs: cluster.toml. */
export const siteProfiles = ({ idleLimitS }: Pick<SessionHints, 'idleLimitS'>): string => `[cluster]
name = "test"

[profiles.gang]
description = "four nodes, an agent on each"
nodes = 4
requeue = false

[profiles.gang.session]
node = "./late-node.sh"

[profiles.gang.environment]
GIVEN = "a 'b'"

[profiles.brief]
nodes = 1

[profiles.brief.session]
idle_limit_s = ${String(idleLimitS)}
`;

/** Where the worker said last that agents may dial in. */
export function gatewayOf(log: string): { readonly host: string; readonly port: number } {
  const line = log.split('\n').findLast((text) => text.includes('agents of sessions may dial in')) ?? '{}';
  return z.object({ host: z.string(), port: z.number() }).parse(JSON.parse(line));
}

/** A connection that has begun to speak and says no more. */
export const half = (host: string, port: number): Promise<Socket> =>
  new Promise((resolve, reject) => {
    const socket = connect({ host, port }, () => {
      socket.write('v1.');
      resolve(socket);
    });
    socket.once('error', reject);
    socket.on('error', () => undefined);
  });

/** All that the gateway says to this, until it hangs up. */
export function answerTo(host: string, port: number, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    const socket = connect({ host, port }, () => socket.write(text));
    socket.on('data', (bytes) => parts.push(bytes));
    socket.once('error', reject);
    socket.once('close', () => resolve(Buffer.concat(parts).toString()));
  });
}
