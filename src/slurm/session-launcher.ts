import type { SubmitRequest } from '../backend.js';
import { shellQuote } from '../workdir/script.js';

/** Holds the rank of a process within its step: 0 to N-1, one per node. */
const RANK_VARIABLE = 'SLURM_PROCID';

/**
 * What a session's job runs in the place of a profile's script: one agent on each node, as one step. When one of them
 * fails the step is ended, and with it the job. The agents share the nodes with the steps that people run beside them:
 * they take nothing away from these (`--overlap`), and their CPUs are said, because releases from 22.05 to 23.02 pass
 * nothing on from the job to its steps.
 */
export function sessionLauncher(
  { profile, session }: Pick<SubmitRequest, 'profile'> & { readonly session: NonNullable<SubmitRequest['session']> },
  { overlap }: { readonly overlap: boolean },
): string {
  const { ranks, command, credentials } = session;
  const argv = [
    'srun',
    `--nodes=${String(ranks)}`,
    `--ntasks=${String(ranks)}`,
    '--ntasks-per-node=1',
    `--cpus-per-task=${String(profile.cpus ?? 1)}`,
    '--kill-on-bad-exit=1',
    ...(overlap ? ['--overlap'] : []),
    '--export=ALL',
    '--input=none',
    ...command,
    RANK_VARIABLE,
  ];
  return `#!/bin/sh
export OPEN_COMPUTE_CREDENTIALS=${shellQuote(credentials)}
exec ${argv.map(shellQuote).join(' ')}
`;
}
