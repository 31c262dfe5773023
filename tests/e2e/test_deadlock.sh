#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs that can never go on end soon, with a sentence that says who waits for whom; those that only look like it go on.
. "$(dirname "$0")/lib.sh"
plugin "$here/knot.c" "$tmp/knot.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}
under_tsan=$(case $home in *tsan*) echo yes ;; esac)

# knot NAME BACKEND HOW [FURTHER LINES]: starts it; its words go to NAME.err, its code to NAME.code.
knot() {
    {
        echo "version: 1"
        echo "processes: {count: 3}"
        echo "groups: {world: {ranks: all, backend: $2}, other: {ranks: all, backend: $2}}"
        echo "workloads:"
        echo "  - {plugin: ./knot.so, params: {how: $3}}"
        [ "$1" != background ] || echo "  - {plugin: ./knot.so, name: back, params: {how: gone}, background: true}"
        [ $# -lt 4 ] || printf '%s\n' "$4"
    } >"$tmp/$1.yaml"
    {
        begin=$(date +%s%N)
        timeout -k 5 "$limit" "$COLLRUN" "$tmp/$1.yaml" >"$tmp/$1.out" 2>"$tmp/$1.err" </dev/null
        echo $? >"$tmp/$1.code"
        echo $((($(date +%s%N) - begin) / 1000000)) >"$tmp/$1.ms"
    } &
    jobs_there+=($!)
}
all_end() {
    wait "${jobs_there[@]}"
    jobs_there=()
}
jobs_there=()
words() { cat "$tmp/$1.err"; }

# stuck NAME WHAT REGEX: it ended with 124, soon, and said so.
stuck() {
    is "$1: 124" "$(cat "$tmp/$1.code")" 124
    like "$1: $2" "$(words "$1")" "^collrun: error: deadlock: $3"
    check "$1: soon" [ "$(cat "$tmp/$1.ms")" -lt $((10000 * slow)) ]
}
good() {
    is "$1: ends well" "$(cat "$tmp/$1.code") $(words "$1")" "0 "
}

# The sanitizer's own thread may do anything, so nothing is certain there.
if [ -n "$under_tsan" ]; then
    skip "deadlocks" "ThreadSanitizer has a thread of its own"
    done_testing
fi

large='\(4194304 x uint8'
for backend in shm gloo; do
    for how in cross ring order gone tag many anyone in_thread; do knot $backend-$how $backend $how; done
    all_end
    stuck $backend-cross "both send first" \
        "rank 0 waits in send world#1 $large\) for rank 1; rank 1 waits in send world#1 $large\) for rank 0"
    like "$backend-cross: what to do" "$(words $backend-cross)" '^hint: .*collrun_sendrecv'
    stuck $backend-ring "all receive first" "rank 0 waits in recv world#1 .* for rank 2; rank 2 .* for rank 1; rank 1 .* for rank 0"
    stuck $backend-order "the order of two groups differs" \
        "rank 0 waits in barrier other#1 for rank 1; rank 1 waits in barrier world#1 for rank 0; 3 ranks"
    like "$backend-order: what to do" "$(words $backend-order)" '^hint: .*same order'
    stuck $backend-gone "a rank has returned" "rank 0 waits in barrier world#1 for rank 1, whose workloads have ended"
    stuck $backend-tag "tags differ" "rank 0 waits in send world#1 $large, tag 6\) for rank 1; rank 1 waits in recv .*, tag 5\)"
    like "$backend-tag: what to do" "$(words $backend-tag)" '^hint: .*tag'
    stuck $backend-many "one of several messages has no sender" "rank [01] waits in .* for rank 2, whose workloads have ended"
    stuck $backend-anyone "nobody is left to send" "rank 0 waits in recv_any world#1 .* for rank [12], whose workloads have ended"
    stuck $backend-in_thread "in a thread that another waits for" "rank 0 waits in recv world#1 .* for rank 1, whose"

    for how in late late_in_thread small child polls both_ways patience; do knot $backend-$how $backend $how; done
    all_end
    for how in late late_in_thread small child polls both_ways patience; do good $backend-$how; done
done

# ---- what becomes of it ----
knot short 'shm, timeout: 2s' cross 'timeouts: {grace: 2s}'
knot background shm pause 'timeouts: {grace: 2s}'
knot again shm first_time 'on_failure: {action: stop, rules: [{when: {cause: stall}, action: restart}], backoff: 10ms}'
knot told shm cross "logging: {dir: $tmp/run}"
all_end
like "a short time-out comes first, and is explained" "$(words short)" \
    'send world#1: rank [01] waited 2.0 s for rank [01]; deadlock: rank 0 waits in send world#1 .* for rank 1; rank 1 waits'
is "one in the background is ended with the job" "$(cat "$tmp/background.code") $(words background)" "0 "
is "it is a stall to the rules: the job is started again" "$(cat "$tmp/again.code")" 0
like "result.json has the cause" "$(cat "$tmp/run/result.json" 2>/dev/null)" '"cause": ?"stall"'
done_testing
