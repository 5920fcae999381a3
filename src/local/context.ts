import type { NoAnswer } from '../backend.js';
import type { JobId } from '../machines/vocabulary.js';
import type { Clock } from '../runtime/clock.js';
import { errnoOf, messageOf } from '../workdir/io-error.js';
import { MARKER } from './proc.js';
import type { StartQueue } from './queue.js';
import type { Registry, Submission } from './registry.js';

/** What the parts of the local backend share. */
export interface LocalContext {
  readonly runsDir: string;
  readonly clock: Clock;
  readonly killGraceMs: number;
  readonly registry: Registry;
  readonly queue: StartQueue;
  /** What jobs and steps inherit of this process's environment. */
  readonly inherited: Readonly<Record<string, string>>;
}

/** What a job's own script gets to see: nothing of this process but what is listed, and the marker. */
export const environmentOf = (
  inherited: Readonly<Record<string, string>>,
  jobId: JobId,
): Readonly<Record<string, string>> => ({ ...inherited, [MARKER]: jobId });

/** What a step in a job gets to see: the same as the job's profile. */
export const stepEnvironmentOf = (
  inherited: Readonly<Record<string, string>>,
  submission: Submission,
): Readonly<Record<string, string>> => ({ ...inherited, ...submission.environment, [MARKER]: submission.jobId });

/** The registry or /proc did not answer: nothing is known, and no job changes (INV-10). Rethrows anything else. */
export function outageOf(doing: string, error: unknown): NoAnswer {
  if (errnoOf(error) === null) throw error;
  return { kind: 'unreachable', detail: `${doing}: ${messageOf(error)}` };
}
