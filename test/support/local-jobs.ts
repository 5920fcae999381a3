import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Backend, CancelTarget, JobAnswer, Profile, SubmitRequest, WatchItem } from '../../src/backend.js';
import { createLocalBackend, type LocalBackendOptions } from '../../src/local/backend.js';
import type { Handle } from '../../src/machines/vocabulary.js';
import { systemClock } from '../../src/runtime/clock.js';
import { jobFiles, prepareDirectory, type JobFiles } from '../../src/workdir/directory.js';
import { jobIdOf, nextToken } from './job-directory.js';
import { eventually } from './wait.js';

/** A profile with this script and no limits. */
export function localProfile(runsDir: string, scriptText: string, overrides: Partial<Profile> = {}): Profile {
  const scriptPath = join(runsDir, '..', `profile-${nextToken()}.sh`);
  writeFileSync(scriptPath, scriptText, { mode: 0o755 });
  return {
    name: 'test',
    description: '',
    scriptPath,
    session: null,
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

export async function openLocal(runsDir: string, overrides: Partial<LocalBackendOptions> = {}): Promise<Backend> {
  return await createLocalBackend({
    runsDir,
    clock: systemClock,
    maxRunning: 16,
    environment: process.env,
    killGraceMs: 300,
    ...overrides,
  });
}

export interface LocalJob {
  readonly files: JobFiles;
  readonly request: SubmitRequest;
  readonly handle: Handle;
  readonly item: WatchItem;
  readonly target: CancelTarget;
}

export async function prepareLocal(
  backend: Backend,
  runsDir: string,
  scriptText: string,
  overrides: Partial<Profile> = {},
): Promise<Omit<LocalJob, 'handle' | 'target'>> {
  const token = nextToken();
  const jobId = jobIdOf(token);
  const files = jobFiles(runsDir, jobId);
  const profile = localProfile(runsDir, scriptText, overrides);
  const prepared = await prepareDirectory(files, { parameters: {}, profile });
  if (prepared.kind !== 'ok') throw new Error(prepared.detail);
  const request = { jobId, token, profile, directory: files.directory, session: null };
  await backend.prepare(request);
  return { files, request, item: { jobId, token, handle: null, sinceMs: 0 } };
}

export async function submitLocal(
  backend: Backend,
  runsDir: string,
  scriptText: string,
  overrides: Partial<Profile> = {},
): Promise<LocalJob> {
  const job = await prepareLocal(backend, runsDir, scriptText, overrides);
  const reply = await backend.submit(job.request);
  if (reply.kind !== 'accepted') throw new Error(`not accepted: ${JSON.stringify(reply)}`);
  const { handle } = reply;
  return { ...job, handle, target: { token: job.request.token, handle } };
}

/** One look at one job. */
export async function lookAtJob(backend: Backend, item: WatchItem): Promise<JobAnswer> {
  const { jobs, outage } = await backend.observe([item]);
  const answer = jobs.get(item.jobId);
  if (answer === undefined) throw new Error(`no answer: ${JSON.stringify(outage)}`);
  return answer;
}

/** A job in few words: its phase with its reason, or `absent`, `unanswered`. */
export async function briefly(backend: Backend, item: WatchItem): Promise<string> {
  const answer = await lookAtJob(backend, item);
  if (answer.kind !== 'seen') return answer.kind;
  return 'reason' in answer.state ? `${answer.state.phase} ${answer.state.reason}` : answer.state.phase;
}

export async function untilBriefly(backend: Backend, item: WatchItem, wanted: string): Promise<void> {
  let last = '';
  await eventually(async () => {
    last = await briefly(backend, item);
    return last === wanted ? true : null;
  }).catch((error: unknown) => {
    throw new Error(`waited for ${wanted}, last seen ${last}`, { cause: error });
  });
}
