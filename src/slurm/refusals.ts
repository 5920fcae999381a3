/** One text of sbatch that is known to mean "no": nothing was submitted. */
export type Refusal = {
  /** How the last line of stderr ends. Earlier lines and the names of inner functions change between releases. */
  readonly line: string;
  /** Must be somewhere in stderr too. */
  readonly needs?: string;
  /** The recording that shows it, in at least one folder `fixtures/slurm-<release>/`. */
  readonly recording: string;
} & (
  | { readonly verdict: 'BACKEND_REJECTED' | 'INVALID_SPEC' }
  | { readonly verdict: 'deferred'; readonly limit: string }
  /** The same text for every limit of an account or a QoS: the line before it names the limit. */
  | { readonly verdict: 'policy' }
);

const failed = (text: string): string => `Batch job submission failed: ${text}`;

/**
 * The known refusals, each with a recording. What is not in here is "don't know" and is looked up by token: wording
 * changes between releases, and exit codes tell nothing (nearly everything is 1).
 */
export const REFUSALS: readonly Refusal[] = [
  // The controller said no.
  {
    line: failed('Invalid partition name specified'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/bad-partition.json',
  },
  { line: failed('Invalid qos specification'), verdict: 'BACKEND_REJECTED', recording: 'submit/bad-qos.json' },
  {
    line: failed('Invalid account or account/partition combination specified'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/bad-account-unknown.json',
  },
  { line: failed('Invalid feature specification'), verdict: 'BACKEND_REJECTED', recording: 'submit/bad-feature.json' },
  { line: failed('Invalid node name specified'), verdict: 'BACKEND_REJECTED', recording: 'submit/bad-nodelist.json' },
  { line: failed('Invalid job array specification'), verdict: 'INVALID_SPEC', recording: 'submit/bad-array.json' },
  {
    line: failed('Job dependency problem'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/bad-dependency-syntax.json',
  },
  {
    line: failed('More processors requested than permitted'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/cpus-over-node.json',
  },
  {
    line: failed('Requested node configuration is not available'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/mem-over-node.json',
  },
  {
    line: failed('Node count specification invalid'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/nodes-over-cluster.json',
  },
  {
    line: failed('Requested time limit is invalid (missing or exceeds some limit)'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/time-over-partition-max.json',
  },
  {
    line: failed('Requested reservation is invalid'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/bad-reservation.json',
  },
  {
    line: failed('Invalid license specification'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/bad-license.json',
  },
  {
    line: failed('Pathname of a file, directory or other parameter too long'),
    verdict: 'INVALID_SPEC',
    recording: 'submit/comment-too-long.json',
  },
  {
    line: failed("User's group not permitted to use this partition"),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/partition-group.json',
  },
  {
    line: failed('Required partition not available (inactive or drain)'),
    verdict: 'BACKEND_REJECTED',
    recording: 'submit/partition-inactive.json',
  },
  {
    line: failed("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
    verdict: 'policy',
    recording: 'limits/qos-max-submit-per-user.json',
  },
  // sbatch itself said no, before it asked anybody.
  {
    line: 'Invalid generic resource (gres) specification',
    verdict: 'INVALID_SPEC',
    recording: 'submit/gres-unknown.json',
  },
  { line: 'Invalid --time specification', verdict: 'INVALID_SPEC', recording: 'submit/bad-time.json' },
  { line: 'Invalid --begin specification', verdict: 'INVALID_SPEC', recording: 'submit/bad-begin.json' },
  {
    line: 'Try "sbatch --help" for more information',
    needs: 'unrecognized option',
    verdict: 'INVALID_SPEC',
    recording: 'submit/bad-option.json',
  },
  {
    line: 'instead of expected UNIX line breaks (\\n).',
    verdict: 'INVALID_SPEC',
    recording: 'submit/script-crlf.json',
  },
  { line: 'Batch script is empty!', verdict: 'INVALID_SPEC', recording: 'submit/script-empty.json' },
  {
    line: 'For instance: #!/bin/sh',
    needs: 'This does not look like a batch script',
    verdict: 'INVALID_SPEC',
    recording: 'submit/script-no-shebang.json',
  },
  {
    line: '.sh',
    needs: 'sbatch: error: Unable to open file ',
    verdict: 'INVALID_SPEC',
    recording: 'submit/no-such-script.json',
  },
  // Not now: sbatch gave up after it had tried for two minutes. 22.05's text also stands for trouble of other kinds, so
  // it counts only after sbatch's own notice that the controller keeps answering.
  {
    line: failed('MaxJobCount limit reached'),
    verdict: 'deferred',
    limit: 'MaxJobCount',
    recording: 'full/sbatch-4.json',
  },
  {
    line: failed('Resource temporarily unavailable'),
    needs: 'Slurm temporarily unable to accept job, sleeping and retrying',
    verdict: 'deferred',
    limit: 'MaxJobCount',
    recording: 'full/sbatch-4.json',
  },
];

/**
 * The limit that a line of its own names: `sbatch: error: QOSMaxSubmitJobPerUserLimit`, or `MaxSubmitJobsPerAccount`.
 */
export function policyLimit(stderr: string): string | null {
  return /^sbatch: error: ([A-Z][A-Za-z]+)$/m.exec(stderr)?.[1] ?? null;
}
