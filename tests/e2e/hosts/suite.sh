# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What must hold on every transport. The caller defines `head_of COUNT`, which prints the head of a job (version,
# hosts) with COUNT hosts, and has called need_scripted.

# The lines of hello say which group is on which backend.
suite_groups() {
    { head_of 8; cat <<'JOB'; } | job groups
processes: {count: 16}
groups:
  world: {ranks: all, backend: auto}
  node: {ranks: all, split: host, backend: shm}
  pairs: {ranks: [0, 15, 4], backend: tcp}
workloads: [{plugin: hello}]
JOB
    run groups.yaml
    ends "$1: groups across and inside hosts" 0
    is "$1: every rank prints" "$(grep -c 'hello from rank' "$tmp/out")" 16
    is "$1: world is on tcp" "$(grep -c 'world: [0-9]* of 16 (tcp)' "$tmp/out")" 16
    is "$1: inside a host it is shm" "$(grep -c 'node/[a-z0-9]*: [01] of 2 (shm)' "$tmp/out")" 16
    is "$1: and both at once, in the order of ranks" "$(unlabelled 15 | grep -o 'pairs: .*')" "pairs: 1 of 3 (tcp)"
    quiet "$1: a good job prints nothing on stderr"
}

suite_collectives() {
    { head_of 4; cat <<'JOB'; } | job collectives
processes: {count: 8}
groups:
  world: {ranks: all}
  node: {ranks: all, split: host}
workloads:
  - {name: across, plugin: allreduce, groups: [world]}
  - {name: inside, plugin: allreduce, groups: [node], params: {group: "node/{host}"}}
JOB
    run collectives.yaml
    ends "$1: collectives across and inside at the same time" 0
    like "$1: verified on tcp" "$(out)" "8 ranks on tcp.*verified"
    like "$1: verified on shm" "$(out)" "2 ranks on shm.*verified"
}

suite_failure() {
    { head_of 4; printf 'processes: {count: 8}\nworkloads:\n  - {plugin: %s/scripted.so, params: {dir: %s, do: "%s"}}\n' \
        "$tmp" "$tmp" "@5 exit 7;hang"; } | job failure
    run failure.yaml
    ends "$1: the exit code is the rank's" 7
    like "$1: the rank and its host are named" "$(err)" "rank 5"
    check_within "$1: nothing is left on any host" 60 nothing_left
}

suite_env() {
    { head_of 2; cat <<'JOB'; } | job env
processes: {count: 2}
env: {set: {PLACE: "{host}/{rank}"}, pass: [PASSED], secrets: [TOKEN]}
workloads: [{plugin: hello, params: {show: PLACE PASSED TOKEN}}]
JOB
    PASSED='a b"c'"'"'d$HOME' TOKEN=s3cr3t-t0k3n run env.yaml
    ends "$1: environment" 0
    like "$1: set, passed and secret arrive as they are" "$(out)" \
        'PLACE=[a-z0-9]*/1; PASSED=a b"c'"'"'d\$HOME; TOKEN=s3cr3t-t0k3n'
}

# A rank blocks when it prints faster than its output is read; nothing is lost, and the runner does not grow.
suite_output() {
    local lines=$2
    { head_of 2; printf 'processes: {count: 2}\nlogging: {console: {label: ""}}\nworkloads:\n'
      printf '  - {plugin: %s/scripted.so, params: {dir: %s, do: "@1 spew %d 1000"}}\n' "$tmp" "$tmp" "$lines"; } | job flood
    rm -f "$tmp/read" "$tmp/counted"
    "$COLLRUN" flood.yaml 2>"$tmp/err" | {
        maybe_within 60 test -e "$tmp/read" # if the case before fails, its $tmp/read follows at once
        awk '$2 != NR - 1 && !bad {bad = "line " NR " has number " $2} {n += length($0) + 1} END {print n, bad}' >"$tmp/counted"
    } &
    # The reader begins when the rank has slept in its write for a while; by then the rank has filled the pipes and its credit.
    check_within "$1: the rank blocks" 60 rank_blocked
    : >"$tmp/read"
    local peak=0
    within 90 measured
    wait $!
    if [ -z "$sanitized" ]; then
        check "$1: the runner stays small ($peak KiB)" [ "$peak" -gt 0 -a "$peak" -lt $((49152 * slow)) ]
    else
        skip "$1: the runner stays small" "a sanitizer keeps freed memory"
    fi
    is "$1: $((lines / 1000)) MB, nothing lost or reordered" "$(cat "$tmp/counted")" "$((lines * 1000)) "
}
# Takes the runner's $peak until the reader is done.
measured() {
    peak=$(runner_peak "$peak")
    [ -s "$tmp/counted" ]
}
# The rank sleeps in pipe_write and its count of written bytes stands still.
rank_blocked() {
    local pid before
    for pid in $(pgrep -x collrun-engine); do
        before=$(awk '/wchar/ {print $2}' "/proc/$pid/io")
        [ "$before" -gt 65536 ] || continue
        sleep 0.5
        [ "$(awk '/wchar/ {print $2}' "/proc/$pid/io")" = "$before" ] && return 0
    done
    return 1
}
runner_peak() {
    local pid now kib=$1
    for pid in $(pgrep -x collrun); do
        now=$(awk '/VmHWM/ {print $2}' "/proc/$pid/status" 2>/dev/null)
        [ "${now:-0}" -le "$kib" ] || kib=$now
    done
    echo "$kib"
}

# An agent dies or freezes: its host and ranks are named, and no process is left. $killed: the expected text about the transport.
suite_lost() {
    { head_of 4; printf 'processes: {count: 8}\ntimeouts: {grace: 1s, silence: 3750ms}\nworkloads:\n  - {plugin: %s/scripted.so, params: {dir: %s, do: "%s"}}\n' \
        "$tmp" "$tmp" "note up;hang"; } | job lost
    start lost.yaml
    within 60 noted_all 8 up
    kill -KILL "$(processes 3 collrun-agent)"
    finish 60
    is "$1: an agent is killed: the code" "$code" 127
    like "$1: an agent is killed: its host and ranks are named" "$(err)" "host h3 lost, with ranks 4-5: ${killed:-}"
    check "$1: an agent is killed: the job ends soon ($elapsed ms)" [ "$elapsed" -lt $((30000 * slow)) ]
    check_within "$1: an agent is killed: nothing is left on any host" 60 nothing_left

    start lost.yaml
    within 60 noted_all 8 up
    local agent
    agent=$(processes 3 collrun-agent)
    kill -STOP "$agent"
    finish 60
    is "$1: an agent is frozen: the code" "$code" 127
    like "$1: an agent is frozen: it is noticed" "$(err)" 'host h3 lost, with ranks 4-5: no heartbeat for [0-9]+ s'
    check "$1: an agent is frozen: reported, and the job ends ($elapsed ms)" [ "$elapsed" -lt $((30000 * slow)) ]
    kill -CONT "$agent" 2>/dev/null
    check_within "$1: an agent is thawed: nothing is left on any host" 60 nothing_left
}

# A restart reaches every host anew.
suite_restart() {
    { head_of 4; printf 'processes: {count: 8}\ntimeouts: {grace: 1s}\non_failure: {action: restart, max_restarts: 1, backoff: 10ms}\n'
      printf 'workloads:\n  - {plugin: %s/scripted.so, params: {dir: %s, do: "job;@5 exit 3"}}\n' "$tmp" "$tmp"; } | job restart
    run restart.yaml
    ends "$1: restarted, and failed again" 3
    is "$1: all ranks of the second attempt ran" "$(grep -c 'attempt 1, host' "$tmp/out")" 8
    check_within "$1: restarts leave nothing on any host" 60 nothing_left
}

# --wrap around a rank of another host: the program of the rank, its output and its exit code are those there.
suite_wrap() {
    printf '%s\n' '#include <collrun/workload.h>' '#include <stdlib.h>' \
        'static int run(struct collrun_ctx *ctx, void *state)' '{' '    volatile char *x = malloc(8);' '    (void)ctx, (void)state;' \
        '    x[8] = 1;' '    return x[8] == 1 && HOW;' '}' 'COLLRUN_WORKLOAD(.name = "wrapped", .run = run);' >"$tmp/wrapped.c"
    plugin "$tmp/wrapped.c" "$tmp/wrapped.so" -g -DHOW=0
    { head_of 2; printf 'processes: {count: 2}\nworkloads: [{plugin: %s/wrapped.so}]\n' "$tmp"; } | job wrapped
    if command -v valgrind >/dev/null && [ -z "$sanitized" ]; then
        run wrapped.yaml --wrap 1 valgrind -q --error-exitcode=9
        ends "$1: valgrind around a rank of another host finds its fault" 9
        is "$1: there alone" "$(grep -oE '^\[[01]\] ==[0-9]+== Invalid write of size 1' "$tmp/err" | tr -d '0-9')" "[] ==== Invalid write of size "
        like "$1: and it is the root cause" "$(err)" 'error: rank 1 \(h2, .*exited with code 9'
    else
        skip "$1: valgrind around a rank of another host" "valgrind is missing, or collrun has a sanitizer"
    fi
    if command -v perf >/dev/null && [ -z "$sanitized" ] && perf record -g -o "$tmp/probe.data" true >"$tmp/probe" 2>&1; then
        run wrapped.yaml --wrap 1 perf record -g -o "$tmp/rank1.data"
        ends "$1: perf around a rank of another host" 0
        check "$1: has its samples" sh -c "perf script -i '$tmp/rank1.data' 2>/dev/null | grep -q '^collrun-engine '"
    else
        skip "$1: perf around a rank of another host" "perf is missing, or may not record, or collrun has a sanitizer: $(head -n 1 "$tmp/probe" 2>/dev/null)"
    fi
    if command -v strace >/dev/null && strace -o "$tmp/probe" true 2>/dev/null && [ -z "$sanitized" ]; then
        run wrapped.yaml --wrap 1 strace -f -o "$tmp/rank1.strace"
        ends "$1: strace around a rank of another host" 0
        like "$1: to its end" "$(tail -n 1 "$tmp/rank1.strace")" '\+\+\+ exited with 0 \+\+\+'
    else
        skip "$1: strace around a rank of another host" "strace is missing, or may not trace, or collrun has a sanitizer"
    fi
    if command -v gdb >/dev/null && [ -z "$sanitized" ]; then
        plugin "$tmp/wrapped.c" "$tmp/wrapped.so" -g '-DHOW=(__builtin_trap(), 0)'
        run wrapped.yaml --wrap 1 gdb -batch -ex run -ex bt --args
        like "$1: gdb around a rank of another host shows where it crashes" "$(out)" '^\[1\] #0 .* run \(ctx=.*wrapped.c:8'
    else
        skip "$1: gdb around a rank of another host" "gdb is missing, or collrun has a sanitizer"
    fi
    check_within "$1: nothing of them is left" 60 nothing_left
}

# suite NAME [KB]: KB of output in suite_output
suite() {
    suite_groups "$1"
    suite_collectives "$1"
    suite_failure "$1"
    suite_env "$1"
    suite_output "$1" "${2:-100000}"
    suite_lost "$1"
    suite_restart "$1"
    suite_wrap "$1"
}
