import type { SessionLaunch } from '../backend.js';
import { shellQuote } from '../workdir/script.js';

/** Holds the rank of an agent: 0 to N-1. */
const RANK_VARIABLE = 'OPEN_COMPUTE_RANK';

/**
 * What a session's job runs in the place of a profile's script: as many agents as the profile has nodes, all on this
 * machine. The first that fails ends the others, like `--kill-on-bad-exit` of a launcher on a cluster: this script exits
 * as that one did, and run.sh kills what is left of its group.
 */
export function sessionLauncher({ ranks, command, credentials }: SessionLaunch): string {
  return `#!/bin/sh
export OPEN_COMPUTE_CREDENTIALS=${shellQuote(credentials)}
oc_gang=$$
oc_status=1
trap 'read -r oc_status <.gang-status; exit "$oc_status"' USR1
oc_rank=0
while [ "$oc_rank" -lt ${String(ranks)} ]; do
  (
    trap - USR1
    ${RANK_VARIABLE}=$oc_rank ${[...command, RANK_VARIABLE].map(shellQuote).join(' ')}
    oc_status=$?
    if [ "$oc_status" -ne 0 ]; then
      printf '%s\n' "$oc_status" >".gang-status.$oc_rank" && ln ".gang-status.$oc_rank" .gang-status 2>/dev/null
      kill -s USR1 "$oc_gang"
    fi
    exit "$oc_status"
  ) &
  oc_rank=$((oc_rank + 1))
done
wait
exit 0
`;
}
