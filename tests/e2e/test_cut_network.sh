#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The network between two hosts is dead, and collrun still reaches both: when an operation times out, its error names the pair of
# hosts and the connection without an answer. Packets to a MAC address that no host has are lost without a trace.
#
#   cut-a e0 10.98.0.1 ------------- 10.98.0.2 e0 cut-b
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
    ip -n "cut-${i%,*}" addr add "10.98.0.${i#*,}/24" dev e0 && ip -n "cut-${i%,*}" link set e0 up
done
cut_network() { ip -n cut-a neigh replace 10.98.0.2 dev e0 lladdr 02:00:00:00:00:99 nud permanent; }

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
ranks=2 # over tcp, one rank of each host has connections
for backend in tcp gloo; do
    cat >"$tmp/$backend.yaml" <<END
version: 1
hosts:
  defaults: {transport: {command: [ip, netns, exec, "{host}"]}, slots: $((ranks / 2))}
  nodes: [cut-a, cut-b]
stage: never
network: {interface: 10.98.0.0/24}
processes: {count: $ranks}
groups: {world: {ranks: all, backend: $backend, timeout: 4s}}
workloads: [{plugin: ./cut.so}]
timeouts: {run: $((60 * slow))s, grace: 1s}
END
    timeout -k 5 $((90 * slow)) "$COLLRUN" "$tmp/$backend.yaml" >"$tmp/$backend.out" 2>"$tmp/$backend.err" </dev/null &
    children+=($!)
    ranks=4
done
for backend in tcp gloo; do check_within "$backend: the job is up" 30 grep -q up "$tmp/$backend.out"; done
cut_network
wait "${children[@]}"
for backend in tcp gloo; do
    like "$backend: the error names the hosts, and the connection" "$(cat "$tmp/$backend.err")" \
        'rank [0-3] waited 4\.[0-9] s for ranks? .*; no answer from 10\.98\.0\.[12] port [0-9]+ for [0-9.]+ s \([0-9]+ .*\): the network between hosts cut-(a and cut-b|b and cut-a) may be cut(;|$)'
done
done_testing
