#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The network between two hosts is dead, and collrun still reaches both. The stall report, the error of an operation that times out
# and result.json name the pair of hosts and the connection without an answer; also one that has never come up, over IPv4 and IPv6.
# Packets to a MAC address that no host has are lost without a trace, in this direction alone.
#
#   cut-a e0 10.98.0.1, fd98::1 ------------- 10.98.0.2, fd98::2 e0 cut-b   until the jobs run
#         10.99.0.1, fd99::1                  10.99.0.2, fd99::2            dead from the beginning
. "$(dirname "$0")/lib.sh"
own_namespaces -m -n
ip netns add cut-a 2>/dev/null && ip netns add cut-b || {
    skip "a cut between hosts" "no network namespace can be made here"
    done_testing
}
on_exit_netns() { ip netns del cut-a; ip netns del cut-b; }
trap 'on_exit_netns 2>/dev/null; cleanup' EXIT
ip -n cut-a link add e0 type veth peer name e0 netns cut-b
for i in a,1 b,2; do
    ip -n "cut-${i%,*}" link set lo up
    ip -n "cut-${i%,*}" link set e0 up
    for net in 10.98.0. 10.99.0.; do ip -n "cut-${i%,*}" addr add "$net${i#*,}/24" dev e0; done
    for net in fd98:: fd99::; do ip -n "cut-${i%,*}" addr add "$net${i#*,}/64" dev e0 nodad; done
done
lose() { # NETWORK...: packets from a to b
    local net
    for net; do ip -n cut-a neigh replace "${net}2" dev e0 lladdr 02:00:00:00:00:99 nud permanent; done
}
lose 10.99.0. fd99::
mac=$(ip netns exec cut-a cat /sys/class/net/e0/address) # b does not have to ask for it
ip -n cut-b neigh replace fd99::1 dev e0 lladdr "$mac" nud permanent

cat >"$tmp/cut.c" <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <unistd.h>
/* Operations until the network is cut, which a file tells; then one more. */
static int run(struct collrun_ctx *ctx, void *state)
{
    static float a[1 << 16];
    struct collrun_group *w;
    (void)state;
    int rc = collrun_group_get(ctx, "world", &w);
    for (int i = 0; !rc; i++) {
        rc = collrun_allreduce(w, a, a, 1 << 16, COLLRUN_FLOAT32, COLLRUN_MAX);
        if (i == 10 && collrun_rank(w) == 0)
            printf("up\n"), fflush(stdout);
        usleep(1000);
    }
    return rc;
}
COLLRUN_WORKLOAD(.name = "cut", .run = run);
END
plugin "$tmp/cut.c" "$tmp/cut.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}
jobs=(tcp,10.98.0.0/24 tcp6,fd98::/64 gloo,10.98.0.0/24 dead,10.99.0.0/24 dead6,fd99::/64)
if "$COLLRUN" backends 2>/dev/null | grep -q '^ucx .*: available'; then
    jobs+=(ucx,10.98.0.0/24)
else
    skip "ucx" "it is not available here"
fi
for job in "${jobs[@]}"; do
    name=${job%,*} backend=${job%,*}
    [[ $name =~ ^(tcp6|dead.*)$ ]] && backend=tcp
    cat >"$tmp/$name.yaml" <<END
version: 1
hosts:
  defaults: {transport: {command: [ip, netns, exec, "{host}"]}, slots: 2}
  nodes: [cut-a, cut-b]
stage: never
network: {interface: "${job#*,}"}
processes: {count: 4}
groups: {world: {ranks: all, backend: $backend, timeout: $((7 * slow))s}}
workloads: [{plugin: ./cut.so}]
timeouts: {run: $((60 * slow))s, grace: 1s, stall: 2500ms}
logging: {dir: ./$name.dir}
END
    timeout -k 5 $((90 * slow)) "$COLLRUN" "$tmp/$name.yaml" >"$tmp/$name.out" 2>"$tmp/$name.err" </dev/null &
    children+=($!)
done
for job in "${jobs[@]}"; do
    [[ $job == dead* ]] || check_within "${job%,*}: the job is up" 30 grep -q up "$tmp/${job%,*}.out"
done
lose 10.98.0. fd98::
wait "${children[@]}"

cat >"$tmp/verdict.py" <<'END'
import json, sys
v = json.load(open(sys.argv[1]))["verdict"]
n = v["network"]
print(v["class"], v["culprits"], v["suspects"], sorted(n["hosts"]), n["rank"] in v["suspects"], n["address"][:2],
      n["port"] > 0, n["connected"], n["retransmits"] + n["probes"] > 0)
END
for job in "${jobs[@]}"; do
    name=${job%,*} connected=True
    hosts='the network between hosts cut-(a and cut-b|b and cut-a) may be cut' address='(10\.9[89]\.0\.[12]|fd9[89]::[12]) port [0-9]+'
    cut="no answer from $address for [0-9.]+ s \([0-9]+ (keepalive probe|retransmission).*\): $hosts"
    [[ $name != dead* ]] || cut="the connection to $address has not come up \([0-9]+ attempts\): $hosts" connected=False
    err=$(cat "$tmp/$name.err")
    like "$name: the error names the hosts, and the connection" "$(grep error: <<<"$err")" "rank [0-3].*waited .* s for ranks? .*; $cut"
    like "$name: so does the stall report" "$err" "CAUSE  rank [0-3] \(cut-[ab], pid [0-9]+\): $cut"
    is "$name: result.json" "$(python3 "$tmp/verdict.py" "$tmp/$name.dir/result.json")" \
        "timeout [] [0, 1, 2, 3] ['cut-a', 'cut-b'] True $([[ ${job#*,} == fd* ]] && echo fd || echo 10) True $connected True"
done
done_testing
