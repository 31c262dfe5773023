# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
#
# What the end-to-end tests share: TAP, a folder per test, the actor workload, and waits with a deadline. A test
# sources it, calls `plan` with the number of its cases (or `done_testing` at its end), and never sleeps to hope.
#
#   COLLRUN  the command under test       PREFIX  the installation it belongs to; by default the build it lies in
set -u
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
top=$(cd "$here/../.." && pwd)
COLLRUN=${COLLRUN:-$top/build/release/bin/collrun}
if ! COLLRUN=$(realpath -e "$COLLRUN" 2>/dev/null); then
    echo "Bail out! no command under test: build it, or set COLLRUN"
    exit 1
fi
home=${PREFIX:-$(cd "$(dirname "$COLLRUN")/.." && pwd)}
include=$home/include
[ -d "$include/collrun" ] || include=$top/engine/include
tmp=$(mktemp -d "${TMPDIR:-/tmp}/e2e.XXXXXX") || exit 1
# A sanitized build is slower; its deadlines are longer.
slow=${SLOW:-1}
case $home in *asan* | *tsan*) slow=${SLOW:-5} ;; esac
# Signals are the test's subject: the sanitizers leave them to the program.
export ASAN_OPTIONS=${ASAN_OPTIONS:-handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0}
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0
limit=$((30 * slow))
case_number=0 cases_failed=0 code=0
children=()

cleanup() {
    local child
    for child in ${children[@]+"${children[@]}"}; do
        kill -KILL "$child" 2>/dev/null
    done
    chmod -R u+rwX "$tmp" 2>/dev/null
    [ -n "${KEEP:-}" ] || rm -rf "$tmp"
}
trap cleanup EXIT
cd "$tmp" || exit 1

# ---- TAP ----
ok() {
    case_number=$((case_number + 1))
    echo "ok $case_number - $1"
}
# not_ok WHAT [DETAIL...]: details as comments, then what the last run said.
not_ok() {
    case_number=$((case_number + 1)) cases_failed=$((cases_failed + 1))
    echo "not ok $case_number - $1"
    shift
    for detail; do
        printf '%s\n' "$detail" | cut -c1-300 | head -n 20 | sed 's/^/#   /'
    done
    if [ -f "$tmp/err" ]; then
        echo "#   exit code $code; stderr:"
        head -c 4000 "$tmp/err" | tr -d '\000' | head -n 20 | sed 's/^/#   | /'
    fi
}
skip() {
    case_number=$((case_number + 1))
    echo "ok $case_number - $1 # SKIP $2"
}
done_testing() {
    echo "1..$case_number"
    [ "$cases_failed" -eq 0 ]
    exit
}
# is WHAT GOT WANT
is() {
    if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got:      $2" "expected: $3"; fi
}
# among WHAT GOT WANTED...
among() {
    local what=$1 got=$2
    shift 2
    if [[ " $* " == *" $got "* ]]; then ok "$what"; else not_ok "$what" "got: $got, expected one of: $*"; fi
}
# like WHAT TEXT REGEX (extended; any line)
like() {
    if grep -qE -- "$3" <<<"$2"; then ok "$1"; else not_ok "$1" "in: $2" "no line matches: $3"; fi
}
unlike() {
    if grep -qE -- "$3" <<<"$2"; then not_ok "$1" "in: $2" "a line matches: $3"; else ok "$1"; fi
}
# check WHAT COMMAND...
check() {
    local what=$1
    shift
    if "$@"; then ok "$what"; else not_ok "$what" "failed: $*"; fi
}

# ---- building ----
# plugin FILE.c OUT.so [CFLAGS...]: as a user would build it. FILE.c may be a folder of them.
plugin() {
    local source=("$1") out=$2
    shift 2
    [ ! -d "${source[0]}" ] || source=("${source[0]}"/*.c)
    cc -std=c11 -D_GNU_SOURCE -O1 -shared -fPIC -pthread -I"$include" "$@" "${source[@]}" -o "$out" -L"$home/lib" -lcollrun
}
need_actor() {
    plugin "$here/actor" "$tmp/actor.so" || {
        echo "Bail out! the actor workload does not compile"
        exit 1
    }
}

# ---- jobs ----
# job NAME <<EOF: writes NAME.yaml
job() {
    cat >"$tmp/$1.yaml"
}
# simple NAME COUNT STEPS [FURTHER LINES]: one actor on every rank.
simple() {
    {
        echo "version: 1"
        echo "processes: {count: $2}"
        echo "workloads:"
        echo "  - {plugin: ./actor.so, params: {dir: \"$tmp\", do: \"$3\"}}"
        [ $# -lt 4 ] || printf '%s\n' "$4"
    } >"$tmp/$1.yaml"
}
# run ARGUMENTS...: sets $code and $elapsed (ms), leaves out and err in $tmp. Never longer than $limit.
run() {
    local begin
    begin=$(date +%s%N)
    rm -f "$tmp"/notes.*
    timeout -k 5 "$limit" "$COLLRUN" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    elapsed=$((($(date +%s%N) - begin) / 1000000))
    [ -z "${TIMES:-}" ] || echo "# $elapsed ms: $*" 
    [ "$elapsed" -lt $((limit * 1000)) ] || code="killed after $limit s"
}
out() { cat "$tmp/out"; }
err() { cat "$tmp/err"; }
# Output without labels, of one rank or of all.
unlabelled() { sed -n "s/^\[${1:-[0-9]*}\] \{0,1\}//p" "$tmp/out"; }
notes() { cat "$tmp/notes.$1" 2>/dev/null; }
ends() { is "$1" "$code" "$2"; }
quiet() { is "$1" "$(head -c 1000 "$tmp/err")" ""; }

# ---- waiting ----
# within SECONDS COMMAND...: until it succeeds; false at the deadline.
within() {
    local deadline=$(($(date +%s) + $1 * slow))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$deadline" ] || return 1
        sleep 0.02
    done
}
# start ARGUMENTS...: the command in the background in a process group of its own, as from a shell; sets $pid.
start() {
    rm -f "$tmp"/notes.*
    : >"$tmp/out" # whoever waits for words must not find those of the run before
    : >"$tmp/err"
    set -m
    "$COLLRUN" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
    pid=$!
    set +m
    children+=("$pid")
}
gone() { ! kill -0 "$1" 2>/dev/null; }
# finish SECONDS: waits for the started command; sets $code (or "still running").
finish() {
    local begin
    begin=$(date +%s%N)
    if within "$1" gone_or_zombie "$pid"; then
        wait "$pid" 2>/dev/null
        code=$?
    else
        code="still running"
        kill -KILL -- "-$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    fi
    elapsed=$((($(date +%s%N) - begin) / 1000000))
}
# executing PATTERN: the pids whose executable matches (that of a deleted file as "FILE (deleted)").
executing() { find /proc/[0-9]*/exe -maxdepth 0 -lname "$1" -printf '%h\n' 2>/dev/null | cut -d/ -f3; }
# state PID: one letter, as ps shows it; nothing of a process that is gone.
state() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
stopped() { [ "$(state "$1")" = T ]; }
gone_or_zombie() { [[ $(state "$1") =~ ^Z?$ ]]; }
noted() { grep -q -- "$2" "$tmp/notes.$1" 2>/dev/null; }
# tell TEXT: the test's own note, for actors that await it
tell() { echo "$1" >>"$tmp/notes.test"; }
# asks REGEX: SIGUSR1 to the started command is answered by that. For `within`: a job that is just starting may not answer yet.
asks() { kill -USR1 "$pid" && within 1 grep -qE -- "$1" "$tmp/err"; }
# noted_all COUNT TEXT: by ranks 0 to COUNT - 1
noted_all() {
    local r
    for ((r = 0; r < $1; r++)); do noted "$r" "$2" || return 1; done
}
