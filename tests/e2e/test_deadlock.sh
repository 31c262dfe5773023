#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A job that deadlocks ends soon, with an error that says which rank waits for which; one that only seems to deadlock keeps running.
. "$(dirname "$0")/lib.sh"
plugin "$here/deadlock_programs.c" "$tmp/deadlock_programs.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}
under_tsan=$(case $home in *tsan*) echo yes ;; esac)

# program NAME BACKEND PROGRAM [FURTHER LINES]: starts a job; its stderr is NAME.err, its exit code NAME.code.
program() {
    {
        echo "version: 1"
        echo "processes: {count: 3}"
        echo "groups: {world: {ranks: all, backend: $2}, other: {ranks: all, backend: $2}}"
        echo "workloads:"
        echo "  - {plugin: ./deadlock_programs.so, params: {program: $3}}"
        [ "$1" != background ] || echo "  - {plugin: ./deadlock_programs.so, name: back, params: {program: gone}, background: true}"
        [ $# -lt 4 ] || printf '%s\n' "$4"
    } >"$tmp/$1.yaml"
    {
        begin=$(date +%s%N)
        timeout -k 5 "$limit" "$COLLRUN" "$tmp/$1.yaml" >"$tmp/$1.out" 2>"$tmp/$1.err" </dev/null
        echo $? >"$tmp/$1.code"
        echo $((($(date +%s%N) - begin) / 1000000)) >"$tmp/$1.ms"
    } &
    running_jobs+=($!)
}
wait_for_all() {
    wait "${running_jobs[@]}"
    running_jobs=()
}
running_jobs=()
stderr_of() { cat "$tmp/$1.err"; }

# deadlocked NAME WHAT REGEX [CODE]: it ended soon, with this exit code (124) and this error.
deadlocked() {
    is "$1: ${4:-124}" "$(cat "$tmp/$1.code")" "${4:-124}"
    like "$1: $2" "$(stderr_of "$1")" "^collrun: error: (deadlock: )?$3"
    check "$1: soon" [ "$(cat "$tmp/$1.ms")" -lt $((10000 * slow)) ]
}
good() {
    is "$1: ends with 0" "$(cat "$tmp/$1.code") $(stderr_of "$1")" "0 "
}

# The sanitizer runs a thread that collrun cannot see, so no deadlock is proven there.
if [ -n "$under_tsan" ]; then
    skip "deadlocks" "ThreadSanitizer runs a thread in every rank"
    done_testing
fi

large='\(4194304 x uint8'
for backend in ${BACKENDS:-shm tcp gloo}; do
    for program in cross flood ring order probe gone tag many any_source in_thread; do program $backend-$program $backend $program; done
    wait_for_all
    deadlocked $backend-cross "both send first" \
        "rank 0 waits in send world#1 $large\) for rank 1; rank 1 waits in send world#1 $large\) for rank 0"
    deadlocked $backend-flood "both send short messages that no rank receives" \
        "rank 0 waits in send world#[0-9]+ \(131072 x uint8\) for rank 1; rank 1 waits in send world#[0-9]+ \(131072 x uint8\) for rank 0"
    like "$backend-cross: what to do" "$(stderr_of $backend-cross)" '^hint: .*collrun_sendrecv'
    deadlocked $backend-probe "a probe and a receive of any tag" \
        "rank 0 waits in probe world#1 \(tag 7\) for rank 1; rank 1 waits in recv world#1 \(4194304 x uint8, any tag\) for rank 0"
    deadlocked $backend-ring "all receive first" "rank 0 waits in recv world#1 .* for rank 2; rank 2 .* for rank 1; rank 1 .* for rank 0"
    deadlocked $backend-order "the order of two groups differs" \
        "rank 0 waits in barrier other#1 for rank 1; rank 1 waits in barrier world#1 for rank 0; 3 ranks .*; only rank 0 calls other#1 before world#1"
    like "$backend-order: what to do" "$(stderr_of $backend-order)" '^hint: .*same order'
    deadlocked $backend-gone "a rank has returned" "rank 0 waits in barrier world#1 for rank 1, whose workloads have ended" 1
    deadlocked $backend-tag "tags differ" "rank 0 waits in send world#1 $large, tag 6\) for rank 1; rank 1 waits in recv .*, tag 5\)"
    like "$backend-tag: what to do" "$(stderr_of $backend-tag)" '^hint: .*tag'
    deadlocked $backend-many "one of several messages has no sender" "rank [01] waits in .* for rank 2, whose workloads have ended" 1
    deadlocked $backend-any_source "every possible sender has ended" "rank 0 waits in recv_any world#1 .* for rank [12], whose workloads have ended" 1
    deadlocked $backend-in_thread "the blocked thread is joined by another" "rank 0 waits in recv world#1 .* for rank 1, whose" 1

    for program in late late_in_thread small child polls both_ways half patience; do program $backend-$program $backend $program; done
    wait_for_all
    for program in late late_in_thread small child polls both_ways half patience; do good $backend-$program; done
done

# ---- the job after a deadlock ----
program short 'shm, timeout: 2s' cross 'timeouts: {grace: 2s}'
program background shm pause 'timeouts: {grace: 2s}'
program again shm first_time 'on_failure: {action: stop, rules: [{when: {cause: deadlock}, action: restart}], backoff: 10ms}'
program logged shm cross "logging: {dir: $tmp/run}"
program order shm order "logging: {dir: $tmp/order}"
program moved_on "shm, timeout: 3s" moved_on "logging: {dir: $tmp/moved}"
wait_for_all
like "a short time-out comes first, and is explained" "$(stderr_of short)" \
    'send world#1: rank [01] waited 2.0 s for rank [01]; deadlock: rank 0 waits in send world#1 .* for rank 1; rank 1 waits'
is "a deadlock of a background workload ends with the job" "$(cat "$tmp/background.code") $(stderr_of background)" "0 "
is "the rules know it: the job is restarted" "$(cat "$tmp/again.code")" 0
like "a rank that has continued waits for no rank any more" "$(tr -d ' \n' <"$tmp/moved/result.json")" \
    '"class":"missing","culprits":\[0,1\]'
order=$(tr -d ' \n' <"$tmp/order/result.json")
like "the rank whose order differs is the culprit" "$order" '"class":"deadlock","culprits":\[0\],"suspects":\[\]'
like "result.json has the class" "$(cat "$tmp/run/result.json" 2>/dev/null)" '"class": ?"deadlock"'
done_testing
