import { readdir, readFile } from 'node:fs/promises';
import { z } from 'zod';
import type { JobId } from '../machines/vocabulary.js';
import { errnoOf } from '../workdir/io-error.js';

/** Every process of a job carries this variable: how strays that left the job's session are found. */
export const MARKER = 'OPEN_COMPUTE_JOB_ID';

/** What proc(5) says about a process. `startTicks` makes a pid an identity: pids are used again (INV-13). */
export interface ProcessStat {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  readonly startTicks: number;
}

const number = z
  .string()
  .regex(/^-?\d+$/)
  .transform(Number);
/** proc(5): the fields after the name in parentheses, which may itself hold spaces and parentheses. */
const StatFields = z.tuple([z.string(), number, number, number], z.string());

/** null: there is no such process any more, or only its unreaped rest. Throws when /proc itself cannot be read. */
export async function readProcess(pid: number): Promise<ProcessStat | null> {
  let text: string;
  try {
    text = await readFile(`/proc/${String(pid)}/stat`, 'utf8');
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT' || errno === 'ESRCH') return null;
    throw error;
  }
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state, parent, group, session] = StatFields.parse(fields);
  if (state === 'Z' || state === 'X') return null;
  return { pid, parent, group, session, startTicks: number.parse(fields[19]) };
}

let bootId: Promise<string> | null = null;

/** Changes with every boot: start times count from it. Read once, for this process ends with its boot. */
export async function readBootId(): Promise<string> {
  bootId ??= readFile('/proc/sys/kernel/random/boot_id', 'utf8').then((text) => text.trim());
  return await bootId;
}

/** How a job's own script names its run: boot, pid and start time. `RUN_IDENTITY_SHELL` makes it, this reads it. */
export interface RunIdentity {
  readonly bootId: string;
  readonly pid: number;
  readonly startTicks: number;
}

const RUN_IDENTITY = /^([0-9a-f-]{36})\.(\d{1,10})\.(\d{1,20})$/;

export function parseRunIdentity(text: string): RunIdentity | null {
  const [, bootId, pid, startTicks] = RUN_IDENTITY.exec(text) ?? [];
  if (bootId === undefined) return null;
  return { bootId, pid: Number(pid), startTicks: Number(startTicks) };
}

/** Whether this very process lives: same boot, same pid, same start. */
export async function isAlive(identity: RunIdentity): Promise<boolean> {
  if (identity.bootId !== (await readBootId())) return false;
  return (await readProcess(identity.pid))?.startTicks === identity.startTicks;
}

/** A job whose processes are looked for; `leader`: its session's leader, known to be alive, or null. */
export interface Tree {
  readonly jobId: JobId;
  readonly leader: number | null;
}

/**
 * The processes of every tree, found in one pass over /proc: who carries the job's marker, who is in the session of its
 * living leader, and their descendants. Not found: a process that left the session, lost its parent and cleared its
 * environment, and one that runs as another user.
 */
export async function findTrees(trees: readonly Tree[]): Promise<ReadonlyMap<JobId, readonly ProcessStat[]>> {
  const found = new Map<JobId, Set<number>>(trees.map((tree) => [tree.jobId, new Set<number>()]));
  if (trees.length === 0) return new Map();
  const processes: ProcessStat[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    const stat = await readProcess(Number(name));
    if (stat === null) continue;
    processes.push(stat);
    const marker = await readMarker(stat.pid);
    for (const tree of trees) {
      if (marker === tree.jobId || (tree.leader !== null && stat.session === tree.leader))
        found.get(tree.jobId)?.add(stat.pid);
    }
  }
  for (const pids of found.values()) addDescendants(pids, processes);
  return new Map([...found].map(([jobId, pids]) => [jobId, processes.filter(({ pid }) => pids.has(pid))]));
}

function addDescendants(pids: Set<number>, processes: readonly ProcessStat[]): void {
  for (let grown = true; grown;) {
    grown = false;
    for (const { pid, parent } of processes) {
      if (pids.has(parent) && !pids.has(pid)) {
        pids.add(pid);
        grown = true;
      }
    }
  }
}

async function readMarker(pid: number): Promise<string | null> {
  try {
    const environment = await readFile(`/proc/${String(pid)}/environ`, 'latin1');
    const entry = environment.split('\0').find((each) => each.startsWith(`${MARKER}=`));
    return entry === undefined ? null : entry.slice(MARKER.length + 1);
  } catch (error) {
    // Gone in the meantime, or another user's.
    if (errnoOf(error) !== null) return null;
    throw error;
  }
}
