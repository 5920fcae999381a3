import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll } from '@jest/globals';
import { compiled } from './compiled.js';

/** A process of its own that works on a log; each line it prints is one JSON value. */
export interface LogChild {
  readonly process: ChildProcess;
  /** The next thing it says. Rejects when it ends before. */
  next(): Promise<unknown>;
  /** Resolves when it is gone, however it ended. */
  readonly ended: Promise<unknown>;
}

const PROLOGUE = `
import { openStateDirectory } from './events/state-directory.js';
const args = process.argv.slice(2);
const say = (value) => process.stdout.write(JSON.stringify(value) + '\\n');
const open = (path, more = {}) =>
  openStateDirectory(path, { mode: 'write', create: true, writer: 'child', nowMs: () => 1000, ...more });
const told = (error) => ({ name: error.name, fault: error.fault, message: error.message });
`;

const started: ChildProcess[] = [];

afterAll(() => {
  for (const child of started.splice(0)) child.kill('SIGKILL');
});

let library: string | undefined;
let scripts = 0;

/**
 * Runs a module in a process of its own, with `open(path, more)`, `say(value)`, `told(error)`, `args` and `gc()`. `shell` is the
 * beginning of its command line: limits, mounts.
 */
export function logChild(script: string, args: readonly string[], shell: readonly string[] = []): LogChild {
  library ??= compiled('events', 'machines', 'runtime');
  const file = join(library, `child-${(scripts += 1)}.js`);
  writeFileSync(file, PROLOGUE + script);
  const argv = [...shell, process.execPath, '--expose-gc', file, ...args];
  const env = { ...process.env, FIRST: args[0] };
  const child = spawn(argv[0] ?? '', argv.slice(1), { stdio: ['pipe', 'pipe', 'inherit'], env });
  started.push(child);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    process: child,
    ended: once(child, 'exit'),
    next: async () => {
      const line = await lines.next();
      if (line.done === true) throw new Error('the child ended before it said anything');
      return JSON.parse(line.value) as unknown;
    },
  };
}

/** The beginning of a command line that runs the rest after these shell commands; in them, `$FIRST` is `args[0]`. */
export const after = (commands: string): readonly string[] => ['sh', '-ec', `${commands}\nexec "$@"`, 'sh'];

/** The same with mounts of its own, which vanish with it; null where the system does not allow that. */
export function afterMounting(commands: string): readonly string[] | null {
  const allowed = spawnSync('unshare', ['-rm', 'mount', '-t', 'tmpfs', 'none', '/mnt']).status === 0;
  return allowed ? ['unshare', '-rm', ...after(commands)] : null;
}
