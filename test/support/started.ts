import type { ChildProcess } from 'node:child_process';
import type { Finished, Started } from '../contract/session-site.js';

/** A command that is under way, with all that it says. Its input is this text, or what it has if it has no pipe. */
export function follow(child: ChildProcess, stdin = ''): Started {
  const said: Record<'stdout' | 'stderr', Buffer[]> = { stdout: [], stderr: [] };
  child.stdout?.on('data', (bytes: Buffer) => said.stdout.push(bytes));
  child.stderr?.on('data', (bytes: Buffer) => said.stderr.push(bytes));
  // A command that does not read its input may end before this is written.
  child.stdin?.on('error', () => undefined);
  child.stdin?.end(stdin);
  const text = (stream: 'stdout' | 'stderr') => (): string => Buffer.concat(said[stream]).toString();
  const ended = new Promise<Finished>((resolve) =>
    child.once('close', (exitCode) => resolve({ exitCode, stdout: text('stdout')(), stderr: text('stderr')() })),
  );
  return { stdout: text('stdout'), stderr: text('stderr'), interrupt: () => child.kill('SIGINT'), ended };
}
