import type { CancelReply, NoAnswer } from '../backend.js';
import type { Handle } from '../machines/vocabulary.js';
import type { Broker } from './broker.js';
import { classifyCancel } from './classify.js';

/** Ids in one call. scancel sends one request per id; 200 keep a call short, and what fails with it small. */
const CHUNK = 200;

export interface CancelOptions {
  readonly broker: Broker;
  readonly timeLimitMs: number;
  /** Does another job hold this id by now (INV-13)? Then ours is gone, and there is nothing to cancel. */
  readonly isReused: (handle: Handle) => boolean;
}

export function cancelArgv(ids: readonly string[], cluster: string | null): readonly string[] {
  return [...(cluster === null ? [] : [`--clusters=${cluster}`]), ...ids];
}

/**
 * Asks for the end of many jobs, many ids to a call, each call on its own: one that fails does not stop the others. An
 * id that is over or unknown counts as asked.
 */
export async function cancel(handles: readonly Handle[], options: CancelOptions): Promise<CancelReply> {
  const asked: Handle[] = [];
  let outage: NoAnswer | null = null;
  const byCluster = new Map<string | null, Handle[]>();
  for (const handle of handles) {
    if (options.isReused(handle)) {
      asked.push(handle);
      continue;
    }
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
