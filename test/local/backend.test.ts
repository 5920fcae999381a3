import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Profile } from '../../src/backend.js';
import { createLocalBackend } from '../../src/local/backend.js';
import { systemClock } from '../../src/runtime/clock.js';
import { describeBackend } from '../contract/backend.contract.js';
import { freshRunsDirectory, nextToken } from '../support/job-directory.js';

describeBackend(
  'local',
  async () => {
    const runsDir = await freshRunsDirectory();
    const reopen = async () =>
      await createLocalBackend({
        runsDir,
        clock: systemClock,
        maxRunning: 16,
        environment: process.env,
        killGraceMs: 300,
      });
    const backend = await reopen();
    return {
      backend,
      runsDir,
      reopen,
      profile: async (scriptText, overrides) => await localProfile(runsDir, scriptText, overrides),
      close: async () => await backend.close(),
    };
  },
  { patienceMs: 10_000, shortestWalltimeS: 1 },
);

/** A profile with this script and no limits. */
export async function localProfile(
  runsDir: string,
  scriptText: string,
  overrides: Partial<Profile> = {},
): Promise<Profile> {
  const scriptPath = join(runsDir, '..', `profile-${nextToken()}.sh`);
  writeFileSync(scriptPath, scriptText, { mode: 0o755 });
  return {
    name: 'test',
    description: '',
    scriptPath,
    sha256: null,
    cpus: null,
    memoryMiB: null,
    gpus: null,
    nodes: null,
    walltimeS: null,
    heldFailsAfterS: null,
    parametersSchema: null,
    environment: {},
    placement: {},
    ...overrides,
  };
}
