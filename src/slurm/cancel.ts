import type { CancelReply, CancelTarget, NoAnswer } from '../backend.js';
import type { Handle } from '../machines/vocabulary.js';
import type { Broker } from './broker.js';
import { classifyCancel } from './classify.js';

/** Ids in one call. scancel sends one request per id; 200 keep a call short, and what fails with it small. */
const CHUNK = 200;

/**
 * What the newest poll says about an id (INV-13). `reused`: another job holds it by now, so ours is gone and there is
 * nothing to cancel. `unheard`: the queue did not answer then, or was never asked; nobody knows whose the id is.
 */
export type Standing = 'ours' | 'reused' | 'unheard';

export interface CancelOptions {
  readonly broker: Broker;
  readonly timeLimitMs: number;
  readonly standing: (target: CancelTarget) => Standing;
}

export function cancelArgv(ids: readonly string[], cluster: string | null): readonly string[] {
  return [...(cluster === null ? [] : [`--clusters=${cluster}`]), ...ids];
}

/**
 * Asks for the end of many jobs, many ids to a call, each call on its own: one that fails does not stop the others. An
 * id that is over or unknown counts as asked.
 */
export async function cancel(targets: readonly CancelTarget[], options: CancelOptions): Promise<CancelReply> {
  const asked: Handle[] = [];
  let outage: NoAnswer | null = null;
  const byCluster = new Map<string | null, Handle[]>();
  for (const target of targets) {
    const { handle } = target;
    const standing = options.standing(target);
    if (standing === 'reused') asked.push(handle);
    if (standing === 'unheard')
      outage ??= { kind: 'unreachable', detail: 'the queue has not said yet whose this id is' };
    if (standing !== 'ours') continue;
    const group = byCluster.get(handle.cluster);
    if (group === undefined) byCluster.set(handle.cluster, [handle]);
    else group.push(handle);
  }
  for (const [cluster, group] of byCluster) {
    for (let start = 0; start < group.length; start += CHUNK) {
      const chunk = group.slice(start, start + CHUNK);
      const ending = await options.broker.run({
        command: 'scancel',
        argv: cancelArgv(
          chunk.map((handle) => handle.id),
          cluster,
        ),
        timeLimitMs: options.timeLimitMs,
        outputLimitBytes: 1024 * 1024,
        overflow: 'cut',
      });
      const reply = classifyCancel(ending);
      if (reply.kind === 'asked') asked.push(...chunk);
      else outage ??= reply;
    }
  }
  return { asked, outage };
}
