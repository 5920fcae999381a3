import type { SeenState } from '../backend.js';
import { EXIT_BOOTSTRAP, EXIT_CLAIM_TAKEN } from '../workdir/script.js';

/** sacct's `ExitCode`: `code:signal`. */
export interface ExitCode {
  readonly code: number;
  readonly signal: number;
}

export interface Failure {
  readonly state: SeenState;
  readonly why: string;
}

/** Reads `3:0` or `0:11`; anything else is null (a node's death leaves the field empty). */
export function parseExitCode(text: string): ExitCode | null {
  const match = /^([0-9]{1,5}):([0-9]{1,5})$/.exec(text);
  return match === null ? null : { code: Number(match[1]), signal: Number(match[2]) };
}

/** Slurm's own "signals": the output file could not be opened (53), the prolog failed (54), out of memory (125). */
const LAUNCH_SIGNALS: ReadonlySet<number> = new Set([53, 54]);
const OUT_OF_MEMORY_SIGNAL = 125;

const failed = (
  reason: 'EXIT_NONZERO' | 'SIGNALED' | 'BOOTSTRAP_FAILED' | 'OUT_OF_MEMORY' | 'DUPLICATE',
  why: string,
) => ({ state: { phase: 'Failed', reason }, why }) satisfies Failure;

/** What a FAILED job died of, by accounting's exit code. */
export function failureFromExitCode(exit: ExitCode): Failure {
  if (exit.signal !== 0) {
    if (LAUNCH_SIGNALS.has(exit.signal))
      return failed('BOOTSTRAP_FAILED', `could not be started (0:${String(exit.signal)})`);
    if (exit.signal === OUT_OF_MEMORY_SIGNAL) return failed('OUT_OF_MEMORY', 'used more memory than it asked for');
    return failed('SIGNALED', `killed by signal ${String(exit.signal)}`);
  }
  if (exit.code === 0) return failed('BOOTSTRAP_FAILED', 'failed without an exit code of its own');
  if (exit.code === EXIT_BOOTSTRAP)
    return failed('BOOTSTRAP_FAILED', `its script could not start the profile (${String(exit.code)})`);
  if (exit.code === EXIT_CLAIM_TAKEN) return failed('DUPLICATE', 'another job holds the claim on its directory');
  return failed('EXIT_NONZERO', `exit code ${String(exit.code)}`);
}

/**
 * What a FAILED job died of, by squeue's reason alone: where accounting is not kept. 22.05 says JobLaunchFailure both
 * for a job that could not be started and for one that died by a signal; newer releases say `RaisedSignal:11(…)`.
 */
export function failureFromReason(reason: string): Failure {
  if (reason === 'NonZeroExitCode') return failed('EXIT_NONZERO', 'exit code not zero');
  if (reason === 'OutOfMemory') return failed('OUT_OF_MEMORY', 'used more memory than it asked for');
  const raised = /^RaisedSignal:([0-9]{1,3})\(/.exec(reason);
  if (raised !== null) return failureFromExitCode({ code: 0, signal: Number(raised[1]) });
  if (reason === 'JobLaunchFailure')
    return failed('BOOTSTRAP_FAILED', 'could not be started, or was killed by a signal');
  return failed('EXIT_NONZERO', 'failed');
}

/** What a COMPLETED job's steps went through, from `DerivedExitCode`: the highest exit code of any step. */
export function stepWarnings(derived: ExitCode | null): readonly string[] {
  if (derived === null || (derived.code === 0 && derived.signal === 0)) return [];
  if (derived.signal === OUT_OF_MEMORY_SIGNAL) return ['a step ran out of memory: the result may lack what it did'];
  if (derived.signal !== 0) return [`a step was killed by signal ${String(derived.signal)}`];
  return [`a step ended with exit code ${String(derived.code)}`];
}
