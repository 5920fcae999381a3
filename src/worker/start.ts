import type { SelfTest } from '../backend.js';
import type { Hello, HelloAnswer, PublicProfile } from '../coordinator/worker-api.js';
import type { Profile } from '../backend.js';
import { WorkerStartError, type WorkerDeps } from './context.js';
import { KINDS } from './intake.js';

const RETRY_MS = { first: 1_000, max: 30_000 } as const;

/** Calls until it is answered; null when the signal aborts first. */
async function untilAnswered<T>(
  deps: WorkerDeps,
  signal: AbortSignal,
  attempt: () => Promise<{ readonly value: T } | { readonly wait: string }>,
): Promise<T | null> {
  for (let waitMs: number = RETRY_MS.first; !signal.aborted; waitMs = Math.min(RETRY_MS.max, waitMs * 2)) {
    const answer = await attempt();
    if ('value' in answer) return answer.value;
    deps.log.warn({ detail: answer.wait, retryInMs: waitMs }, 'waiting');
    await deps.clock.sleep(waitMs, signal);
  }
  return null;
}

/** The self-test: a backend whose commands do not fit is refused at once; one that does not answer is waited for. */
export function waitForBackend(
  deps: WorkerDeps,
  signal: AbortSignal,
): Promise<Extract<SelfTest, { kind: 'fit' }> | null> {
  return untilAnswered(deps, signal, async () => {
    const test = await deps.backend.selfTest();
    if (test.kind === 'unfit') {
      throw new WorkerStartError(`backend ${deps.backend.name} does not fit:\n  ${test.problems.join('\n  ')}`);
    }
    if (test.kind !== 'fit') return { wait: `backend ${deps.backend.name} does not answer: ${test.detail}` };
    for (const warning of test.warnings) deps.log.warn({ backend: deps.backend.name }, warning);
    return { value: test };
  });
}

/** A profile without anything of the backend's own (INV-2). */
export const publicProfile = (profile: Profile): PublicProfile => ({
  name: profile.name,
  description: profile.description,
  cpus: profile.cpus,
  memoryMiB: profile.memoryMiB,
  gpus: profile.gpus,
  nodes: profile.nodes,
  walltimeS: profile.walltimeS,
  parametersSchema: profile.parametersSchema === null ? null : { ...profile.parametersSchema },
});

/** Registers at the coordinator. A refused credential is final; an unreachable coordinator is waited for. */
export function waitForCoordinator(deps: WorkerDeps, signal: AbortSignal): Promise<HelloAnswer | null> {
  const hello: Hello = {
    site: deps.backend.site,
    kinds: [...KINDS],
    profiles: [...deps.profiles.values()].map(publicProfile),
    capacity: deps.config.capacity,
  };
  return untilAnswered(deps, signal, async () => {
    const answer = await deps.coordinator.hello(hello);
    switch (answer.kind) {
      case 'answered':
        return { value: answer.value };
      case 'unreachable':
        return { wait: `the coordinator does not answer: ${answer.detail}` };
      case 'refused':
        throw new WorkerStartError(`the coordinator refused this worker: ${answer.detail}`);
      case 'stale':
        throw new WorkerStartError(`the coordinator refused this worker: ${answer.detail}`);
    }
  });
}
