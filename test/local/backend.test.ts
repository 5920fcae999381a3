import { describeBackend } from '../contract/backend.contract.js';
import { freshRunsDirectory } from '../support/job-directory.js';
import { localProfile, openLocal } from '../support/local-jobs.js';

describeBackend(
  'local',
  async () => {
    const runsDir = await freshRunsDirectory();
    const backend = await openLocal(runsDir);
    return {
      backend,
      runsDir,
      reopen: async () => await openLocal(runsDir),
      profile: async (scriptText, overrides) => localProfile(runsDir, scriptText, overrides),
      close: async () => await backend.close(),
    };
  },
  { patienceMs: 10_000, shortestWalltimeS: 1, exactSubmitTimes: true },
);
