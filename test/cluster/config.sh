# Sourced by up.sh: writes slurm.conf and its companions into $ETC.
# shellcheck shell=bash

# SLURM_TEST_CGROUP=auto: memory limits need the memory and freezer hierarchies of cgroup v1, writable, and for us
# alone: the cgroups are named by node, user and job id, so that two clusters would kill each other's jobs.
cgroup_usable() {
  local controller probe process conf
  for process in /proc/[0-9]*; do
    [[ $(readlink "$process/exe" 2>/dev/null) == */slurmd* ]] || continue
    conf=$(tr '\0' '\n' <"$process/environ" 2>/dev/null | sed -n 's/^SLURM_CONF=//p') || continue
    if [[ $conf != "$SLURM_CONF" ]] && grep -qs '^ProctrackType=proctrack/cgroup' "$conf"; then return 1; fi
  done
  for controller in memory freezer; do
    probe=/sys/fs/cgroup/$controller/open-compute-probe-$$
    mkdir "$probe" 2>/dev/null || return 1
    [[ -e $probe/tasks ]] || return 1
    rmdir "$probe"
  done
}

write_slurm_conf() {
  local host address bind='' gpu_from=$((NODES / 2 + 1)) i gres
  host=$(uname -n) host=${host%%.*}
  address=$(getent ahostsv4 "$host" | awk 'NR == 1 { print $1 }') || true
  # With these flags all listen on the address of the host's own name only. That suits 127.0.0.1 and nothing else:
  # steps call srun back on 127.0.0.1. On other hosts all listen on any address and talk over loopback.
  if [[ $address == 127.0.0.1 ]]; then bind=CommunicationParameters=NoCtldInAddrAny,NoInAddrAny; fi
  cat <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$PORT
SlurmdPort=$((PORT + 4))
$bind
AuthType=auth/munge
AuthInfo=socket=$RUN/munge.socket
StateSaveLocation=$ROOT/state
SlurmdSpoolDir=$ROOT/spool/%n
SlurmctldPidFile=$RUN/slurmctld.pid
SlurmdPidFile=$RUN/slurmd.%n.pid
SlurmctldLogFile=$LOG/slurmctld.log
SlurmdLogFile=$LOG/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
# Quick cycles, because tests wait for them.
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=256
PriorityType=priority/multifactor
PriorityWeightQOS=1000
PreemptType=preempt/qos
PreemptMode=REQUEUE
EnforcePartLimits=$PART_LIMITS
MaxJobCount=$MAX_JOBS
MinJobAge=$MIN_JOB_AGE
OverTimeLimit=0
KillWait=2
CompleteWait=0
MessageTimeout=$MESSAGE_TIMEOUT
SlurmdTimeout=$SLURMD_TIMEOUT
BatchStartTimeout=10
ReturnToService=2
# linuxproc works in any container, without cgroups and systemd (jobacct_gather rules out proctrack/pgid).
ProctrackType=proctrack/$([[ $CGROUP == on ]] && echo cgroup || echo linuxproc)
TaskPlugin=task/$([[ $CGROUP == on ]] && echo cgroup || echo none)
MpiDefault=none
# Contain gives each job the .extern step that it has in the accounting of most real clusters.
PrologFlags=Alloc,Contain
# The hooks do nothing unless ctl.sh hook says so: for CONFIGURING, COMPLETING, failing prologs.
PrologSlurmctld=$ETC/hook-prolog-slurmctld
Prolog=$ETC/hook-prolog
Epilog=$ETC/hook-epilog
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
# Without cgroups a job over its memory is killed at the next sample and ends FAILED 0:9, not OUT_OF_MEMORY.
$([[ $CGROUP == on ]] || echo JobAcctGatherParams=OverMemoryKill)
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((PORT + 2))
# Despite its name this is the munge socket for talking to slurmdbd.
AccountingStoragePass=$RUN/munge.socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
$([[ $JOB_COMMENT != on ]] || echo AccountingStoreFlags=job_comment)
GresTypes=gpu
# Believe the CPUs and memory declared below, whatever this machine has.
SlurmdParameters=config_overrides
CONF
  for ((i = 1; i <= NODES; i++)); do
    gres=''
    if ((i >= gpu_from)); then gres='Gres=gpu:2 Feature=gpu'; fi
    echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((PORT + 3 + i)) CPUs=$CPUS Sockets=1" \
      "CoresPerSocket=$CPUS ThreadsPerCore=1 RealMemory=$((CPUS * 1000)) $gres"
  done
  cat <<CONF
PartitionName=cpu Nodes=n[1-$NODES] Default=YES MaxTime=60 DefaultTime=10 State=UP
PartitionName=gpu Nodes=n[$gpu_from-$NODES] MaxTime=120 DefaultTime=10 State=UP
PartitionName=small Nodes=n1 MaxTime=5 MaxNodes=1 State=UP
CONF
}

write_slurmdbd_conf() {
  cat <<CONF
AuthType=auth/munge
AuthInfo=socket=$RUN/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((PORT + 2))
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((PORT + 3))
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
LogFile=$LOG/slurmdbd.log
PidFile=$RUN/slurmdbd.pid
DebugLevel=verbose
CONF
}

write_config() {
  local hook
  if [[ $CGROUP == auto ]]; then if cgroup_usable; then CGROUP=on; else CGROUP=off; fi; fi
  write_slurm_conf >"$ETC/slurm.conf"
  (umask 077 && write_slurmdbd_conf >"$ETC/slurmdbd.conf") # slurmdbd refuses a file that others can read
  # Any device file does for a GPU that no cgroup confines; a real file makes Slurm set CUDA_VISIBLE_DEVICES.
  printf "NodeName=n[$((NODES / 2 + 1))-$NODES] Name=gpu File=%s\n" /dev/null /dev/zero >"$ETC/gres.conf"
  # slurmd 22.05 insists on a cgroup plugin. v1 starts without touching any cgroup; v2 would need systemd.
  printf '%s\n' CgroupPlugin=cgroup/v1 CgroupAutomount=no ConstrainRAMSpace=yes ConstrainSwapSpace=yes AllowedSwapSpace=0 >"$ETC/cgroup.conf"
  for hook in prolog-slurmctld prolog epilog; do
    printf '#!/bin/sh\n[ ! -e %s/%s.do ] || . %s/%s.do\n' "$RUN" "$hook" "$RUN" "$hook" >"$ETC/hook-$hook"
    chmod 755 "$ETC/hook-$hook"
  done
}
