import type { Profile } from '../backend.js';
import type { JobId } from '../machines/vocabulary.js';

/** Prepared; `invalidSpec`: it can never be (script missing, changed …); `io`: it could not be now, try again. */
export type PrepareReply =
  | { readonly kind: 'ok' }
  | { readonly kind: 'invalidSpec'; readonly detail: string }
  | { readonly kind: 'io'; readonly detail: string };

export type CollectReply =
  | { readonly kind: 'ok'; readonly value: unknown; readonly bytes: number; readonly sha256: string }
  | { readonly kind: 'missing'; readonly detail: string }
  | { readonly kind: 'invalid'; readonly detail: string }
  | { readonly kind: 'io'; readonly detail: string };

/** What the job's own script said at its end. */
export interface EndMarker {
  readonly stage: 'bootstrap' | 'profile';
  readonly exitCode: number | null;
  readonly signal: number | null;
}

/** Which of the backend's jobs won the right to run here. `unknown`: the file system does not answer. */
export type ClaimReply =
  | { readonly kind: 'held'; readonly id: string }
  | { readonly kind: 'none' }
  | { readonly kind: 'unknown'; readonly detail: string };

/** The job directories as the loop uses them. Never throws for what a file system can do. */
export interface JobDirectories {
  path(jobId: JobId): string;
  prepare(jobId: JobId, content: { readonly parameters: unknown; readonly profile: Profile }): Promise<PrepareReply>;
  collect(jobId: JobId, limitBytes: number): Promise<CollectReply>;
  /** null: there is none (yet). */
  endMarker(jobId: JobId): Promise<EndMarker | null>;
  claim(jobId: JobId): Promise<ClaimReply>;
  tails(jobId: JobId, limitBytes: number): Promise<{ readonly stdout: string; readonly stderr: string }>;
  remove(jobId: JobId): Promise<{ readonly kind: 'ok' } | { readonly kind: 'io'; readonly detail: string }>;
  /** Jobs that left a mark since the last call (they began, or ended). */
  takeWakes(): Promise<readonly JobId[]>;
}
