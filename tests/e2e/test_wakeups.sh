#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No proof of a deadlock is false: pairs of ranks wait for each other, and something that is no operation wakes one of them: a
# handler, a timer, another process, a thread. In every job each pair has another way of wakeups.c or wakeups.py; the seed decides
# delays, which thread waits, and which threads take signals. The control of each kind of rank, without the wake-up, is proven.
#
#   WAKEUPS=N   N seeds on all backends, with all ways each; default: one seed, the ways in turns over the backends
. "$(dirname "$0")/lib.sh"
. "$here/python_lib.sh"
case $home in *tsan*) skip "wake-ups" "ThreadSanitizer runs a thread in every rank" && done_testing ;; esac
plugin "$here/wakeups.c" "$tmp/wakeups.so" &&
    cc -std=c11 -D_GNU_SOURCE -O1 -DPROGRAM -pthread -I"$include" "$here/wakeups.c" -o "$tmp/wakeups" -L"$home/lib" -lcollrun -Wl,-rpath,"$home/lib" || {
    echo "Bail out! the workload does not compile"
    exit 1
}
c_ways=(itimer timer_signal timer_thread child_exit child_kill continue io interrupted shared robust pipe wait_child sigwait signalfd timed sleeper computer)
python_ways=(raised raised_out_of_wait sends terminated interrupted child_ends timer sleeper)
[ -e "$home/lib/collrun/python/collrun/_collrun.abi3.so" ] && [ -z "$missing" ] || python_ways=()

# woken NAME BACKEND SEED KIND WAY...: a job with a pair for each way ends well. KIND: plugin, program or python.
woken() {
    local name=$1 backend=$2 seed=$3 kind=$4 ways work
    shift 4
    ways=$(IFS=, && echo "$*")
    case $kind in
    plugin) work="plugin: ./wakeups.so, params: {ways: '$ways', seed: $seed}" ;;
    program) work="command: [./wakeups, '$ways', '$seed']" ;;
    python) work="command: ['$python', '$here/wakeups.py', '$ways', '$seed']" ;;
    esac
    printf '%s\n' "version: 1" "processes: {count: $((2 * $#))}" "groups: {world: {ranks: all, backend: $backend}}" \
        "workloads: [{$work}]" "timeouts: {run: $((200 * slow))s}" >"$tmp/$name.yaml"
    (
        timeout -k 5 $((240 * slow)) "$COLLRUN" "$tmp/$name.yaml" >"$tmp/$name.out" 2>"$tmp/$name.err" </dev/null
        echo $? >"$tmp/$name.code"
    ) &
    jobs_of_test+=($!)
    names+=("$name")
}
jobs_of_test=()
names=()
judge() {
    wait "${jobs_of_test[@]}"
    for name in "${names[@]}"; do
        is "$name: no rank is called deadlocked (seed $seed)" "$(cat "$tmp/$name.code") $(grep -v 'was last in' "$tmp/$name.err" | head -c 1500)" "0 "
    done
    jobs_of_test=()
    names=()
}

# ---- the controls, and the job's own signal, beside the first jobs ----
controls=()
ucx=()
"$COLLRUN" backends 2>/dev/null | grep -q '^ucx .*: available' && ucx=(ucx)
for backend in shm tcp ${ucx[@]+"${ucx[@]}"}; do
    woken "control-plugin-$backend" $backend 1 plugin none
    woken "control-program-$backend" $backend 2 program none
    [ ${#python_ways[@]} -eq 0 ] || woken "control-python-$backend" $backend 1 python none
done
controls=("${names[@]}")
names=()
printf '%s\n' "version: 1" "processes: {count: 2}" "timeouts: {run: 4s, warn: {signal: INT, before: 2s}}" \
    "workloads: [{command: ['$python', '$here/wakeups.py', keyboard, '1']}]" >"$tmp/warn.yaml"
if [ ${#python_ways[@]} -gt 0 ]; then
    timeout -k 5 $((240 * slow)) "$COLLRUN" "$tmp/warn.yaml" >"$tmp/warn.out" 2>"$tmp/warn.err" </dev/null &
    jobs_of_test+=($!)
fi

# ---- the wake-ups ----
seed=${WAKEUPS_SEED:-$RANDOM}
backends=(shm tcp gloo)
if [ -n "${WAKEUPS:-}" ]; then
    for ((i = 0; i < WAKEUPS; i++, seed++)); do
        for backend in "${backends[@]}" ${ucx[@]+"${ucx[@]}"}; do
            woken "plugin-$backend-$seed" "$backend" "$seed" plugin "${c_ways[@]}"
            woken "program-$backend-$seed" "$backend" "$seed" program "${c_ways[@]}"
            [ ${#python_ways[@]} -eq 0 ] || woken "python-$backend-$seed" "$backend" "$seed" python "${python_ways[@]}"
            judge
        done
    done
else # a way is in one job as a plugin and in another one as a program
    third=$(((${#c_ways[@]} + 2) / 3))
    for i in 0 1 2; do
        j=$(((i + 1 + seed % 2) % 3))
        woken "plugin-${backends[i]}" "${backends[i]}" "$seed" plugin "${c_ways[@]:i*third:third}"
        woken "program-${backends[i]}" "${backends[i]}" "$seed" program "${c_ways[@]:j*third:third}"
    done
    [ ${#python_ways[@]} -eq 0 ] || woken "python" "${backends[seed % 3]}" "$seed" python "${python_ways[@]}"
    judge
fi

for name in "${controls[@]}"; do
    is "$name: without a wake-up the deadlock is proven" "$(cat "$tmp/$name.code") $(grep -c '^collrun: error: deadlock: ' "$tmp/$name.err")" "124 1"
done
[ ${#python_ways[@]} -eq 0 ] ||
    unlike "timeouts.warn sends SIGINT: no proof before" "$(cat "$tmp/warn.err")" 'error: deadlock' # ranks that start late die of it
done_testing
