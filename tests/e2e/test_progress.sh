#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On every backend that this machine can run: messages that start while an earlier one of their group waits, in one thread and in two;
# messages that are taken by collrun_test alone, or looked for beside a thread that waits; and thousands of short-lived groups, on a machine with few ports left.
# The option `sockets` of tcp, counted.
. "$(dirname "$0")/lib.sh"
plugin "$here/progress_programs.c" "$tmp/progress.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}

# good TITLE RANKS PARAMS [COMMAND...]: the program on $backend, under a command
good() {
    local title=$1 ranks=$2 params=$3
    shift 3
    job job <<END
version: 1
processes: {count: $ranks}
groups: {world: {ranks: all, backend: $backend, timeout: 10s$options}}
workloads: [{plugin: ./progress.so, params: {$params}}]
END
    COLLRUN_REAL=$COLLRUN
    [ $# = 0 ] || { printf '#!/bin/sh\nexec %s "%s" "$@"\n' "$*" "$COLLRUN" >"$tmp/under" && chmod +x "$tmp/under" && COLLRUN=$tmp/under; }
    run job.yaml
    COLLRUN=$COLLRUN_REAL
    is "$name: $title" "$code $(out) $(err)" "0 [0] done "
}

# A separate network, in which a closed connection would take one of 200 ports for a minute.
few_ports='unshare -rn sh -c '\''ip link set lo up && echo 20000 20199 >/proc/sys/net/ipv4/ip_local_port_range && exec "$@"'\'' -'
few=
eval "$few_ports true" 2>/dev/null && few=yes

for name in shm tcp tcp-sockets ucx gloo; do
    backend=${name%-*} options=
    [ "$name" = "$backend" ] || options=", options: {local: tcp}"
    [ -e "$home/lib/collrun/backends/libcollrun_$backend.so" ] || { skip "$name" "it is not built" && continue; }
    good "a send that starts 150 ms after a receive" 3 "what: send_later, ms: 150"
    good "a receive that starts 150 ms after a large send" 3 "what: receive_later, ms: 150, count: 1000000"
    good "a large send in another thread, 150 ms later" 2 "what: threads, ms: 150, count: 1000000"
    good "collrun_test takes 300 messages" 2 "what: polled, times: 300"
    # At 100 ms each, as without progress in collrun_test, they take 30 s.
    check "$name: and does so soon" [ "$elapsed" -lt $((20000 * slow)) ]
    good "collrun_iprobe finds a message beside a thread that waits for another one" 2 "what: looks, ms: 100, times: 30"
    good "collrun_test takes 20 large messages" 2 "what: polled, times: 20, count: 300000"
    if [ "$few" ]; then
        good "1,000 short-lived groups, then 10 at once, with 200 ports" 3 "what: groups, times: 1000, held: 10" "$few_ports"
    else
        skip "$name: many short-lived groups" "no network namespace can be made"
    fi
done

# sockets_of LINES...: how many rank 0 has after large messages, with these lines
sockets_of() {
    printf '%s\n' "version: 1" "processes: {count: 2}" "$@" \
        "workloads: [{plugin: ./progress.so, params: {what: polled, times: 3, count: 1000000, sockets: true}}]" | job job
    run job.yaml
    [ "$code" = 0 ] && sed -n 's/.* \([0-9]*\) sockets/\1/p' "$tmp/out"
}
one=$(sockets_of "groups: {world: {ranks: all, backend: tcp, options: {local: tcp}}}")
is "sockets: 4 of a group opens three more" "$(sockets_of "groups: {world: {ranks: all, backend: tcp, options: {local: tcp, sockets: 4}}}")" $((one + 3))
is "sockets: 4 of the backend, too" \
    "$(sockets_of "backends: {tcp: {options: {local: tcp, sockets: 4}}}" "groups: {world: {ranks: all, backend: tcp}}")" $((one + 3))
is "of several groups, the largest number counts" \
    "$(sockets_of "groups: {first: {ranks: all, backend: tcp, options: {sockets: 4}}, world: {ranks: all, backend: tcp, options: {local: tcp, sockets: 2}}}")" $((one + 3))
done_testing
