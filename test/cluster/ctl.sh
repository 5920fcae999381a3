#!/usr/bin/env bash
# Fault levers for the cluster of up.sh. DAEMON: slurmctld, slurmdbd, munged, mariadbd or slurmd.NODE
#   start|stop|freeze|thaw|kill DAEMON   also spelled stop-slurmctld, freeze-slurmdbd, kill-slurmd NODE …
#   crash-node NODE                      slurmd and every process of its jobs die at once
#   conf KEY VALUE                       changes slurm.conf and reconfigures: conf MinJobAge 2 (empty VALUE removes)
#   hook NAME [SHELL]                    prolog-slurmctld, prolog or epilog runs SHELL ("sleep 5", "exit 1"); none: nothing
#   reset                                starts and thaws all, clears hooks, cancels all jobs, resumes nodes
#   status                               one line per daemon: name, pid, process state (a frozen one: stopped)
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_root

usage() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
running() { pid_of "$1" || die "$1 is not running"; }
kill_daemon() { kill -KILL "$(running "$1")" && rm -f "$RUN/$1.pid"; }

conf() { # KEY [VALUE]
  sed -i "/^$1=/d" "$SLURM_CONF"
  [[ -z ${2:-} ]] || sed -i "1i $1=$2" "$SLURM_CONF"
  scontrol reconfigure
}

all_idle() { [[ -z $(squeue -h) && $(sinfo -h -N -p cpu -o %T | sort | uniq -c | xargs) == "$NODES idle" ]]; }

reset() {
  local name pid node
  rm -f "$RUN"/*.do
  for name in $(daemon_names); do
    if pid=$(pid_of "$name"); then kill -CONT "$pid"; else start_daemon "$name"; fi
  done
  wait_for 30 scontrol ping
  for state in PENDING RUNNING SUSPENDED; do scancel --state=$state; done
  for node in $(sinfo -h -N -o '%N %T' | awk '$2 !~ /idle|mixed|alloc|compl/ { print $1 }' | sort -u); do
    # A node that registers just now is resumed by that, and then refuses the request.
    scontrol update node="$node" state=RESUME || true
  done
  wait_for 60 all_idle
  wait_for 30 sacct -n -X
}

status() {
  local name pid
  for name in $(daemon_names); do
    if pid=$(pid_of "$name"); then
      echo "$name $pid $(awk '/^State/ { gsub(/[()]/, "", $3); print $3 }' "/proc/$pid/status")"
    else echo "$name - down"; fi
  done
}

verb=${1:-}
shift || usage
# "freeze-slurmctld" reads "freeze slurmctld"; "kill-slurmd n1" reads "kill slurmd.n1"
if [[ $verb =~ ^(start|stop|freeze|thaw|kill)-(.+)$ ]]; then
  verb=${BASH_REMATCH[1]} target=${BASH_REMATCH[2]}
  [[ $target != slurmd ]] || target=slurmd.${1:?which node?}
else target=${1:-}; fi
case $verb in reset | status) ;; *) [[ $target ]] || usage ;; esac

case $verb in
start) start_daemon "$target" ;;
stop) stop_daemon "$target" ;;
freeze) kill -STOP "$(running "$target")" ;;
thaw) kill -CONT "$(running "$target")" ;;
kill) kill_daemon "$target" ;;
crash-node) kill_daemon "slurmd.$target" && kill_steps "$target" ;;
conf) conf "$@" ;;
hook) if [[ ${2:-} ]]; then echo "$2" >"$RUN/$1.do"; else rm -f "$RUN/$1.do"; fi ;;
reset) reset ;;
status) status ;;
*) usage ;;
esac
