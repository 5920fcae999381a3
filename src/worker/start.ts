import type { Profile, SelfTest } from '../backend.js';
import type { Hello, PublicProfile } from '../coordinator/worker-api.js';
import { WorkerStartError, type WorkerDeps } from './context.js';
import { kindsOf, servedBy } from './intake.js';

const RETRY_MS = { first: 1_000, max: 30_000 } as const;

type Fit = Extract<SelfTest, { kind: 'fit' }>;

/**
 * The self-test: a backend whose commands do not fit is refused at once (`WorkerStartError`); one that does not answer
 * is waited for. null when the signal aborts first.
 */
export async function waitForBackend(deps: WorkerDeps, signal: AbortSignal): Promise<Fit | null> {
  const { backend, log, clock } = deps;
  for (let waitMs: number = RETRY_MS.first; !signal.aborted; waitMs = Math.min(RETRY_MS.max, waitMs * 2)) {
    const test = await backend.selfTest();
    if (test.kind === 'unfit') {
      throw new WorkerStartError(`backend ${backend.name} does not fit:\n  ${test.problems.join('\n  ')}`);
    }
    if (test.kind === 'fit') {
      for (const warning of test.warnings) log.warn({ backend: backend.name }, warning);
      return test;
    }
    log.warn({ backend: backend.name, detail: test.detail, retryInMs: waitMs }, 'the backend does not answer, waiting');
    await clock.sleep(waitMs, signal);
  }
  return null;
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
  kinds: [...kindsOf(profile)],
});

/** What this worker offers. */
export const helloOf = (deps: WorkerDeps): Hello => ({
  site: deps.backend.site,
  kinds: [...servedBy(deps)],
  profiles: [...deps.profiles.values()].map(publicProfile),
  capacity: deps.config.capacity,
});
