import { spawn, type ChildProcess } from 'node:child_process';
import { copyFileSync, readdirSync, renameSync, statSync, symlinkSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { temporaryDirectory } from '../../support/temporary-directory.js';

const ROOT = resolve(import.meta.dirname, '../../..');

/** The program as it is installed; returns its main file. The build, if it is not older than the sources, else a new one. */
export async function installed(): Promise<string> {
  const built = join(ROOT, 'dist', 'cli', 'main.js');
  if (isFresh()) return built;
  // It brings the compiler, which takes seconds to load.
  const { compiled } = await import('../../support/compiled.js');
  const home = temporaryDirectory();
  renameSync(compiled('.'), join(home, 'dist'));
  copyFileSync(join(ROOT, 'package.json'), join(home, 'package.json'));
  symlinkSync(join(ROOT, 'examples'), join(home, 'examples'));
  return join(home, 'dist', 'cli', 'main.js');
}

function isFresh(): boolean {
  const changedMs = (path: string): number => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .every((name) => changedMs(join(ROOT, 'dist', name.replace(/ts$/, 'js'))) >= changedMs(join(ROOT, 'src', name)));
}

export interface Child {
  readonly process: ChildProcess;
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly ended: Promise<{ readonly code: number | null; readonly signal: string | null }>;
}

export interface ChildOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Starts a command with its arguments; what it says is kept. */
export function run(command: string, args: readonly string[], { cwd, env }: ChildOptions): Child {
  const child = spawn(command, args, {
    cwd,
    env: { PATH: process.env['PATH'], HOME: cwd, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const said = { stdout: '', stderr: '' };
  child.stdout.on('data', (data: Buffer) => (said.stdout += data.toString()));
  child.stderr.on('data', (data: Buffer) => (said.stderr += data.toString()));
  const ended = new Promise<{ code: number | null; signal: string | null }>((done) =>
    child.once('close', (code, signal) => done({ code, signal })),
  );
  return { process: child, stdout: () => said.stdout, stderr: () => said.stderr, ended };
}
