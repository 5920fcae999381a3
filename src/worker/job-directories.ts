import type { Log } from '../runtime/log.js';
import { collectResult, readTail } from '../workdir/collect.js';
import { jobFiles, prepareDirectory, removeDirectory } from '../workdir/directory.js';
import { readClaim, readDone, takeWakes } from '../workdir/markers.js';
import { presenceOf } from '../workdir/presence.js';
import { prepareSession, putCredential, sessionFiles } from '../workdir/session-files.js';
import type { JobId } from '../machines/vocabulary.js';
import type { JobDirectories } from './directories.js';
import type { SessionDirectories } from './sessions/context.js';

/**
 * The job directories below `runsDir`, which has passed `checkRunsDirectory`. One worker per runs directory: the wake
 * files in it are taken by whoever looks first. What the file system does not answer now is said once to `log` and
 * counts as "not there yet": every caller looks again.
 */
export function jobDirectories(runsDir: string, log: Log): JobDirectories {
  let said = '';
  const say = (detail: string): void => {
    if (detail !== said && detail !== '') log.warn({ detail }, 'the runs directory does not answer');
    said = detail;
  };
  const files = (jobId: JobId): ReturnType<typeof jobFiles> => jobFiles(runsDir, jobId);

  return {
    path: (jobId) => files(jobId).directory,
    prepare: (jobId, content) => prepareDirectory(files(jobId), content),
    collect: (jobId, limitBytes) => collectResult(files(jobId), limitBytes),
    endMarker: async (jobId) => {
      const done = await readDone(files(jobId));
      if (done.kind !== 'ok') {
        if (done.kind !== 'missing') say(done.detail);
        return null;
      }
      const { stage, status, signal } = done.marker;
      return { stage, exitCode: signal === null ? status : null, signal };
    },
    claim: async (jobId) => {
      const claim = await readClaim(files(jobId));
      if (claim.kind === 'ok') return { kind: 'held', id: claim.identity };
      const why = claim.kind === 'missing' ? await presenceOf(files(jobId)) : claim;
      if (why.kind === 'io') say(why.detail);
      return why.kind === 'io' ? { kind: 'unknown', detail: why.detail } : { kind: 'none' };
    },
    tails: async (jobId, limitBytes) => {
      const { stdout, stderr } = files(jobId);
      const [out, err] = await Promise.all([tail(stdout, limitBytes), tail(stderr, limitBytes)]);
      return { stdout: out, stderr: err };
    },
    remove: (jobId) => removeDirectory(files(jobId)),
    takeWakes: async () => {
      const wakes = await takeWakes(runsDir);
      say(wakes.kind === 'io' ? wakes.detail : '');
      return wakes.kind === 'ok' ? wakes.jobIds : [];
    },
  };
}

/** The same directories as sessions use them. */
export function sessionDirectories(runsDir: string): SessionDirectories {
  const files = (jobId: JobId): ReturnType<typeof jobFiles> => jobFiles(runsDir, jobId);
  return {
    prepareSession: (jobId, content) => prepareSession(files(jobId), content),
    putCredential: (jobId, rank, text) => putCredential(files(jobId), rank, text),
    sessionPaths: (jobId) => {
      const { agent, config, credentialTemplate } = sessionFiles(files(jobId));
      return { agent, config, credentials: credentialTemplate };
    },
  };
}

/** For people: what can not be read says so in place of the text. */
async function tail(path: string, limitBytes: number): Promise<string> {
  const read = await readTail(path, limitBytes);
  if (read.kind === 'ok') return read.text;
  return read.kind === 'missing' ? '' : '[open-compute: this output can not be read]\n';
}
