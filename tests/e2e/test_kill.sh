#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# SIGKILL of the runner, the agent or any rank at a random moment, over and over: soon afterwards no process of the run,
# no shared memory, no socket and no file is left, and when a rank was killed the runner names it and exits with 137.
# The whole product is copied, so that processes are known by their executable; TMPDIR, the runtime folder and, as root,
# /dev/shm and the network (with the names of sockets) are the test's own. KILLS: how often (30). BACKENDS
# (tcp gloo): of one group, in turn. SEED replays the choice of victims and moments.
# shellcheck disable=SC2012,SC2016,SC2317
. "$(dirname "$0")/lib.sh"
own_namespaces -m -n
need_scripted
kills=${KILLS:-30}
seed=${SEED:-$(($(date +%s%N) / 1000 % 30000))}
RANDOM=$seed
echo "# seed $seed, $kills kills"

copy=$tmp/product
mkdir -p "$copy" "$tmp/tmpdir" "$tmp/runtime"
cp -r "$home/bin" "$home/libexec" "$home/lib" "$copy/"
COLLRUN=$copy/bin/collrun
export TMPDIR=$tmp/tmpdir XDG_RUNTIME_DIR=$tmp/runtime

read -ra backends <<<"${BACKENDS:-tcp gloo}"
for backend in "${backends[@]}"; do
    job load-$backend <<END
version: 1
processes: {count: 6}
groups:
  s: {ranks: all, backend: shm}
  t: {ranks: [5, 3, 1, 0, 2, 4], backend: $backend}
  pair: {ranks: [2, 4], backend: shm}
workloads:
  - {name: one, plugin: ./scripted.so, groups: [s, pair], params: {dir: "$tmp", do: "pid; endless s pair"}}
  - {name: two, plugin: ./scripted.so, groups: [t], params: {do: "endless t"}}
timeouts: {grace: 2s}
END
done

# Processes whose executable lies in the copy (a deleted one included).
processes() { executing "$copy/*"; }
# pids NAME: of programs called so.
pids() { executing "$copy/*/$1*"; }
none_left() {
    local p
    for p in $(processes); do
        gone_or_zombie "$p" || return 1
    done
}
leftovers() {
    find "$tmp/tmpdir" "$tmp/runtime" -mindepth 1 2>/dev/null
    grep -o "[^ ]*${tmp}[^ ]*" /proc/net/unix
    grep -o '@[^ ]*collrun[^ ]*' /proc/net/unix | sort -u | comm -13 "$tmp/sockets" -
    ls -A /dev/shm | sort | comm -13 "$tmp/shm" -
    find /tmp /var/tmp -maxdepth 1 -name '*collrun*' -newer "$tmp/stamp" 2>/dev/null
}
ls -A /dev/shm | sort >"$tmp/shm"
grep -o '@[^ ]*collrun[^ ]*' /proc/net/unix | sort -u >"$tmp/sockets"
touch "$tmp/stamp"

# one NUMBER VICTIM MOMENT: MOMENT in ms after the start, or "up": when all ranks run.
one() {
    local number=$1 victim=$2 moment=$3 target rank left what backend
    backend=${backends[number % ${#backends[@]}]}
    what="kill $number, $backend: $victim at ${moment/%[0-9]/& ms}"
    start run "load-$backend.yaml"
    if [ "$moment" = up ]; then
        if ! maybe_within 20 noted_all 6 pid; then
            not_ok "$what" "the job did not come up in 20 s"
            kill -KILL "$pid"
            wait "$pid" 2>/dev/null
            return
        fi
        sleep "0.0$((RANDOM % 90 + 10))"
    else
        sleep "0.$(printf %03d "$moment")"
    fi
    case $victim in
    runner) target=$pid ;;
    agent) target=$(pids collrun-agent | sed -n "$((RANDOM % 2 + 1))p") ;; # or its guard, which has the same executable
    *)
        rank=${victim#rank }
        target=$(sed -n 's/^pid //p' "notes.$rank" 2>/dev/null | head -n 1)
        # Too early for the rank to have noted its pid: any engine, but the one that describes plugins to the runner, which
        # can do without, and which may have ended by now: then it has no command line.
        if [ -z "$target" ]; then
            rank=
            target=$(pids collrun-engine | while read -r p; do
                tr '\0' ' ' <"/proc/$p/cmdline" | grep -q -v -e --describe && echo "$p"
            done 2>/dev/null | head -n 1)
        fi
        ;;
    esac
    if [ -z "$target" ]; then
        # Not born yet: the runner dies instead.
        target=$pid victim=runner
    fi
    kill -KILL "$target" 2>/dev/null
    finish 60
    if [ "$code" = "still running" ]; then
        not_ok "$what" "the runner still runs after 15 s"
        return
    fi
    if ! maybe_within 10 none_left; then
        not_ok "$what" "still there after 10 s:" "$(ps -o pid,ppid,stat,wchan:20,args -p "$(processes | paste -sd,)")"
        processes | xargs -r kill -KILL
        return
    fi
    left=$(leftovers)
    if [ -n "$left" ]; then
        not_ok "$what" "left behind: $left"
        rm -rf "$tmp"/tmpdir/* "$tmp"/runtime/*
    elif [ -n "${rank:-}" ] && { [ "$code" != 137 ] || ! grep -qE "rank $rank([^0-9]|$)" err; }; then
        not_ok "$what" "exit code and culprit: expected 137 and rank $rank"
    elif [ "$victim" = agent ] && { [ "$code" -eq 0 ] || [ ! -s err ]; }; then
        not_ok "$what" "expected a failure with an error message"
    else
        ok "$what (exit code $code, $elapsed ms)"
    fi
}

for ((i = 1; i <= kills; i++)); do
    case $((RANDOM % 4)) in
    0) victim=runner ;;
    1) victim=agent ;;
    *) victim="rank $((RANDOM % 6))" ;;
    esac
    # One in three while the job comes up.
    if ((RANDOM % 3 == 0)); then one "$i" "$victim" $((RANDOM % 300)); else one "$i" "$victim" up; fi
done
done_testing
