#!/usr/bin/env bash
# Stops the cluster of up.sh and all its jobs. --purge also deletes its root directory.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_root
[[ -d $ROOT ]] || exit 0
# slurmctld first: it would wait for node daemons that are gone. And before slurmdbd and munged: it hands its
# accounting queue to the one through the other.
stop_daemon slurmctld
for file in "$RUN"/slurmd.*.pid; do
  [[ -e $file ]] || continue
  file=${file##*/}
  stop_daemon "${file%.pid}"
done
kill_steps
for name in slurmdbd mariadbd munged; do stop_daemon "$name"; done
if [[ ${1:-} == --purge ]]; then rm -rf "$ROOT"; fi
