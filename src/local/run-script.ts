import type { SubmitRequest } from '../backend.js';
import type { JobFiles } from '../workdir/directory.js';
import { EXIT_BOOTSTRAP, jobScriptBody, shellQuote } from '../workdir/script.js';

export interface RunScriptOptions {
  readonly request: SubmitRequest;
  readonly files: JobFiles;
  /** Where the watchdog writes that the job ran out of time. */
  readonly timeoutNote: string;
  /** Between SIGTERM and SIGKILL when the time is up. */
  readonly killGraceMs: number;
}

/**
 * `run.sh` for a job on this machine. It names its run by boot, pid and start time, so whoever reads the claim can tell
 * whether that very process lives. It insists on leading its own process group, for at its end it kills that group:
 * nothing that the profile left in the background outlives the job. The time limit is kept by a watchdog in the group,
 * so it holds without a worker.
 */
export function runScript({ request, files, timeoutNote, killGraceMs }: RunScriptOptions): string {
  const { token, profile } = request;
  const body = jobScriptBody({
    files,
    token,
    identity: '"$oc_boot.$$.$oc_start"',
    unset: [],
    environment: profile.environment,
    afterClaim: profile.walltimeS === null ? '' : watchdog(profile.walltimeS, timeoutNote, killGraceMs),
    atEnd: 'kill -s KILL 0',
  });
  return `#!/bin/sh
IFS= read -r oc_boot </proc/sys/kernel/random/boot_id
IFS= read -r oc_stat </proc/$$/stat
set -- \${oc_stat##*) } # proc(5): state, parent, group, session, … start time
oc_start=\${20}
[ "$3" = "$$" ] || {
  printf '%s\\n' 'open-compute: this script has to lead its own process group' >&2
  exit ${String(EXIT_BOOTSTRAP)}
}
${body}`;
}

function watchdog(limitS: number, note: string, killGraceMs: number): string {
  return `(
  trap '' TERM # meant for the others
  sleep ${String(limitS)}
  ( : >${shellQuote(note)} ) 2>/dev/null
  kill -s TERM -- -$$
  sleep ${String(killGraceMs / 1000)}
  kill -s KILL -- -$$
) </dev/null &`;
}
