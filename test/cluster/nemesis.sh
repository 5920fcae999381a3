#!/usr/bin/env bash
# npm run test:nemesis [-- MINUTES [SEED]]: harm to a real cluster, a worker and a coordinator, under a steady stream of
# tasks. 3 minutes if not said. Prints one line of figures; see nemesis.test.ts.
set -euo pipefail
minutes=${1:-3} seed=${2:-1}
[[ $minutes =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || { echo "usage: npm run test:nemesis [-- MINUTES [SEED]]" >&2; exit 2; }
export SLURM_TEST_NEMESIS_MINUTES=$minutes SLURM_TEST_NEMESIS_SEED=$seed
exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" --testPathPatterns cluster/nemesis
