#!/bin/sh
#SBATCH --ntasks=1
#SBATCH --open-mode=append
#
# Transport smoke test: shows that parameters get to a job and a result comes back, and lets tests shape the job.
# Needs POSIX sh, awk, date, sleep and uname, nothing else. Called with the paths of its input and of its result.
#
# Parameters, one JSON object:
#   message    text: comes back in the result as it is
#   sleep      seconds to wait before the end; 0 if not given
#   exit       the status to exit with, 0 to 255; the result is written before
#   memory_mb  MiB to fill, and to hold while it sleeps
set -u
LC_ALL=C # bytes, not characters: what is not understood is passed on as it is
export LC_ALL

fail() { # MESSAGE: the input is wrong; trying again does not help
  printf 'slurm-smoke: %s\n' "$1" >&2
  exit 2
}

[ $# -eq 2 ] || fail 'usage: slurm-smoke.sh INPUT RESULT'
input=$1
result=$2
[ -r "$input" ] || fail "cannot read its input $input"
started=$(date -u +%Y-%m-%dT%H:%M:%SZ)

# Reads the top level of one JSON object. Prints the three numbers; the message, a JSON string, goes to a file as it is
# spelled, for JSON that is copied needs no escaping. Split at the quotes, every other part is a string, unless a quote
# was escaped: then an odd number of backslashes is before it.
numbers=$(awk -v message_file="$result.message" '
  function bad(why) { print why >"/dev/stderr"; failed = 1; exit 2 }
  function take(key, value) {
    if (key == "message") {
      if (value !~ /^"/) bad("message is not text")
      message = value
    } else if (key == "sleep" || key == "memory_mb" || key == "exit") {
      if (value !~ (key == "sleep" ? "^[0-9]+([.][0-9]+)?$" : "^[0-9]+$")) bad(key " is not such a number: " value)
      if (key == "exit" && value + 0 > 255) bad("exit is over 255")
      number[key] = value
    }
  }
  # What is outside of strings: the structure. Only depth 1 matters, the rest of a deeper value is skipped.
  function outside(text,   i, c) {
    gsub(/[ \t\r\n]/, "", text)
    for (i = 1; i <= length(text); i++) {
      c = substr(text, i, 1)
      if (closed) bad("something comes after the object")
      if (c == "{" || c == "[") {
        if (depth == 0 && c == "[") bad("not an object")
        if (depth == 1) plain = plain c
        depth++
      } else if (c == "}" || c == "]") {
        depth--
        if (depth == 0) { pair(); closed = 1 }
      } else if (depth == 0) bad("not an object")
      else if (depth > 1) continue
      else if (c == ":") { key = string; string = ""; has_key = 1 }
      else if (c == ",") pair()
      else plain = plain c
    }
  }
  function pair() {
    if (has_key) take(substr(key, 2, length(key) - 2), plain == "" ? string : plain)
    key = string = plain = ""
    has_key = 0
  }
  { text = text (NR > 1 ? "\n" : "") $0 }
  END {
    if (failed) exit 2
    parts = split(text, part, "\"")
    outside(part[1])
    for (i = 2; i <= parts; i++) {
      value = part[i]
      while (match(part[i], /\\+$/) && RLENGTH % 2 == 1) {
        if (++i > parts) bad("a text does not end")
        value = value "\"" part[i]
      }
      if (i == parts) bad("a text does not end")
      if (depth == 1) string = "\"" value "\""
      outside(part[++i])
    }
    if (!closed) bad("not a JSON object")
    if (message == "") bad("message is missing")
    printf "%s", message >message_file
    close(message_file)
    print number["sleep"] + 0, number["exit"] + 0, number["memory_mb"] + 0
  }' "$input" 2>&1) || {
  rm -f "$result.message"
  fail "bad input: $numbers"
}
set -- $numbers

if [ "$3" -gt 0 ]; then
  awk -v mib="$3" -v seconds="$1" 'BEGIN {
    block = "x"
    while (length(block) < 1048576) block = block block
    for (i = 0; i < mib; i++) held[i] = block i # a copy each time: written to, so really used
    if (seconds > 0) system("sleep " seconds)
  }' || exit
elif [ "$1" != 0 ]; then
  sleep "$1" || exit
fi

# Under another name first: a result is there as a whole, or not at all.
host=$(uname -n | tr -cd 'A-Za-z0-9._-')
{
  printf '{"message":' && cat "$result.message" &&
    printf ',"host":"%s","started":"%s","ended":"%s","slept":%s,"job":"%s"}\n' \
      "$host" "$started" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" "${OPEN_COMPUTE_JOB_ID-}"
} >"$result.new" && mv -f "$result.new" "$result" || {
  echo "slurm-smoke: cannot write its result $result" >&2
  exit 3
}
rm -f "$result.message"
exit "$2"
