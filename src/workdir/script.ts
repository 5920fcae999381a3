import type { Token } from '../machines/vocabulary.js';
import { dirname } from 'node:path';
import type { JobFiles } from './directory.js';
import { wakeDirectory } from './runs-directory.js';

/** The script's own exit codes. The end marker tells them from a profile that exits with the same number. */
export const EXIT_BOOTSTRAP = 121;
export const EXIT_CLAIM_TAKEN = 122;

export interface JobScriptOptions {
  readonly files: JobFiles;
  readonly token: Token;
  /**
   * A shell expression, in double quotes, that names this run's job at its backend, e.g. `"$SOME_JOB_ID"`. It has to
   * be the same again when the backend runs the same job once more, and different for every other job.
   */
  readonly identity: string;
  /** Variables that the profile must not see. */
  readonly unset: readonly string[];
  /** Variables that the profile sees, beside its own. */
  readonly environment: Readonly<Record<string, string>>;
  /** Shell text that runs once the claim is ours, before the profile starts. */
  readonly afterClaim?: string;
  /** Shell text that runs last, after the end marker and the wake file. */
  readonly atEnd?: string;
}

const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Quotes any text for a POSIX shell. Throws on NUL, which no argument can hold. */
export function shellQuote(text: string): string {
  if (text.includes('\0')) throw new TypeError('a NUL cannot be quoted for a shell');
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function variable(name: string): string {
  if (!VARIABLE.test(name)) throw new TypeError(`${JSON.stringify(name)} is not the name of a variable`);
  return name;
}

/**
 * The part of a job's script that every backend shares: POSIX sh text to put after a first line and the backend's own
 * lines. Nothing from the payload is in it, only paths, the token and the profile's variables, each single-quoted.
 *
 * It claims the directory, runs `./profile INPUT RESULT`, writes the end marker and wakes the worker. It exits as the
 * profile did: with its status, or by its signal (a shell cannot tell `exit 137` from death by signal 9; both count as
 * the signal). Two exit codes are its own: `EXIT_BOOTSTRAP`, and `EXIT_CLAIM_TAKEN` when another job holds the claim.
 * SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to the profile; it ignores SIGINT and SIGQUIT, as does everything
 * that a shell runs in the background. Without the claim no end marker is written: it belongs to who holds the claim.
 * Throws TypeError on a variable that is not one, and on a NUL.
 */
export function jobScriptBody(options: JobScriptOptions): string {
  const { files, token, identity, unset, environment } = options;
  const wake = `${wakeDirectory(dirname(files.directory))}/${files.jobId}`;
  const exported = {
    ...environment,
    OPEN_COMPUTE_INPUT: files.input,
    OPEN_COMPUTE_RESULT: files.result,
    OPEN_COMPUTE_DIRECTORY: files.directory,
    OPEN_COMPUTE_JOB_ID: files.jobId,
  };
  const unsets = unset.map((name) => `  unset -v ${variable(name)}\n`).join('');
  const exports = Object.entries(exported)
    .map(([name, value]) => `  export ${variable(name)}=${shellQuote(value)}\n`)
    .join('');
  return `umask 077
oc_identity=${identity}
oc_started=$(date +%s)
oc_claimed=

oc_wake() { # in a subshell: a redirection that fails would end the shell
  ( : >${shellQuote(wake)} ) 2>/dev/null || :
}

oc_done() { # STAGE STATUS SIGNAL DETAIL: the end marker; appears as a whole or not at all
  {
    printf '%s\\n' v=1 ${shellQuote(`token=${token}`)} "identity=$oc_identity" "stage=$1" "status=$2" "signal=$3" \\
      "started=$oc_started" "ended=$(date +%s)" "detail=$4" >done.new && mv -f done.new done
  } || printf '%s\\n' 'open-compute: the end marker could not be written' >&2
  oc_wake
  ${options.atEnd ?? ':'}
}

oc_give_up() { # DETAIL
  printf '%s\\n' "open-compute: $1" >&2
  [ -z "$oc_claimed" ] || oc_done bootstrap ${String(EXIT_BOOTSTRAP)} '' "$1"
  exit ${String(EXIT_BOOTSTRAP)}
}

# A backend may start a job elsewhere when its working directory is missing, and call that a success.
cd ${shellQuote(files.directory)} || oc_give_up 'the job directory is not there'

# The claim: made under another name and then linked, so that it appears exclusively and with its content. What counts
# is whose name is in it, not whether ln said so: on a network file system its answer may be lost.
[ -n "$oc_identity" ] || oc_give_up 'the backend did not say which job this is'
if [ ! -e claim ]; then
  oc_claim=$(mktemp ./.claim.XXXXXXXX) && printf '%s\\n' "$oc_identity" >"$oc_claim" ||
    oc_give_up 'the claim could not be written'
  ln "$oc_claim" claim 2>/dev/null || [ -e claim ] || ( set -C; cat "$oc_claim" >claim ) 2>/dev/null || :
  rm -f "$oc_claim"
fi
oc_owner=
IFS= read -r oc_owner <claim || oc_give_up 'the claim could not be read'
if [ "$oc_owner" != "$oc_identity" ]; then
  printf '%s\\n' "open-compute: job $oc_owner holds the claim; this is $oc_identity, which does nothing" >&2
  exit ${String(EXIT_CLAIM_TAKEN)}
fi
oc_claimed=1
${options.afterClaim ?? ''}

# What an earlier run of this same job left must not count for this one.
rm -f done result.json || oc_give_up 'files of an earlier run could not be removed'
oc_wake
{ [ -r input.json ] && [ -x profile ]; } || oc_give_up 'the input or the profile is not there'
# Looked at before, for not every shell lets a script go on after an exec that failed.
IFS= read -r oc_first <profile || :
case $oc_first in
  '#!'*)
    oc_first=\${oc_first#'#!'}
    oc_first=\${oc_first#"\${oc_first%%[! \t]*}"}
    oc_first=\${oc_first%%[ \t]*}
    [ -x "$oc_first" ] || oc_give_up "the profile's interpreter is not there: $oc_first"
    ;;
esac

# In the background and waited for: a signal then interrupts the wait and is passed on. The variables are set in the
# child alone, so that a PATH meant for the profile is not used here.
oc_signalled=
oc_child=
for oc_name in TERM HUP USR1 USR2; do
  trap "oc_signalled=$oc_name; [ -z \\"\\$oc_child\\" ] || kill -s $oc_name \\"\\$oc_child\\" 2>/dev/null" "$oc_name"
done
(
${unsets}${exports}  exec ./profile ${shellQuote(files.input)} ${shellQuote(files.result)}
) </dev/null &
oc_child=$!
[ -z "$oc_signalled" ] || kill -s "$oc_signalled" "$oc_child" 2>/dev/null # it came before there was a child
oc_status=
while :; do
  oc_signalled=
  kill -0 "$oc_child" 2>/dev/null && oc_there=1 || oc_there=
  wait "$oc_child"
  oc_now=$?
  # Waited for already, and the signal came after that: the first answer was the right one.
  { [ "$oc_now" -eq 127 ] && [ -z "$oc_there" ] && [ -n "$oc_status" ]; } || oc_status=$oc_now
  [ -n "$oc_signalled" ] || break
done

oc_signal=
case $oc_status in # only signals that end a process: 19, say, would stop this one
  129 | 13[0-9] | 14[0-3] | 152 | 153 | 159) oc_signal=$((oc_status - 128)) ;;
esac
oc_done profile "$oc_status" "$oc_signal" ''
# The directory may be gone from here on.
if [ -n "$oc_signal" ]; then
  ulimit -c 0 # the core would be the shell's
  trap - TERM HUP USR1 USR2
  kill -s "$(kill -l "$oc_signal")" $$
fi
exit "$oc_status"
`;
}
