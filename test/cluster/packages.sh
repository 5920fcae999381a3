# Sourced by up.sh: installs what the cluster needs from Debian, if it is not there.
# shellcheck shell=bash

package_installed() { [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null) == *'ok installed' ]]; }

# By command, not by package name: a Slurm that was built from source and stands earlier on PATH is used as it is.
missing_packages() {
  local command package
  while read -r command package; do
    command -v "$command" >/dev/null || echo "$package"
  done <<'LIST'
slurmctld slurmctld
slurmd slurmd
slurmdbd slurmdbd
slurmdbd slurm-wlm-mysql-plugin
sbatch slurm-client
munged munge
mariadbd mariadb-server-core
mariadb mariadb-client-core
LIST
  if package_installed slurmdbd && ! package_installed slurm-wlm-mysql-plugin; then echo slurm-wlm-mysql-plugin; fi
  if [[ $TORCH == on ]] && ! package_installed python3-torch; then echo python3-torch; fi
}

# A new machine has no package lists; an old one may have lists that name files which are gone by now.
apt_install() { # PACKAGE…
  local apt=(apt-get -y -q -o DPkg::Lock::Timeout=300)
  export DEBIAN_FRONTEND=noninteractive
  if compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null &&
    "${apt[@]}" install --no-install-recommends "$@"; then return; fi
  "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"
}

install_packages() {
  local want policy=/usr/sbin/policy-rc.d
  mapfile -t want < <(missing_packages | sort -u)
  ((${#want[@]})) || return 0
  command -v apt-get >/dev/null || die "missing: ${want[*]}; this machine is not Debian, so install Slurm, MariaDB and munge by hand"
  echo "installing from Debian: ${want[*]}" >&2
  # The packages would start system-wide daemons; this policy forbids that while they install.
  if [[ ! -e $policy ]]; then
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
  fi
  apt_install "${want[@]}" >"$ROOT/apt.log" 2>&1 || { tail -20 "$ROOT/apt.log" >&2; die "could not install: ${want[*]}"; }
}
