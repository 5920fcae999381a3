import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { SelfTest } from '../backend.js';
import { LOG_FILE, openStateDirectory } from '../events/state-directory.js';
import { checkRunsDirectory } from '../workdir/runs-directory.js';
import { readCredentials, valueOf, withClient } from './client.js';
import { createBackend, readProfiles, type BackendName, type ClusterConfig, type ProfileSources } from './compose.js';
import { reportOf } from './errors.js';
import type { Io } from './io.js';

export interface Finding {
  readonly check: string;
  /** `skipped`: nothing was named to check. */
  readonly status: 'ok' | 'warning' | 'failed' | 'skipped';
  readonly detail: string;
}

/** What of package.json's `engines`. */
const NODE_MIN = [20, 19] as const;

export function checkNode(version: string): Finding {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number);
  const fits = major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1]);
  const detail = fits ? version : `${version}; this needs ${NODE_MIN.join('.')} or newer`;
  return { check: 'node', status: fits ? 'ok' : 'failed', detail };
}

/** Runs a check; what it throws is its finding. */
export async function finding(check: string, run: () => Promise<Omit<Finding, 'check'>>): Promise<Finding> {
  try {
    return { check, ...(await run()) };
  } catch (error) {
    const { message, hint } = reportOf(error);
    return { check, status: 'failed', detail: hint === '' ? message : `${message} (${hint})` };
  }
}

const ok = (detail: string): Omit<Finding, 'check'> => ({ status: 'ok', detail });
export const skipped = (check: string, detail: string): Finding => ({ check, status: 'skipped', detail });

/** Reads it, if it is there: its owner may be running. */
export const checkStateDirectory = (io: Io, directory: string): Promise<Finding> =>
  finding('state directory', async () => {
    if (!(await exists(join(directory, LOG_FILE)))) return ok(`${directory} has no log yet; the first start makes it`);
    const state = await openStateDirectory(directory, {
      mode: 'read',
      writer: 'doctor',
      nowMs: () => io.clock.nowMs(),
    });
    try {
      return ok(`${state.path}, ${String(await state.store.lastPosition())} events`);
    } finally {
      await state.close();
    }
  });

export const checkRuns = (directory: string): Promise<Finding> =>
  finding('runs directory', async () => {
    if (!(await exists(directory))) return ok(`${directory} is not there yet; the first start makes it`);
    const check = await checkRunsDirectory(directory);
    return check.kind === 'ok' ? ok(directory) : { status: 'failed', detail: check.problem };
  });

/** The profiles that are offered, and the cluster.toml that was read for the backend. */
export async function checkProfiles(
  io: Io,
  sources: ProfileSources,
): Promise<{ readonly finding: Finding; readonly cluster: ClusterConfig | null }> {
  let cluster: ClusterConfig | null = null;
  const found = await finding('profiles', async () => {
    const read = await readProfiles(io, sources);
    cluster = read.cluster;
    const from = read.cluster === null ? '' : `, with ${read.cluster.file}`;
    if (read.profiles.size > 0) return ok(`${[...read.profiles.keys()].join(', ')}${from}`);
    return { status: 'warning', detail: `none is offered${from}` };
  });
  return { finding: found, cluster };
}

/** Runs every external command once in the form that is used later, as a worker does when it starts. */
export async function checkBackend(
  io: Io,
  name: BackendName,
  cluster: ClusterConfig | null,
  runsDir: string | null,
): Promise<readonly Finding[]> {
  const check = `backend ${name}`;
  const warnings: Finding[] = [];
  const result = await finding(check, async () => {
    const own = runsDir !== null && (await exists(runsDir));
    const directory = own ? runsDir : await mkdtemp(join(tmpdir(), 'open-compute-doctor-'));
    try {
      const backend = await createBackend(io, { name, cluster, runsDir: directory, maxRunning: null });
      try {
        const test = await backend.selfTest();
        if (test.kind === 'fit')
          warnings.push(...test.warnings.map((detail) => ({ check, status: 'warning', detail }) as const));
        return selfTestFinding(test);
      } finally {
        await backend.close();
      }
    } finally {
      if (!own) await rm(directory, { recursive: true, force: true });
    }
  });
  return [result, ...warnings];
}

function selfTestFinding(test: SelfTest): Omit<Finding, 'check'> {
  switch (test.kind) {
    case 'fit':
      return ok(
        Object.entries(test.report)
          .map(([key, value]) => `${key} ${value}`)
          .join(', '),
      );
    case 'unfit':
      return { status: 'failed', detail: test.problems.join('; ') };
    case 'timedOut':
    case 'unreachable':
      return { status: 'failed', detail: test.detail };
  }
}

export const checkCredentials = (io: Io, file: string | undefined): Promise<Finding> =>
  finding('credentials', async () => {
    const { url, id } = await readCredentials(io, file);
    return ok(`${id} for ${url}`);
  });

export const checkCoordinator = (io: Io, file: string | undefined): Promise<Finding> =>
  finding('coordinator', () =>
    withClient(io, file, async (client) => {
      const { name, role } = valueOf(await client.whoami());
      return ok(`${client.url} knows this credential as ${name}, role ${role}`);
    }),
  );

const exists = (path: string): Promise<boolean> =>
  stat(resolve(path)).then(
    () => true,
    () => false,
  );
