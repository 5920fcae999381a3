#!/usr/bin/env bash
# Brings up a real Slurm cluster on this one machine: munge, MariaDB, slurmdbd, slurmctld and several slurmd.
# Run as root. Prints the line that points clients at it. The settings are in lib.sh, the levers in ctl.sh.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
. "$HERE/packages.sh"
. "$HERE/config.sh"
require_root
mkdir -p "$ROOT" && chmod 755 "$ROOT"
# Two callers at once must not both build it. -o: the daemons must not inherit the lock.
[[ ${SLURM_TEST_LOCKED:-} ]] || SLURM_TEST_LOCKED=1 exec flock -o "$ROOT/lock" "${BASH_SOURCE[0]}" "$@"
unset SLURM_TEST_LOCKED

all_up() {
  local name
  for name in $(daemon_names); do pid_of "$name" || return 1; done
  timeout 5 scontrol ping && timeout 5 sacctmgr -n show cluster && nodes_ready
}
# Idle, or busy with jobs from before a down.sh without --purge; a suffix such as * means: does not respond.
nodes_ready() { [[ $(sinfo -h -N -p cpu -o %T | grep -cxE 'idle|mixed|allocated|completing') == "$NODES" ]]; }
print_settings() { echo "export SLURM_CONF=$SLURM_CONF"; }

thaw_all() { # a test that died may have left daemons frozen
  local name pid
  for name in $(daemon_names); do if pid=$(pid_of "$name"); then kill -CONT "$pid"; fi; done
}

start_database() {
  if [[ ! -d $ROOT/mysql ]]; then
    mariadb-install-db --no-defaults --user=root --datadir="$ROOT/mysql" --skip-test-db \
      --auth-root-authentication-method=normal >"$LOG/mariadb-install.log" 2>&1
  fi
  start_daemon mariadbd
  mariadb --no-defaults -u root -S "$RUN/mysql.sock" -e \
    "create user if not exists slurm@'127.0.0.1' identified by 'slurm';
     create database if not exists slurm_acct;
     grant all on slurm_acct.* to slurm@'127.0.0.1'"
}

add_accounting() { # sacctmgr prints every change even with --quiet
  local sacctmgr='sacctmgr -i -Q'
  [[ -n $(sacctmgr -n show cluster test) ]] || $sacctmgr add cluster test
  [[ -z $(sacctmgr -n show user "$JOB_USER") ]] || return 0
  $sacctmgr add qos low,high
  $sacctmgr modify qos high set priority=100 preempt=low
  $sacctmgr modify qos low set preemptmode=cancel
  $sacctmgr add account lab,closed # the user has no access to "closed"
  $sacctmgr add user "$JOB_USER" account=lab defaultaccount=lab qos=normal,low,high
}

thaw_all
install_packages
if all_up >/dev/null 2>&1; then print_settings; exit; fi

mkdir -p "$RUN" "$LOG" "$ETC" "$ROOT/state" "$ROOT/spool"
id "$JOB_USER" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$JOB_USER"
[[ -s $ETC/munge.key ]] || (umask 077 && head -c 1024 /dev/urandom >"$ETC/munge.key")
write_config
start_daemon munged
start_database
start_daemon slurmdbd
add_accounting >"$LOG/sacctmgr.log"
old=$(pid_of slurmctld || true)
start_daemon slurmctld
for node in $(node_names); do start_daemon "slurmd.$node"; done
[[ -z $old ]] || scontrol reconfigure # it still had the settings from before write_config
wait_for 60 nodes_ready
wait_for 30 sacct -n -X
print_settings
