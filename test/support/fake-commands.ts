import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from '@jest/globals';
import type { Clock } from '../../src/runtime/clock.js';
import { COMMANDS, createProcessRun, type Command, type Run } from '../../src/slurm/broker.js';
import { commandEnvironment } from '../../src/slurm/environment.js';
import { errnoOf } from '../../src/workdir/io-error.js';
import { ACCOUNT_HEADER_TEXT, CONFIG_TEXT, QUEUE_HEADER_TEXT } from './scheduler-rows.js';

const SCRIPT = fileURLToPath(new URL('../../fixtures/bin/fake-command', import.meta.url));

/** What one call does; see fixtures/bin/fake-command for each key. */
export interface FakeAnswer {
  readonly stdout?: string | Buffer;
  readonly stderr?: string;
  readonly exit?: number;
  readonly delay?: number;
  readonly land?: string;
  readonly 'land-late'?: string;
  readonly hang?: true;
  readonly endless?: true;
  readonly 'keep-pipe'?: true;
  readonly 'read-input'?: true;
}

export interface FakeCall {
  readonly pid: number;
  readonly argv: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

const folders: string[] = [];

// With the folders go the children that were left behind on purpose.
afterAll(() => {
  for (const folder of folders.splice(0)) {
    for (const name of readdirSync(join(folder, 'calls')).filter((one) => one.endsWith('.child'))) {
      endGroup(Number(readFileSync(join(folder, 'calls', name), 'utf8')));
    }
    rmSync(folder, { recursive: true });
  }
});

function endGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if (errnoOf(error) !== 'ESRCH') throw error;
  }
}

/** Processes of a group that still do something: a zombie does not. */
export function livingInGroup(group: number): readonly number[] {
  return readdirSync('/proc').flatMap((pid) => {
    if (!/^[0-9]+$/.test(pid)) return [];
    let stat;
    try {
      stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    } catch (error) {
      if (errnoOf(error) === 'ESRCH' || errnoOf(error) === 'ENOENT') return [];
      throw error;
    }
    const [state, , itsGroup] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return state !== 'Z' && Number(itsGroup) === group ? [Number(pid)] : [];
  });
}

/** The scheduler's commands as real processes that do what the test scripted, in a folder of the test's own. */
export class FakeCommands {
  readonly directory = mkdtempSync(join(tmpdir(), 'open-compute-commands-'));
  readonly #scripted = new Map<Command, number>();

  constructor() {
    for (const command of COMMANDS) symlinkSync(SCRIPT, join(this.directory, command));
    for (const folder of ['answers', 'calls']) mkdirSync(join(this.directory, folder));
    this.queue('');
    this.accounts('');
    folders.push(this.directory);
  }

  /** What the next calls that have no answer yet will do, one after the other. */
  next(command: Command, ...answers: readonly FakeAnswer[]): void {
    for (const answer of answers) {
      const number = Math.max(this.#scripted.get(command) ?? 0, this.calls(command).length) + 1;
      this.#scripted.set(command, number);
      this.#write(`${command}.${String(number)}`, answer);
    }
  }

  /** What every call without an answer of its own does from now on. */
  always(command: Command, answer: FakeAnswer): void {
    this.#write(command, answer);
  }

  /** The questions of the backend's self-test find a cluster that is fit. Before anything else is scripted. */
  passSelfTest(config = CONFIG_TEXT): void {
    this.next('sbatch', { stdout: 'slurm 24.11.5\n' });
    this.next('srun', { stdout: 'slurm 24.11.5\n' });
    this.next('scontrol', { stdout: config });
    this.next('squeue', { stdout: QUEUE_HEADER_TEXT });
    this.next('sacct', { stdout: ACCOUNT_HEADER_TEXT }, { stdout: ACCOUNT_HEADER_TEXT });
    this.next('scancel', {
      stderr: 'scancel: error: Kill job error on job id 99999999: Invalid job id specified\n',
      exit: 1,
    });
  }

  /** What squeue prints from now on, unless an answer is scripted. */
  queue(text: string): void {
    writeFileSync(join(this.directory, 'queue'), text);
  }

  /** The queue as it is now, with what has landed in it. */
  queued(): string {
    return readFileSync(join(this.directory, 'queue'), 'utf8');
  }

  accounts(text: string): void {
    writeFileSync(join(this.directory, 'accounts'), text);
  }

  /** Every call of a command so far, in their order. */
  calls(command: Command): readonly FakeCall[] {
    const folder = join(this.directory, 'calls');
    const words = (name: string, from: readonly string[]): readonly string[] =>
      from.includes(name) ? readFileSync(join(folder, name), 'utf8').split('\0').slice(0, -1) : [];
    const names = readdirSync(folder);
    const calls: FakeCall[] = [];
    for (let n = 1; names.includes(`${command}.${String(n)}.pid`); n += 1) {
      const call = `${command}.${String(n)}`;
      calls.push({
        pid: Number(readFileSync(join(folder, `${call}.pid`), 'utf8')),
        argv: words(`${call}.argv`, names),
        environment: Object.fromEntries(
          words(`${call}.environment`, names).map((line) => {
            const at = line.indexOf('=');
            return [line.slice(0, at), line.slice(at + 1)];
          }),
        ),
      });
    }
    return calls;
  }

  /** The real broker's way to the outside, which finds these commands first. */
  run(clock: Clock): Run {
    const user = { name: 'science', uid: 1001, home: this.directory };
    const options = { binariesDir: this.directory, path: '/usr/bin:/bin', slurmConf: '/etc/slurm.conf', user };
    return createProcessRun(commandEnvironment(options), clock);
  }

  #write(name: string, answer: FakeAnswer): void {
    const folder = join(this.directory, 'answers', name);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    for (const [key, value] of Object.entries(answer)) {
      const content: unknown = value;
      writeFileSync(join(folder, key), Buffer.isBuffer(content) ? content : String(content));
    }
  }
}
