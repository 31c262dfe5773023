#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Only the network of the data is cut, silently, while operations are in progress: the hosts still reach the runner, so the backend alone can
# notice. It fails the group and names the rank, and the job ends. All jobs run at the same time, and one cut is for all of them.
#
#   h1 eth1 10.92.0.1 ------------- 10.92.0.2 data7 h2
hosts=2
. "$(dirname "$0")/testbed.sh"
testbed_up
ip -n collrun-h1 link add eth1 type veth peer name data7 netns collrun-h2
ip -n collrun-h1 addr add 10.92.0.1/24 dev eth1 && ip -n collrun-h1 link set eth1 up
ip -n collrun-h2 addr add 10.92.0.2/24 dev data7 && ip -n collrun-h2 link set data7 up
backends=(tcp)
ucx_looks_at 1 2 && backends+=(ucx)

# Packets to a MAC address that no host has are lost without a trace.
cut_network() {
    ip -n collrun-h1 neigh replace 10.92.0.2 dev eth1 lladdr 02:00:00:00:00:99 nud permanent &&
        ip -n collrun-h2 neigh replace 10.92.0.1 dev data7 lladdr 02:00:00:00:00:99 nud permanent
}
mend_network() {
    ip -n collrun-h1 neigh del 10.92.0.2 dev eth1 && ip -n collrun-h2 neigh del 10.92.0.1 dev data7
}

cat >cut.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static const struct collrun_param params[] = {
    {.name = "count", .type = COLLRUN_PARAM_SIZE, .help = "elements of each allreduce; 0: one message is awaited"},
    {.name = NULL},
};
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *w;
    const size_t count = (size_t)collrun_param_size(ctx, "count");
    float *buf = calloc(count + 1, sizeof *buf);
    int rc = collrun_group_get(ctx, "world", &w);
    (void)state;
    if (!rc)
        rc = collrun_allreduce(w, buf, buf, 1, COLLRUN_FLOAT32, COLLRUN_SUM);
    if (!rc)
        printf("up\n");
    fflush(stdout);
    while (!rc && count)
        rc = collrun_allreduce(w, buf, buf, count, COLLRUN_FLOAT32, COLLRUN_SUM);
    if (!rc && collrun_rank(w) == 1)
        sleep(600);
    if (!rc)
        rc = collrun_recv(w, buf, 1, COLLRUN_FLOAT32, 1);
    free(buf);
    return rc;
}
COLLRUN_WORKLOAD(.name = "cut", .params = params, .run = run);
END
plugin cut.c cut.so || { echo "Bail out! the workload does not compile"; exit 1; }

declare -A runners=() codes=() ended=()
# begin NAME BACKEND COUNT
begin() {
    { command_head; printf 'network: {interface: 10.92.0.0/16}\nprocesses: {count: 2}\ntimeouts: {grace: 1s}\n'
      printf 'groups: {world: {backend: %s, timeout: 5m}}\nworkloads: [{plugin: ./cut.so, params: {count: %d}}]\n' "$2" "$3"; } | job "$1"
    "$COLLRUN" "$1.yaml" >"$tmp/$1.out" 2>"$tmp/$1.err" </dev/null &
    runners[$1]=$! children+=($!)
}
all_up() {
    local name
    for name in "${!runners[@]}"; do [ "$(grep -c up "$tmp/$name.out")" = 2 ] || return 1; done
}
all_ended() {
    local name
    for name in "${!runners[@]}"; do
        [ -n "${ended[$name]:-}" ] || { gone_or_zombie "${runners[$name]}" && ended[$name]=$SECONDS; }
    done
    [ ${#ended[@]} = ${#runners[@]} ]
}
# When the ranks connect, the network is not there yet: the kernel sends their first packets again.
cut_network
for backend in "${backends[@]}"; do
    begin "$backend-short" "$backend" 1
    begin "$backend-long" "$backend" 4000000
    begin "$backend-idle" "$backend" 0
done
dialing() { [ "$({ on 1 ss -Htn state syn-sent; on 2 ss -Htn state syn-sent; } | wc -l)" -ge ${#runners[@]} ]; }
within 60 dialing
mend_network
# On a busy machine the first rank has called connect half a minute before the last: its next SYN comes after up to 63 s.
maybe_within 120 all_up || not_ok "all jobs are up" "$(grep -h . "$tmp"/*.err)"
cut_network
SECONDS=0
maybe_within 120 all_ended
for name in "${!runners[@]}"; do
    if [ -z "${ended[$name]:-}" ]; then
        kill -KILL "${runners[$name]}"
        not_ok "$name: the job ends" "it still runs after $SECONDS s"
        continue
    fi
    wait "${runners[$name]}"
    codes[$name]=$?
    echo "# $name: exit code ${codes[$name]} after ${ended[$name]} s"
    check "$name: the job fails" [ "${codes[$name]}" -ne 0 ]
    like "$name: the message names the rank" "$(cat "$tmp/$name.err")" 'connection to rank [01]'
    check "$name: noticed soon" [ "${ended[$name]}" -lt $((60 * slow)) ]
done
check_within "nothing is left" 60 nothing_left
done_testing
