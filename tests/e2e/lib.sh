# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
#
# Shared by the end-to-end tests: TAP, a folder per test, the scripted workload, and waits with a deadline. A test sources
# it and calls `done_testing` at its end.
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
# A sanitized build is slower, so its deadlines are longer. `sanitize`: flags for a program that is linked with it, which brings the
# runtime of the sanitizer.
slow=${SLOW:-1}
sanitized='' sanitize=()
case $home in
*asan*) sanitized=yes sanitize=(-fsanitize=address,undefined) ;;
*tsan*) sanitized=yes sanitize=(-fsanitize=thread) ;;
esac
[ -z "$sanitized" ] || slow=${SLOW:-5}
# Tests send signals: the sanitizers must leave them to the program.
export ASAN_OPTIONS=${ASAN_OPTIONS:-handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0}
export TSAN_OPTIONS=${TSAN_OPTIONS:-}:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:atexit_sleep_ms=0:suppressions=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/tsan.supp
limit=$((slow > 1 ? 200 : 90)) # of a run, in seconds: to detect a hang, also on a machine that does much else
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
# not_ok WHAT [DETAIL...]: prints the details and the stderr of the last run as comments.
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
# plugin FILE.c OUT.so [CFLAGS...]: builds a plugin as a user would. FILE.c may be a folder of sources.
plugin() {
    local source=("$1") out=$2
    shift 2
    [ ! -d "${source[0]}" ] || source=("${source[0]}"/*.c)
    cc -std=c11 -D_GNU_SOURCE -O1 -shared -fPIC -pthread -I"$include" "$@" "${source[@]}" -o "$out" -L"$home/lib" -lcollrun
}
need_scripted() {
    plugin "$here/scripted" "$tmp/scripted.so" || {
        echo "Bail out! the scripted workload does not compile"
        exit 1
    }
}

# own_namespaces FLAGS: begins the test again, in other namespaces if it may make them. -m: with an empty /dev/shm; -n: with a
# network of lo alone, in which nothing but this test has sockets, or has claimed cores.
own_namespaces() {
    [ -z "${OWN_NAMESPACES:-}" ] && command -v ip >/dev/null && unshare "$@" ip link set lo up 2>/dev/null || return 0
    cd "$here" && rm -rf "$tmp"
    # shellcheck disable=SC2016
    OWN_NAMESPACES=$* exec unshare "$@" sh -c '
        case $OWN_NAMESPACES in *-m*) mount -t tmpfs none /dev/shm ;; esac
        case $OWN_NAMESPACES in *-n*) ip link set lo up ;; esac
        exec bash "$0"' "$here/${0##*/}"
}

# own_product: the rest of the test runs a copy of the product, so that what executes a file of it belongs to the test.
own_product() {
    local folder
    mkdir -p "$tmp/product"
    for folder in bin lib libexec share; do
        [ ! -d "$home/$folder" ] || cp -al "$home/$folder" "$tmp/product/" 2>/dev/null || cp -a "$home/$folder" "$tmp/product/"
    done
    home=$tmp/product
    COLLRUN=$home/bin/collrun
}

now_us() { echo "${EPOCHREALTIME//[!0-9]/}"; }

# ---- jobs ----
# job NAME <<EOF: writes NAME.yaml
job() {
    cat >"$tmp/$1.yaml"
}
# simple NAME COUNT STEPS [FURTHER LINES]: the scripted workload on every rank.
simple() {
    {
        echo "version: 1"
        echo "processes: {count: $2}"
        echo "workloads:"
        echo "  - {plugin: ./scripted.so, params: {dir: \"$tmp\", do: \"$3\"}}"
        [ $# -lt 4 ] || printf '%s\n' "$4"
    } >"$tmp/$1.yaml"
}
# run ARGUMENTS...: runs the command, for $limit s at most; sets $code and $elapsed (ms); its output is $tmp/out and $tmp/err.
run() {
    local begin
    begin=$(now_us)
    rm -f "$tmp"/notes.*
    timeout -k 5 "$limit" "$COLLRUN" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    elapsed=$((($(now_us) - begin) / 1000))
    [ -z "${TIMES:-}" ] || echo "# $elapsed ms: $*" 
    [ "$elapsed" -lt $((limit * 1000)) ] || code="killed after $limit s"
}
out() { cat "$tmp/out"; }
err() { cat "$tmp/err"; }
# unlabelled [RANK]: the lines of one rank, or of all, without their labels
unlabelled() { sed -n "s/^\[${1:-[0-9]*}\] \{0,1\}//p" "$tmp/out"; }
notes() { cat "$tmp/notes.$1" 2>/dev/null; }
ends() { is "$1" "$code" "$2"; }
quiet() { is "$1" "$(head -c 1000 "$tmp/err")" ""; }
# quiet_or_late NAME: stderr has at most lines about a rank that was late. On a busy machine, one of a job with many collectives is.
quiet_or_late() { is "$1" "$(grep -vE '^collrun: rank [0-9]+ was last in [0-9]+ % of the operations of group ' "$tmp/err" | head -c 1000)" ""; }

# ---- waiting ----
# A test does not sleep for a fixed time. It waits for a condition, under a deadline that is longer in a sanitized build.
# maybe_within SECONDS COMMAND...: polls COMMAND until it succeeds; false at the deadline. For conditions that may stay
# false; the caller handles both results.
maybe_within() {
    local deadline=$((EPOCHSECONDS + $1 * slow))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$EPOCHSECONDS" -lt "$deadline" ] || return 1
        sleep 0.02
    done
}
# within SECONDS COMMAND...: a precondition of what follows. At the deadline it counts as a failed case, which names the
# condition and the line. Not for subshells and pipelines: the count of a failure would be lost there.
within() {
    [ "$BASHPID" = "$$" ] || { echo "Bail out! within, called in a subshell at ${BASH_SOURCE[1]##*/}:${BASH_LINENO[0]}: use maybe_within"; kill "$$"; }
    maybe_within "$@" || not_ok "${BASH_SOURCE[1]##*/}:${BASH_LINENO[0]}: the test waited $(($1 * slow)) s for: ${*:2}"
}
# check_within WHAT SECONDS COMMAND...: a case: COMMAND succeeds before the deadline.
check_within() {
    if maybe_within "${@:2}"; then ok "$1"; else not_ok "$1" "waited $(($2 * slow)) s for: ${*:3}"; fi
}
# start ARGUMENTS...: runs the command in the background in its own process group, as a shell does; sets $pid.
start() {
    rm -f "$tmp"/notes.*
    : >"$tmp/out" # a wait for a text must not find that of the run before
    : >"$tmp/err"
    set -m
    "$COLLRUN" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
    pid=$!
    set +m
    children+=("$pid")
}
gone() { ! kill -0 "$1" 2>/dev/null; }
# finish SECONDS: waits for the started command; sets $code ("still running" at the deadline, when it is killed) and $elapsed.
finish() {
    local begin
    begin=$(now_us)
    if maybe_within "$1" gone_or_zombie "$pid"; then
        wait "$pid" 2>/dev/null
        code=$?
    else
        code="still running"
        kill -KILL -- "-$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    fi
    elapsed=$((($(now_us) - begin) / 1000))
}
# executing PATTERN: the pids whose executable matches; a deleted executable is called "FILE (deleted)"
executing() { find /proc/[0-9]*/exe -maxdepth 0 -lname "$1" -printf '%h\n' 2>/dev/null | cut -d/ -f3; }
# state PID: the state letter that ps shows; nothing if the process has exited
state() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
stopped() { [ "$(state "$1")" = T ]; }
gone_or_zombie() { [[ $(state "$1") =~ ^Z?$ ]]; }
noted() { grep -q -- "$2" "$tmp/notes.$1" 2>/dev/null; }
# agent_of PID: the agents of that process (collrun, or a command that reaches a host); each is the child of a guard
agent_of() { pgrep -P "$(pgrep -d, -P "$1" -x collrun-guard)" -x collrun-agent; }
# note_test TEXT: a note of the test, for scripts that await it
note_test() { echo "$1" >>"$tmp/notes.test"; }
# status_shows REGEX: SIGUSR1 makes the started command print a line that matches. For check_within: a job that is starting may
# not answer yet.
status_shows() { kill -USR1 "$pid" && maybe_within 1 grep -qE -- "$1" "$tmp/err"; }
# noted_all COUNT TEXT: by ranks 0 to COUNT - 1
noted_all() {
    local r
    for ((r = 0; r < $1; r++)); do noted "$r" "$2" || return 1; done
}
