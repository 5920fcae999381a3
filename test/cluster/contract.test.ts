import { mkdtempSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../../src/runtime/clock.js';
import { createSlurmBackend, currentUser, profileFromPath } from '../../src/slurm/index.js';
import type { Backend } from '../../src/backend.js';
import { checkRunsDirectory } from '../../src/workdir/runs-directory.js';
import { describeBackend } from '../contract/backend.contract.js';
import { SLURM_CONF } from './support/site.js';

/** The same promises as the local backend's, kept by the real scheduler. Runs as root, whose jobs the cluster takes. */

function open(): Backend {
  return createSlurmBackend({
    jobNamePrefix: 'oc',
    clusterName: null,
    clusters: [],
    binariesDir: null,
    path: process.env['PATH'] ?? '/usr/bin:/bin',
    slurmConf: SLURM_CONF,
    user: currentUser(),
    clock: systemClock,
  });
}

describeBackend(
  'Slurm',
  async () => {
    const directory = mkdtempSync('/tmp/open-compute-test-');
    const runsDir = join(directory, 'runs');
    const check = await checkRunsDirectory(runsDir);
    if (check.kind !== 'ok') throw new Error(JSON.stringify(check));
    const backend = open();
    const reopen = async (): Promise<Backend> => {
      const again = open();
      await again.selfTest();
      return again;
    };
    await backend.selfTest();
    let scripts = 0;
    return {
      backend,
      runsDir,
      profile: (text, overrides = {}) => {
        scripts += 1;
        const path = join(directory, `profile-${String(scripts)}.sh`);
        writeFileSync(path, text, { mode: 0o755 });
        return Promise.resolve({ ...profileFromPath(`profile-${String(scripts)}`, path), ...overrides });
      },
      reopen,
      close: () => backend.close(),
    };
  },
  { patienceMs: 60_000, shortestWalltimeS: null, exactSubmitTimes: false },
);
