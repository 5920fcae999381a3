# Shared by the cluster scripts: the settings, and starting, finding and stopping one daemon.
# Every setting is an environment variable, so that two test runs can have a cluster each.
# shellcheck shell=bash disable=SC2034 # used by the scripts that source this one
set -euo pipefail

ROOT=${SLURM_TEST_ROOT:-/tmp/open-compute-slurm}   # configuration, state, sockets, logs: all in here
PORT=${SLURM_TEST_PORT:-17800}                     # first port of the block PORT … PORT+3+NODES
NODES=${SLURM_TEST_NODES:-4}                       # slurmd daemons n1 … nN; the last half carry fake GPUs
CPUS=${SLURM_TEST_CPUS:-16}                        # declared CPUs per node; they need not exist
JOB_USER=${SLURM_TEST_USER:-science}               # the unix and accounting user that submits jobs
MIN_JOB_AGE=${SLURM_TEST_MIN_JOB_AGE:-300}         # s for which squeue still shows a finished job
JOB_COMMENT=${SLURM_TEST_JOB_COMMENT:-on}          # off: accounting never keeps a job's Comment
PART_LIMITS=${SLURM_TEST_ENFORCE_PART_LIMITS:-ALL} # NO: jobs over a limit are accepted and wait for ever
MESSAGE_TIMEOUT=${SLURM_TEST_MESSAGE_TIMEOUT:-10}  # s for which a client waits for a frozen daemon
SLURMD_TIMEOUT=${SLURM_TEST_SLURMD_TIMEOUT:-10}    # s until a silent node is DOWN
MAX_JOBS=${SLURM_TEST_MAX_JOBS:-20000}             # MaxJobCount
CGROUP=${SLURM_TEST_CGROUP:-auto}                  # on: a job over its memory is OUT_OF_MEMORY; auto: if this host can
TORCH=${SLURM_TEST_TORCH:-off}                     # on: also Debian's python3-torch (650 MB), for examples/pytorch-train.sh

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
RUN=$ROOT/run LOG=$ROOT/log ETC=$ROOT/etc
export SLURM_CONF=$ETC/slurm.conf
export PATH=$PATH:/usr/sbin:/sbin # the daemons live there, and an unprivileged shell may lack it

# Our own client calls must not obey a caller's SQUEUE_FORMAT, SBATCH_PARTITION and the like.
for name in $(compgen -e | grep -E '^(SLURM|SBATCH|SQUEUE|SACCT|SINFO|SRUN|SCANCEL)_' | grep -vE '^SLURM_(CONF|TEST_)' || true); do
  unset "$name"
done

die() { echo "${0##*/}: $*" >&2; exit 1; }
require_root() { [[ $EUID == 0 ]] || die "run as root: the node daemons must start jobs as other users"; }

node_names() { local i; for ((i = 1; i <= NODES; i++)); do echo "n$i"; done; }
daemon_names() { echo munged mariadbd slurmdbd slurmctld; node_names | sed 's/^/slurmd./'; }

# A pid file may be stale and its number in use again: believe it only if that program is what runs.
pid_of() { # DAEMON -> pid, or fails
  local pid
  pid=$(cat "$RUN/$1.pid" 2>/dev/null) || return 1
  [[ $(readlink "/proc/$pid/exe") == */"${1%%.*}"* ]] && echo "$pid"
}

wait_for() { # SECONDS COMMAND…: polls until the command succeeds; says what it waited for if it never does
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || { echo "timed out waiting for: $* (logs: $LOG)" >&2; return 1; }
    sleep 0.05
  done
}

# The environment is built, not inherited: slurmd hands its own on to the step daemons.
# The standard streams go to a log: a daemon must not hold the caller's pipes open.
daemon_environment=(env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF")
daemon() { "${daemon_environment[@]}" "$@" </dev/null >>"$LOG/spawn.log" 2>&1; }

start_munged() {
  daemon munged --key-file="$ETC/munge.key" --socket="$RUN/munge.socket" --pid-file="$RUN/munged.pid" \
    --num-threads=10 --log-file="$LOG/munged.log" --seed-file="$ROOT/munge.seed"
  wait_for 10 munge -n -S "$RUN/munge.socket"
}

start_mariadbd() {
  # Durability is worth nothing in a test cluster; without it accounting is several times faster.
  # Unlike the others it stays in the foreground. A session of its own: a Ctrl-C at the terminal is not for it.
  setsid "${daemon_environment[@]}" mariadbd --no-defaults --user=root --datadir="$ROOT/mysql" --socket="$RUN/mysql.sock" \
    --pid-file="$RUN/mariadbd.pid" --bind-address=127.0.0.1 --port=$((PORT + 3)) --skip-name-resolve \
    --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --innodb-lock-wait-timeout=900 \
    --innodb-buffer-pool-size=128M --character-set-server=utf8mb4 \
    </dev/null >>"$LOG/mariadbd.log" 2>&1 &
  disown
  wait_for 30 mariadb --no-defaults -u root -S "$RUN/mysql.sock" -e 'select 1'
}

start_slurmdbd() { daemon slurmdbd && wait_for 60 sacctmgr -n show cluster; }
start_slurmctld() { daemon slurmctld && wait_for 30 scontrol ping; }
# The mark is inherited by the node's step daemons: crash-node finds exactly its own by it.
start_slurmd() { daemon SLURM_TEST_NODE="$1" slurmd -N "$1"; }

start_daemon() { # DAEMON; does nothing if it runs already
  if pid_of "$1" >/dev/null; then return; fi
  case $1 in
  slurmd.*) start_slurmd "${1#slurmd.}" ;;
  munged | mariadbd | slurmdbd | slurmctld) "start_$1" ;;
  *) die "no such daemon: $1 (there are: $(daemon_names | xargs))" ;;
  esac
}

stop_daemon() { # DAEMON: CONT first, for it may be frozen; then TERM; KILL when its time is up
  local pid limit=15 tick
  # slurmdbd sometimes hangs on its way out; what it acknowledged is committed by then.
  [[ $1 != slurmdbd ]] || limit=4
  if pid=$(pid_of "$1"); then
    kill -CONT "$pid" 2>/dev/null || true
    kill -TERM "$pid" 2>/dev/null || true
    for ((tick = 0; tick < limit * 20; tick++)); do
      [[ -e /proc/$pid/exe ]] || break
      sleep 0.05
    done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$RUN/$1.pid"
}

# Step daemons outlive slurmd. Ours carry our SLURM_CONF (and the node's mark) in their environment.
step_daemons() { # [NODE] -> pids
  local process environment
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe" 2>/dev/null) == */slurmstepd* ]] || continue
    environment=$(tr '\0' '\n' <"$process/environ" 2>/dev/null) || continue
    grep -qxF "SLURM_CONF=$SLURM_CONF" <<<"$environment" || continue
    [[ -z ${1:-} ]] || grep -qxF "SLURM_TEST_NODE=$1" <<<"$environment" || continue
    echo "${process#/proc/}"
  done
}
process_tree() { # PID -> it and all its descendants
  local child
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do process_tree "$child"; done
  echo "$1"
}
kill_steps() { # [NODE]: every process of its jobs, at once
  local step
  # shellcheck disable=SC2046 # one pid a word
  for step in $(step_daemons "${1:-}"); do kill -KILL $(process_tree "$step") 2>/dev/null || true; done
}
