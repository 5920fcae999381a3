import { readdir, readFile } from 'node:fs/promises';
import type { AttemptEnd } from '../backend.js';
import type { Token } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import { errnoOf, messageOf } from '../workdir/io-error.js';
import { jobName } from './identity.js';

/** After SIGKILL a process is gone within milliseconds, unless it hangs in the kernel. */
const WAIT_MS = 5_000;
const LOOK_EVERY_MS = 20;

interface Leftover {
  readonly pid: number;
  readonly group: number;
}

/**
 * Ends every process on this host that could still send the submission of a token: sbatch, or a site's wrapper around
 * it, with the job's name among its arguments, together with its whole process group. The answer is `ended` only when
 * another look finds none. Processes of another host are out of reach: a state directory belongs to one host.
 */
export async function endAttempt(token: Token, prefix: string, clock: Clock, procDir = '/proc'): Promise<AttemptEnd> {
  const argument = `--job-name=${jobName(prefix, token)}`;
  const startedMs = clock.monotonicMs();
  const ended = new Set<number>();
  for (;;) {
    let left;
    let ownGroup;
    try {
      left = await leftovers(argument, procDir);
      ownGroup = groupIn(await readFile(`${procDir}/self/stat`, 'latin1'));
    } catch (error) {
      return { kind: 'alive', detail: `the processes of this host cannot be listed: ${messageOf(error)}` };
    }
    if (left.length === 0) {
      const pids = [...ended].map(String).join(', ');
      return {
        kind: 'ended',
        how: pids === '' ? 'no process of the submission was left' : `ended process ${pids} and its group`,
      };
    }
    for (const one of left) {
      const refusal = kill(one, ownGroup);
      if (refusal !== null) return { kind: 'alive', detail: `process ${String(one.pid)} cannot be ended: ${refusal}` };
      ended.add(one.pid);
    }
    if (clock.monotonicMs() - startedMs > WAIT_MS) {
      return { kind: 'alive', detail: `process ${left.map(({ pid }) => String(pid)).join(', ')} does not end` };
    }
    await clock.sleep(LOOK_EVERY_MS);
  }
}

async function leftovers(argument: string, procDir: string): Promise<readonly Leftover[]> {
  const pids = (await readdir(procDir)).filter((name) => /^[0-9]+$/.test(name));
  const found = await Promise.all(pids.map((pid) => leftover(pid, argument, procDir)));
  return found.filter((one) => one !== null);
}

/** A zombie has no arguments any more and can send nothing: it does not count. */
async function leftover(pid: string, argument: string, procDir: string): Promise<Leftover | null> {
  let commandLine;
  let stat;
  try {
    commandLine = await readFile(`${procDir}/${pid}/cmdline`, 'latin1');
    if (!commandLine.split('\0').includes(argument)) return null;
    stat = await readFile(`${procDir}/${pid}/stat`, 'latin1');
  } catch {
    // It ended while we looked, or belongs to somebody else and is hidden: then it is not ours.
    return null;
  }
  return { pid: Number(pid), group: groupIn(stat) };
}

/** `pid (name) state parent group …`; the name may hold blanks and brackets. */
const groupIn = (stat: string): number => Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]);

/** Ends a process group, but only a process where the group is our own. Says why it could not, or null. */
function kill({ pid, group }: Leftover, ownGroup: number): string | null {
  try {
    process.kill(group > 1 && group !== ownGroup ? -group : pid, 'SIGKILL');
    return null;
  } catch (error) {
    if (errnoOf(error) === 'ESRCH') return null;
    return messageOf(error);
  }
}
