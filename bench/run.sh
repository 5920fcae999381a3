#!/usr/bin/env bash
# npm run bench [-- NAME… --json --list]: our figures beside those of the bare commands, in one run.
# As root on Debian it brings up a real Slurm of its own for the benchmarks that need one (test/cluster/up.sh) and deletes
# it again; with SLURM_CONF set it uses that cluster instead, and leaves it up. As another user, without SLURM_CONF, the
# benchmarks that need a cluster are left out. Settings: as in test/cluster/README.md; SLURM_TEST_KEEP=1 leaves it up.
set -euo pipefail
cd -P "$(dirname "${BASH_SOURCE[0]}")/.."
repository=$PWD

npm run --silent build
node node_modules/typescript/lib/tsc.js -p tsconfig.tools.json

# Asked before anything is started: the list, a wrong name, or benchmarks that need no cluster.
needs_cluster=$(node build/bench/main.js --needs-cluster "$@")
if [[ $needs_cluster != yes || (-z ${SLURM_CONF:-} && $EUID != 0) ]]; then
  exec node build/bench/main.js --app "$repository" "$@"
fi

job_user=${SLURM_TEST_USER:-science}
root=${SLURM_TEST_ROOT:-/tmp/open-compute-bench-slurm}
export SLURM_TEST_ROOT=$root SLURM_TEST_PORT=${SLURM_TEST_PORT:-19800} SLURM_TEST_USER=$job_user
mine='' app=''
finish() {
  local status=$?
  trap '' INT TERM HUP
  [[ -z $app ]] || rm -rf "$app"
  if [[ $mine && ${SLURM_TEST_KEEP:-} != 1 ]]; then "$repository/test/cluster/down.sh" --purge || echo "could not delete the cluster in $root" >&2; fi
  exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [[ -z ${SLURM_CONF:-} ]]; then
  echo "bringing up Slurm in $root …" >&2
  mine=yes
  eval "$(test/cluster/up.sh)"
fi
if [[ $EUID != 0 ]]; then
  node build/bench/main.js --app "$repository" "$@"
  exit
fi

# Jobs belong to an unprivileged user, who may not see this checkout: a copy of what an installation has, and of the build.
app=$(mktemp -d /tmp/open-compute-bench-app.XXXXXX)
paths=(package.json dist build examples)
while read -r path; do
  [[ $path == "$repository" ]] || paths+=("${path#"$repository/"}")
done < <(npm ls --all --omit=dev --parseable)
tar -cf - "${paths[@]}" | tar -xf - --no-same-owner -C "$app"
chmod -R a+rX "$app"
cd "$app"
home=$(getent passwd "$job_user" | cut -d: -f6)
setpriv --reuid="$job_user" --regid="$(id -g "$job_user")" --init-groups \
  env -i PATH="$PATH" HOME="$home" USER="$job_user" SLURM_CONF="$SLURM_CONF" \
  OPEN_COMPUTE_BENCH_NODE_FLAGS="${OPEN_COMPUTE_BENCH_NODE_FLAGS:-}" \
  "$(command -v node)" build/bench/main.js --app "$app" "$@"
