import { lstat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { jobFiles } from '../workdir/directory.js';
import { errnoOf } from '../workdir/io-error.js';
import { readClaim, readDone, type DoneMarker } from '../workdir/markers.js';
import { isAlive, parseRunIdentity, type RunIdentity } from './proc.js';
import type { Registry, Submission } from './registry.js';

/** The claim of a job that was cancelled before it started: its script can not win it any more. */
export const CANCELLED_CLAIM = 'cancelled';

/** What is true about a job of this machine. */
export type LocalState =
  /** Entered and not started. */
  | { readonly kind: 'waiting' }
  | { readonly kind: 'running'; readonly run: RunIdentity; readonly cancelAskedAtMs: number | null }
  | {
      readonly kind: 'ended';
      readonly marker: DoneMarker;
      readonly run: RunIdentity | null;
      readonly timedOut: boolean;
      readonly cancelAsked: boolean;
    }
  /** Cancelled before it started: it never will. */
  | { readonly kind: 'withdrawn' }
  /** Its script ended before it had the claim. */
  | { readonly kind: 'failedToStart'; readonly detail: string }
  /** Gone without an end marker, for a reason that we know: we killed it. */
  | { readonly kind: 'killed'; readonly by: 'cancel' | 'timeLimit' }
  /** Gone without a trace of how it ended. */
  | { readonly kind: 'vanished'; readonly detail: string }
  /** The file system did not say. */
  | { readonly kind: 'unknown'; readonly detail: string };

/** Looks at a job's files and at its process. Throws the errors of the registry's file system and of /proc. */
export async function lookAt(submission: Submission, registry: Registry): Promise<LocalState> {
  const files = jobFiles(dirname(submission.directory), submission.jobId);
  const { token } = submission;
  const claim = await readClaim(files);
  if (claim.kind === 'io') return { kind: 'unknown', detail: claim.detail };
  if (claim.kind === 'missing') return await withoutClaim(submission, registry);
  if (claim.kind === 'ok' && claim.identity === CANCELLED_CLAIM) return { kind: 'withdrawn' };
  const run = claim.kind === 'ok' ? parseRunIdentity(claim.identity) : null;
  const cancel = await registry.readNote(token, 'cancel');
  // The process first, then the marker: one that ended in between has written it.
  const alive = run !== null && (await isAlive(run));
  const done = await readDone(files);
  if (done.kind === 'io') return { kind: 'unknown', detail: done.detail };
  const timedOut = (await registry.readNote(token, 'timeout')) !== null;
  if (done.kind === 'ok' && done.marker.token === token) {
    return { kind: 'ended', marker: done.marker, run, timedOut, cancelAsked: cancel !== null };
  }
  if (alive) return { kind: 'running', run, cancelAskedAtMs: cancel === null ? null : Number(cancel) };
  if (cancel !== null) return { kind: 'killed', by: 'cancel' };
  if (timedOut) return { kind: 'killed', by: 'timeLimit' };
  const who = run === null ? 'its claim names no process of this machine' : `process ${String(run.pid)} is gone`;
  return {
    kind: 'vanished',
    detail: `${who} and left no end marker${done.kind === 'invalid' ? ` (${done.detail})` : ''}`,
  };
}

async function withoutClaim({ token, directory }: Submission, registry: Registry): Promise<LocalState> {
  try {
    await lstat(directory);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return { kind: 'vanished', detail: `its directory ${directory} is gone` };
    throw error;
  }
  const failed = await registry.readNote(token, 'failed');
  return failed === null ? { kind: 'waiting' } : { kind: 'failedToStart', detail: failed };
}

/** Whether nothing of the job runs or will run; strays that left its session may still have to be ended. */
export const isOver = (state: LocalState): boolean =>
  state.kind !== 'waiting' && state.kind !== 'running' && state.kind !== 'unknown';
