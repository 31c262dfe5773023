#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# GPUs of ranks, on the stand-in NVML: which GPUs each rank sees, where it is bound, what is refused and at which line.
. "$(dirname "$0")/lib.sh"
export LD_LIBRARY_PATH=${BUILD:-$top/build/release}/tests/fake
agent=$home/libexec/collrun/collrun-agent
uuid=GPU-fa4e0000-0000-4000-8000-00000000000

cat >look.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    char line[256], cpus[256] = "";
    FILE *f = fopen("/proc/self/status", "r");
    (void)state;
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "Cpus_allowed_list: %255s", cpus);
    printf("rank %d sees %s has %d on %s\n", collrun_world_rank(ctx), seen ? seen : "all", collrun_gpu_count(ctx), cpus);
    return 0;
}
COLLRUN_WORKLOAD(.name = "look", .run = run);
END
plugin look.c look.so || exit 1

# look HEAD...: the lines of the ranks, sorted, UUIDs cut to their last digit
look() {
    { echo "version: 1" && printf '%s\n' "$@" && echo "workloads: [{plugin: ./look.so}]"; } >job.yaml
    run run job.yaml
    saw=$(sed "s/$uuid//g; s/^\[[0-9]*\] //" "$tmp/out" | sort)
}
seen() { sed 's/ has.*//' <<<"$saw"; }

look "processes: {count: 2, gpus_per_process: 2}" "groups: {world: {backend: shm}}"
is "each rank sees its own GPUs by UUID" "$(seen)" "$(printf 'rank 0 sees 0,1\nrank 1 sees 2,3')"
like "and knows how many they are" "$saw" 'rank 1 .* has 2 on'
CUDA_VISIBLE_DEVICES=6,${uuid}1 look "processes: {count: 2, gpus_per_process: 1}" "groups: {world: {backend: shm}}"
is "a mask that is set is the pool" "$(seen)" "$(printf 'rank 0 sees 6\nrank 1 sees 1')"
look "processes: {count: 3}" "groups: {world: {backend: shm}, two: {ranks: [2, 1], backend: shm, gpus_per_process: 1}}"
is "who owns none sees none" "$(seen)" "$(printf 'rank 0 sees \nrank 1 sees 0\nrank 2 sees 1')"
CUDA_VISIBLE_DEVICES=4 look "processes: {count: 1}"
is "a job without GPUs leaves the mask alone" "$(seen)" "rank 0 sees 4"
look "hosts: {nodes: [{name: a, transport: local, gpus: [5, 3]}]}" "processes: {count: 2, gpus_per_process: 1}" \
    "groups: {world: {backend: shm}}"
is "a host's list is taken in its order" "$(seen)" "$(printf 'rank 0 sees 5\nrank 1 sees 3')"

if [ "$(nproc)" -gt 1 ] && [ "$(nproc)" = "$(nproc --all)" ]; then
    half=$(($(nproc) / 2))
    look "processes: {count: 2, gpus_per_process: 4, bind: gpu}" "groups: {world: {backend: shm}}"
    like "bind: gpu, rank 0" "$saw" "rank 0 .* on 0(-$((half - 1)))?$"
    like "bind: gpu, rank 1" "$saw" "rank 1 .* on $half(-$(($(nproc) - 1)))?$"
    there="{transport: {command: [env, LD_LIBRARY_PATH=$LD_LIBRARY_PATH, $agent]}}"
    look "hosts: {defaults: $there, nodes: [a]}" "processes: {count: 2, gpus_per_process: 4, bind: gpu}" \
        "groups: {world: {backend: shm}}" "network: {interface: lo}"
    like "bind: gpu on another host" "$saw" "rank 1 .* on $half(-$(($(nproc) - 1)))?$"
else
    skip "bind: gpu" "needs two cpus, all of them usable"
fi

# ---- hosts that only their agents know ----
few="{transport: {command: [env, LD_LIBRARY_PATH=$LD_LIBRARY_PATH, FAKE_CUDA_DEVICES=1, $agent]}}"
look "hosts: {defaults: $few, nodes: [a, b]}" "processes: {count: 2, gpus_per_process: 2}" "groups: {world: {backend: gloo}}" \
    "network: {interface: lo}"
is "a host with too few GPUs: exit code" "$code" 2
like "it is named, with the place" "$(err)" 'job.yaml:3:[0-9]+: error:.*rank [01] needs GPU 1 of host [ab], which has 1 usable GPU'
run doctor job.yaml
like "doctor shows them" "$(out)" '^a .* 1 x stand-in GPU '
like "and what is missing" "$(err)" 'host b: its ranks need 2 GPUs, but it has 1 x stand-in GPU'
same="{transport: {command: [env, LD_LIBRARY_PATH=$LD_LIBRARY_PATH, $agent]}}"
look "hosts: {defaults: $same, nodes: [a, b]}" "processes: {count: 2, gpus_per_process: 1}" "groups: {pair: {backend: nccl}}" \
    "network: {interface: lo}"
is "two hosts that are one machine: exit code" "$code" 2
like "two members on one GPU are refused" "$(err)" "job.yaml:[345]:.*groups.(world|pair): ranks [01] \(.\) and [01] \(.\) share ${uuid}0"
done_testing
