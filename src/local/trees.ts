import type { JobId } from '../machines/vocabulary.js';
import { findTrees, isAlive, type RunIdentity } from './proc.js';
import { signalProcess } from './process.js';

/** A job whose processes are to be ended. `run`: its script's own process, if it ever claimed. */
export interface Remains {
  readonly jobId: JobId;
  readonly run: RunIdentity | null;
}

/**
 * Sends a signal to every process of these jobs, also to those that left the session (see `findTrees` for what is not
 * covered); one pass over /proc. Answers how many processes each job had.
 */
export async function signalTrees(
  jobs: readonly Remains[],
  signal: 'SIGTERM' | 'SIGKILL',
): Promise<ReadonlyMap<JobId, number>> {
  const trees = await Promise.all(
    jobs.map(async ({ jobId, run }) => ({ jobId, leader: run !== null && (await isAlive(run)) ? run.pid : null })),
  );
  const found = await findTrees(trees);
  for (const { jobId, leader } of trees) {
    if (leader !== null) signalProcess(-leader, signal);
    for (const { pid, group } of found.get(jobId) ?? []) if (group !== leader) signalProcess(pid, signal);
  }
  return new Map([...found].map(([jobId, processes]) => [jobId, processes.length]));
}

const ROUNDS = 5;

/**
 * Kills what jobs that are over left behind, again and again until a pass finds nothing: a process may fork while it is
 * looked for. Their own scripts are spared: they are in their last act, which is to kill their group. Answers the jobs
 * of which something is still there.
 */
export async function killRemains(jobs: readonly Remains[]): Promise<ReadonlySet<JobId>> {
  let left = jobs;
  for (let round = 0; round < ROUNDS && left.length > 0; round += 1) {
    const found = await findTrees(left.map(({ jobId }) => ({ jobId, leader: null })));
    left = left.filter(({ jobId, run }) => {
      const strays = (found.get(jobId) ?? []).filter(({ pid }) => pid !== run?.pid);
      for (const { pid } of strays) signalProcess(pid, 'SIGKILL');
      return strays.length > 0;
    });
  }
  return new Set(left.map(({ jobId }) => jobId));
}
