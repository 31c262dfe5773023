#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The network between two hosts is dead, and collrun still reaches both. The stall report, the error of an operation that times out
# and result.json name the pair of hosts and the connection without an answer; also one that has never come up, over IPv4 and IPv6.
# So do they when no time-out of an operation comes first: a connection breaks, or cannot be made.
# Packets to a MAC address that no host has are lost without a trace, in this direction alone.
#
#   cut-a e0 10.98.0.1, fd98::1 ------------- 10.98.0.2, fd98::2 e0 cut-b   until the jobs run
#         e1 10.99.0.1, fd99::1 ------------- 10.99.0.2, fd99::2 e1         dead from the beginning
#         e2 10.97.0.1, fd97::1 ------------- 10.97.0.2, fd97::2 e2         no route, from the beginning
. "$(dirname "$0")/lib.sh"
own_namespaces -m -n
ip netns add cut-a 2>/dev/null && ip netns add cut-b || {
    skip "a cut between hosts" "no network namespace can be made here"
    done_testing
}
on_exit_netns() { ip netns del cut-a; ip netns del cut-b; }
trap 'on_exit_netns 2>/dev/null; cleanup' EXIT
nets=(98 99 97) # of e0, e1, e2
for i in a,1 b,2; do
    ip -n "cut-${i%,*}" link set lo up
    for e in 0 1 2; do
        [ "$i" = b,2 ] || ip -n cut-a link add "e$e" type veth peer name "e$e" netns cut-b
        ip -n "cut-${i%,*}" link set "e$e" up
        ip -n "cut-${i%,*}" addr add "10.${nets[e]}.0.${i#*,}/24" dev "e$e"
        ip -n "cut-${i%,*}" addr add "fd${nets[e]}::${i#*,}/64" dev "e$e" nodad
    done
done
lose() { # E: packets from a to b
    local net
    for net in "10.${nets[$1]}.0." "fd${nets[$1]}::"; do
        ip -n cut-a neigh replace "${net}2" dev "e$1" lladdr 02:00:00:00:00:99 nud permanent
    done
}
lose 1
mac=$(ip netns exec cut-a cat /sys/class/net/e1/address) # b does not have to ask for it
ip -n cut-b neigh replace fd99::1 dev e1 lladdr "$mac" nud permanent
ip -n cut-a route add unreachable 10.97.0.2 && ip -n cut-b route add unreachable 10.97.0.1

cat >"$tmp/cut.c" <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <unistd.h>
static const struct collrun_param params[] = {
    {.name = "idle", .type = COLLRUN_PARAM_BOOL, .def = "false", .help = "a message is awaited, and nothing is under way"}, {0}};
/* Operations until one fails, because the network is cut. */
static int run(struct collrun_ctx *ctx, void *state)
{
    static float a[1 << 16];
    struct collrun_group *w;
    (void)state;
    const bool idle = collrun_param_bool(ctx, "idle");
    int rc = collrun_group_get(ctx, "world", &w);
    for (int i = 0; !rc && !(idle && i > 10); i++) {
        rc = collrun_allreduce(w, a, a, 1 << 16, COLLRUN_FLOAT32, COLLRUN_MAX);
        if (i == 10 && collrun_rank(w) == 0)
            printf("up\n"), fflush(stdout);
        usleep(1000);
    }
    if (!rc && collrun_rank(w) == 0)
        sleep(600);
    return rc ? rc : collrun_recv(w, a, 1, COLLRUN_FLOAT32, collrun_rank(w) == 3 ? 2 : 0);
}
COLLRUN_WORKLOAD(.name = "cut", .params = params, .run = run);
END
plugin "$tmp/cut.c" "$tmp/cut.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}
# NAME,NETWORK,BACKEND,TIME-OUT of the group: the latter passes before a connection has failed, or one fails before. The former also get a
# stall report, whose stacks take their time when all these jobs begin theirs together.
jobs=(tcp,10.98.0.0/24,tcp,7 tcp6,fd98::/64,tcp,7 gloo,10.98.0.0/24,gloo,7 dead,10.99.0.0/24,tcp,7 dead6,fd99::/64,tcp,7)
fails=(tcp_breaks,10.98.0.0/24,tcp,60 tcp_idle_breaks,10.98.0.0/24,tcp,60 gloo_idle_breaks,10.98.0.0/24,gloo,60 tcp_unmade,10.99.0.0/24,tcp,60 tcp_no_route,10.97.0.0/24,tcp,60 gloo_no_route,10.97.0.0/24,gloo,60)
if "$COLLRUN" backends 2>/dev/null | grep -q '^ucx .*: available'; then
    jobs+=(ucx,10.98.0.0/24,ucx,7)
    fails+=(ucx_breaks,10.98.0.0/24,ucx,60 ucx_idle_breaks,10.98.0.0/24,ucx,60 ucx_unmade,10.99.0.0/24,ucx,60 ucx_no_route,10.97.0.0/24,ucx,60)
else
    skip "ucx" "it is not available here"
fi
declare -A runners=() codes=()
for job in "${jobs[@]}" "${fails[@]}"; do
    IFS=, read -r name network backend timeout <<<"$job"
    stall=2s idle=false
    [ "$timeout" -lt 15 ] || stall=10m
    [[ $name != *idle* ]] || idle=true
    cat >"$tmp/$name.yaml" <<END
version: 1
hosts:
  defaults: {transport: {command: [ip, netns, exec, "{host}"]}, slots: 2}
  nodes: [cut-a, cut-b]
stage: never
network: {interface: "$network"}
processes: {count: 4}
groups: {world: {ranks: all, backend: $backend, timeout: $((timeout * slow))s}}
workloads: [{plugin: ./cut.so, params: {idle: $idle}}]
timeouts: {run: $((70 * slow))s, grace: 1s, stall: $stall}
logging: {dir: ./$name.dir}
END
    timeout -k 5 $((90 * slow)) "$COLLRUN" "$tmp/$name.yaml" >"$tmp/$name.out" 2>"$tmp/$name.err" </dev/null &
    children+=($!) runners[$name]=$!
done
for job in "${jobs[@]}" "${fails[@]}"; do
    [[ $job != *,10.98.* && $job != *,fd98:* ]] || check_within "${job%%,*}: the job is up" 60 grep -q up "$tmp/${job%%,*}.out"
done
lose 0
for name in "${!runners[@]}"; do wait "${runners[$name]}"; codes[$name]=$?; done

cat >"$tmp/verdict.py" <<'END'
import json, sys
v = json.load(open(sys.argv[1]))["verdict"]
n = v["network"]
print(v["class"], v["culprits"], v["suspects"], sorted(n["hosts"]), n["rank"] in v["suspects"], n["address"][:2],
      n["port"] > 0, n["connected"], n["retransmits"] + n["probes"] > 0)
END
hosts='the network between hosts cut-(a and cut-b|b and cut-a) may be cut' address='(10\.9[789]\.0\.[12]|fd9[89]::[12]) port [0-9]+'
silent="no answer from $address for [0-9.]+ s \([0-9]+ (keepalive probe|retransmission).*\): $hosts"
opening="the connection to $address has not come up \([0-9]+ attempts\): $hosts"
for job in "${jobs[@]}"; do
    IFS=, read -r name network _ <<<"$job"
    connected=True cut=$silent waited='waited .* s for ranks? .*; ' class=timeout
    [[ $name != dead* ]] || connected=False cut=$opening
    # A connection on which nothing is under way may have ended by keepalive, 6 to 11 s after the cut.
    ! grep -qE 'error: .*connection to rank [0-3]: no' "$tmp/$name.err" || waited='connection to rank [0-3]: ' class=error
    err=$(cat "$tmp/$name.err")
    like "$name: the error names the hosts, and the connection" "$(grep error: <<<"$err")" "rank [0-3].*$waited$cut"
    like "$name: so does the stall report" "$err" "CAUSE  rank [0-3] \(cut-[ab], pid [0-9]+\): $cut"
    is "$name: result.json" "$(python3 -S "$tmp/verdict.py" "$tmp/$name.dir/result.json")" \
        "$class [] [0, 1, 2, 3] ['cut-a', 'cut-b'] True $([[ $network == fd* ]] && echo fd || echo 10) True $connected True"
done
for job in "${fails[@]}"; do
    name=${job%%,*} connected=False port=True
    case $name in
    *_breaks) cut=$silent connected=True ;;
    tcp_unmade) cut="cannot connect to $address: Connection timed out: $hosts" ;;
    ucx_unmade) cut=$opening ;;
    ucx_no_route) cut="cannot connect to ${address% port*}: No route to host: $hosts" port=False ;;
    *) cut="cannot connect to (rank [01] at )?$address: No route to host: $hosts" ;;
    esac
    like "$name: the error names the hosts, and the connection" "$(grep error: "$tmp/$name.err")" "rank [0-3].*$cut"
    is "$name: result.json" "$(python3 -S "$tmp/verdict.py" "$tmp/$name.dir/result.json" | sed 's/ [^ ]*$//')" \
        "error [] [0, 1, 2, 3] ['cut-a', 'cut-b'] True 10 $port $connected"
    is "$name: the exit code" "${codes[$name]}" 1
done
done_testing
