#!/usr/bin/env bash
# npm run test:cluster [-- JEST ARGUMENTS]: the tests that need a real Slurm, from nothing and back to nothing.
# As root on Debian. Brings the cluster up, runs jest's project "cluster", deletes the cluster, also after a failure or
# an interrupt; exits as jest did. SLURM_TEST_KEEP=1 leaves it up; one that was up before is reset and left up.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd -P "$HERE/../.."
[[ $EUID == 0 ]] || die "the cluster tests need root: they start node daemons that run jobs as other users. Everything else is in: npm test"
[[ -e /etc/debian_version ]] || command -v slurmctld >/dev/null ||
  die "the cluster tests install Slurm from Debian, and this is not Debian. Install Slurm, MariaDB and munge first, or use a container: docker run -it debian:12"

export SLURM_TEST_ROOT=$ROOT SLURM_TEST_PORT=$PORT SLURM_TEST_NODES=$NODES SLURM_TEST_USER=$JOB_USER
export SLURM_TEST_TORCH=${SLURM_TEST_TORCH:-on} # examples/pytorch-train.sh is one of the tests
export SLURM_TEST_APP=$ROOT/app

# One run at a time. The descriptor is closed for every child: a daemon must not hold the lock when we are gone.
exec 9>"$ROOT.lock"
flock -n 9 || die "another run uses $ROOT; for a second one beside it set SLURM_TEST_ROOT and SLURM_TEST_PORT"

tests='' found_up=''
mark=$ROOT/of-a-test-run # a run that was itself killed with SIGKILL leaves this behind: the next one clears up for it
finish() {
  local status=$?
  trap '' INT TERM HUP
  # The whole group: tests start workers and coordinators.
  [[ -z $tests ]] || kill -KILL -- "-$tests" 2>/dev/null || true
  if [[ $found_up || ${SLURM_TEST_KEEP:-} == 1 ]]; then
    rm -f "$mark"
    echo "The cluster is left up (SLURM_CONF=$SLURM_CONF). To delete it: test/cluster/down.sh --purge" >&2
  else
    "$HERE/down.sh" --purge 9>&- || echo "could not delete the cluster in $ROOT" >&2
    rm -f "$ROOT.lock"
  fi
  exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

# What the job user runs. This checkout may be where only root can read (/root), and a rebuild must not pull the rug
# from under a running worker: so a copy of what `npm install` gives a user, the build and its dependencies.
copy_app() {
  local paths=(package.json dist examples) path
  npm run --silent build
  while read -r path; do
    [[ $path == "$PWD" ]] || paths+=("${path#"$PWD/"}")
  done < <(npm ls --all --omit=dev --parseable)
  rm -rf "$SLURM_TEST_APP"
  mkdir -p "$SLURM_TEST_APP"
  tar -cf - "${paths[@]}" | tar -xf - --no-same-owner -C "$SLURM_TEST_APP"
  chmod -R a+rX "$SLURM_TEST_APP"
  setpriv --reuid="$JOB_USER" --regid="$(id -g "$JOB_USER")" --init-groups node -e 0 2>/dev/null ||
    die "$JOB_USER cannot run $(command -v node): install Node where every user can read it"
}

if [[ ! -e $mark && $(pid_of slurmctld || true) ]]; then found_up=yes; fi
echo "bringing up Slurm in $ROOT …" >&2
"$HERE/up.sh" >/dev/null 9>&-
[[ $found_up ]] || touch "$mark"
"$HERE/ctl.sh" reset 9>&-
# "auto" is settled now; tests want to know whether a job over its memory is OUT_OF_MEMORY here.
export SLURM_TEST_CGROUP=off
if grep -q '^TaskPlugin=task/cgroup' "$SLURM_CONF"; then SLURM_TEST_CGROUP=on; fi
copy_app 9>&-

# In the background, so that a signal to this script is obeyed at once; -m: in a process group of its own.
set -m
node --experimental-vm-modules --disable-warning=ExperimentalWarning node_modules/jest/bin/jest.js \
  --selectProjects cluster --runInBand "$@" 9>&- &
tests=$!
set +m
wait $tests
