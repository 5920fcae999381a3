#!/usr/bin/env bash
# Records one real command as the job user: record.sh NAME NOTE COMMAND…
#   record.sh submit/bad-qos 'a QoS that does not exist' sbatch --parsable --qos=nope --wrap 'exit 0'
# writes fixtures/slurm-<release>/submit/bad-qos.json: {note, user, argv, exitCode, ms, stdout, stderr}. Both streams are
# kept as they came, but for this host's name, which becomes ctl0. The cluster of up.sh, or one that SLURM_CONF names.
conf=${SLURM_CONF:-}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_root
[[ $# -ge 3 ]] || { sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
[[ -z $conf ]] || SLURM_CONF=$conf
release=$(sbatch --version | grep -oE '[0-9]+\.[0-9]+' | head -1)
export RECORD_TO=$HERE/../../fixtures/slurm-$release/$1.json RECORD_NOTE=$2 RECORD_USER=$JOB_USER
shift 2

as_user=(setpriv --reuid="$JOB_USER" --regid="$(id -g "$JOB_USER")" --init-groups
  env -i PATH=/usr/bin:/bin HOME="$(getent passwd "$JOB_USER" | cut -d: -f6)" USER="$JOB_USER"
  SLURM_CONF="$SLURM_CONF" TZ=UTC LC_ALL=C SLURM_TIME_FORMAT='%Y-%m-%dT%H:%M:%S')
node --input-type=module - "${#as_user[@]}" "${as_user[@]}" "$@" <<'JS'
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { constants, hostname } from 'node:os';
import { dirname } from 'node:path';

const [count, ...words] = process.argv.slice(2);
const argv = words.slice(Number(count));
const began = performance.now();
const done = spawnSync(words[0], words.slice(1), { cwd: '/tmp', maxBuffer: 2 ** 28, stdio: ['ignore', 'pipe', 'pipe'] });
if (done.error) throw done.error;
const host = new RegExp(`\\b${hostname().split('.')[0]}\\b`, 'g');
const text = (bytes) => bytes.toString('utf8').replaceAll(host, 'ctl0');
const recording = {
  note: process.env.RECORD_NOTE,
  user: process.env.RECORD_USER,
  argv,
  // As a shell would say it: 128 and the signal's number.
  exitCode: done.status ?? 128 + constants.signals[done.signal],
  ms: Math.round(performance.now() - began),
  stdout: text(done.stdout),
  stderr: text(done.stderr),
};
mkdirSync(dirname(process.env.RECORD_TO), { recursive: true });
writeFileSync(process.env.RECORD_TO, `${JSON.stringify(recording, null, 2)}\n`);
console.log(`${process.env.RECORD_TO}: exit ${recording.exitCode}, ${recording.ms} ms`);
process.stdout.write(recording.stdout + recording.stderr);
JS
