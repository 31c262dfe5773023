#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `auto` between hosts takes the backend for RDMA devices where every host has an active one, and that for other networks elsewhere. The
# devices are files over /sys/class; UCX then uses its TCP transport.
hosts=2
. "$(dirname "$0")/testbed.sh"
testbed_up
"$COLLRUN" backends --json 2>/dev/null | python3 -c 'import json, sys
sys.exit(not any(b["name"] == "ucx" and b["available"] for b in json.load(sys.stdin)))' || skip_all "ucx is not available here"

# rdma_device HOST STATE: /sys/class of that host, with one RDMA device
rdma_device() {
    local class=$tmp/h$1/class
    mkdir -p "$class/infiniband/mlx5_0/ports/1"
    echo "$2" >"$class/infiniband/mlx5_0/ports/1/state"
    [ -e "$class/net" ] && return
    cp -a /sys/class/net "$class/"
    on "$1" mount --bind "$class" /sys/class
}
backend() { sed -n 's/.*over \([a-z]*\).*/\1/p' out | sort -u | paste -sd' '; }
{
    ssh_head
    cat <<END
processes: {count: 2}
workloads: [{plugin: ./which.so}]
env: {set: {UCX_LOG_LEVEL: error}}
END
} | job auto
cat >which.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *w;
    (void)state;
    if (collrun_group_get(ctx, "world", &w))
        return 1;
    printf("over %s\n", collrun_group_backend(w));
    return collrun_barrier(w);
}
COLLRUN_WORKLOAD(.name = "which", .run = run);
END
plugin which.c which.so

run auto.yaml
ends "no host has an RDMA device" 0
is "the network backend" "$(backend)" tcp
rdma_device 1 "4: ACTIVE"
run auto.yaml
ends "one of two hosts has one" 0
is "the network backend" "$(backend)" tcp
rdma_device 2 "1: DOWN"
run auto.yaml
is "the device of the other is down: the network backend" "$(backend)" tcp
rdma_device 2 "4: ACTIVE"
run auto.yaml
ends "every host has an active one" 0
is "the backend for RDMA" "$(backend)" ucx
run doctor auto.yaml
ends "doctor" 0
like "doctor lists the devices, and the backend that a run takes" "$(tr -s ' ' <out)" 'h2 .* eth0 10.91.0.2, mlx5_0:1 yes none ucx '
library=$(readlink -f "$(ldconfig -p | sed -n 's/.*libucp\.so\.0 .*=> //p' | head -n 1)")
on 2 mount --bind /dev/null "$library"
run auto.yaml
ends "one of the hosts has no UCX" 0
is "the network backend" "$(backend)" tcp
done_testing
