#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Devices of a kind of memory that only a third-party backend knows: the pretend accelerator of tests/hpu. Which devices each rank
# sees, where it is bound, what collrun shows, what is refused and at which line; hosts with none.
. "$(dirname "$0")/lib.sh"
hccl=${BUILD:-$top/build/release}/tests/hpu/libcollrun_hccl.so
agent=$home/libexec/collrun/collrun-agent
export HPU_COUNT=4

cat >look.c <<'END'
#include <collrun/workload.h>
#include <stdio.h>
#include <stdlib.h>
static int run(struct collrun_ctx *ctx, void *state)
{
    const char *hpus = getenv("HPU_VISIBLE_DEVICES"), *gpus = getenv("CUDA_VISIBLE_DEVICES");
    (void)state;
    printf("rank %d: hpus %s, gpus %s\n", collrun_world_rank(ctx), hpus ? hpus : "all", gpus ? gpus : "all");
    return 0;
}
COLLRUN_WORKLOAD(.name = "look", .run = run);
END
plugin look.c look.so || exit 1

# job HEAD...: writes job.yaml; look HEAD...: the lines of the ranks, sorted
job() { { echo "version: 1" && printf '%s\n' "$@" && echo "backends: {hccl: {path: $hccl}}" && echo "workloads: [{plugin: ./look.so}]"; } >job.yaml; }
look() {
    job "$@"
    run run job.yaml
    saw=$(sed 's/^\[[0-9]*\] //' "$tmp/out" | sort)
}

look "processes: {count: 2, devices: {hpu: 2}}" "groups: {world: {backend: shm}}"
is "each rank sees its own devices by id" "$saw" "$(printf 'rank 0: hpus hpu-0,hpu-1, gpus all\nrank 1: hpus hpu-2,hpu-3, gpus all')"
look "processes: {count: 2}" "groups: {world: {backend: shm}, one: {ranks: 1, backend: {host: shm, hpu: hccl}, devices: {hpu: 1}}}"
is "who owns none sees none" "$saw" "$(printf 'rank 0: hpus , gpus all\nrank 1: hpus hpu-0, gpus all')"
HPU_VISIBLE_DEVICES=3,hpu-1 look "processes: {count: 2, devices: {hpu: 1}}" "groups: {world: {backend: {host: shm, hpu: hccl}}}"
is "a mask that is set is the pool" "$saw" "$(printf 'rank 0: hpus hpu-3, gpus all\nrank 1: hpus hpu-1, gpus all')"
HPU_VISIBLE_DEVICES=2 look "processes: {count: 1}" "groups: {world: {backend: shm}}"
is "a job without devices leaves the mask alone" "$saw" "rank 0: hpus 2, gpus all"
look "hosts: {nodes: [{name: a, transport: local, devices: {hpu: [3, 1]}}]}" "processes: {count: 2, devices: {hpu: 1}}"
is "a host's list is taken in its order" "$saw" "$(printf 'rank 0: hpus hpu-3, gpus all\nrank 1: hpus hpu-1, gpus all')"

# ---- a kind without host memory that the devices reach ----
mkdir bare && cp "$top"/tests/hpu/{hccl.c,hccl.h,messages.c,hpu.h} bare/ || exit 1
grep -vE '\.host_(alloc|free) =' "$top/tests/hpu/hccl_kind.c" >bare/hccl_kind.c
plugin bare bare.so -Wno-unused-function -I"$top/examples/backend-template" -Wl,--no-as-needed,-rpath,"${hccl%/*}" "${hccl%/*}/libhpu.so" || exit 1
hccl=$PWD/bare.so look "processes: {count: 2, devices: {hpu: 1}}" "groups: {world: {backend: hccl, check: strict}}" "network: {interface: lo}"
is "strict: exit code" "$code" 126
like "strict: the reason" "$(err)" 'compares calls in host memory that the HPUs reach, and the kind of memory "hpu" has no host_alloc'
hccl=$PWD/bare.so look "processes: {count: 2, devices: {hpu: 1}}" "groups: {world: {backend: hccl}}" "network: {interface: lo}"
is "a group that compares nothing is formed" "$code $(wc -l <"$tmp/out")" "0 2"

# ---- what collrun shows ----
# json EXPRESSION: of v, the value that was printed
json() { python3 -S -c "import json, sys; v = json.load(open(sys.argv[1])); print(json.dumps($1, sort_keys=True, separators=(',', ':')))" "$tmp/out"; }
job "hosts: {nodes: [{name: a, transport: local}]}" "processes: {count: 2, devices: {hpu: 1}, bind: gpu}"
run plan job.yaml
like "plan: a column for the kind" "$(out)" '^0 +a +0 +0 +world +look$'
like "plan: auto takes the backend of the kind" "$(out)" '^world +hccl +2 '
run plan --json job.yaml
is "plan as JSON" "$(json "[v['ranks'][1]['devices'], v['ranks'][1]['gpus'], v['groups'][0]['devices']]")" \
    '[{"hpu":[{"communicators":{"at_most":2,"at_start":2},"id":"hpu-1","index":1}]},[],{"hpu":1}]'
run backends job.yaml
like "backends: the devices of the kind" "$(out)" '^ *devices +hpu: 4 x Pretend HPU$'
run backends --json job.yaml
is "backends as JSON" "$(json "[[b['memory'], b['memory_kind']['name'], b['memory_kind']['devices'][3]['id']] for b in v if b['name'] == 'hccl'][0]")" \
    '[["hpu"],"hpu","hpu-3"]'
run doctor job.yaml
is "doctor: exit code" "$code" 0
like "doctor: the devices" "$(out)" '^a .* 4 x Pretend HPU.* hccl '

job "hosts: {nodes: [{name: a, transport: local}]}" "processes: {count: 2, devices: {hpu: 1}}" "groups: {world: {backend: shm}}"
LD_DEBUG=files LD_DEBUG_OUTPUT=$tmp/loaded run plan job.yaml
is "a kind of the job's own backend: no other backend of devices is loaded" \
    "$code $(cat "$tmp"/loaded.* | grep -c 'calling init: .*libcollrun_hccl') $(cat "$tmp"/loaded.* | grep -c 'calling init: .*libcollrun_nccl')" "0 2 0"

# ---- too few, none, unknown ----
job "hosts: {nodes: [{name: a, transport: local}]}" "processes: {count: 5, devices: {hpu: 1}}"
run check job.yaml
like "too few" "$(err)" 'job.yaml:3:38: error: processes.devices.hpu: host "a" has 4 HPUs, but its 5 ranks need 5'
HPU_COUNT= run check job.yaml
like "none" "$(err)" 'processes.devices.hpu: host "a" has 0 HPUs, but its 5 ranks need 5'
like "and why" "$(err)" 'hint: HPU_COUNT is not set'
job "processes: {count: 1}" "groups: {world: {backend: {host: shm, hpx: hccl}}}"
run check job.yaml
like "a kind that no backend declares" "$(err)" 'job.yaml:3:39: error: groups.world.backend: no backend declares a kind of memory named "hpx"'
like "and those that are" "$(err)" 'hint: did you mean "hpu"\? known here: host, .*hpu'

# ---- hosts that only their agents know ----
there() { echo "{transport: {command: [env, $* $agent]}}"; }
look "hosts: {defaults: $(there '"HPU_VISIBLE_DEVICES=1,2",'), nodes: [a]}" "processes: {count: 2, devices: {hpu: 1}, bind: gpu}" \
    "groups: {world: {backend: {host: gloo, hpu: hccl}}}" "network: {interface: lo}"
is "the mask of another host is its pool" "$saw" "$(printf 'rank 0: hpus hpu-1, gpus all\nrank 1: hpus hpu-2, gpus all')"
look "hosts: {defaults: $(there HPU_COUNT=1,), nodes: [a, b]}" "processes: {count: 2, devices: {hpu: 2}}" \
    "groups: {world: {backend: gloo}}" "network: {interface: lo}"
is "a host with too few devices: exit code" "$code" 2
like "it is named, with the place" "$(err)" 'job.yaml:3:.*: error:.*rank [01] needs HPU 1 of host [ab], which has 1 usable HPU'
run doctor job.yaml
like "doctor names it" "$(err)" 'host b: its ranks need 2 HPUs, but it has 1 x Pretend HPU'
look "hosts: {defaults: $(there -u, HPU_COUNT,), nodes: [a]}" "processes: {count: 1, devices: {hpu: 1}}" "network: {interface: lo}"
like "a host without" "$(err)" 'which has 0 usable HPUs'
like "and why there" "$(err)" 'hint: HPU_COUNT is not set'
look "hosts: {defaults: $(there), nodes: [a, b]}" "processes: {count: 2, devices: {hpu: 1}}" "network: {interface: lo}"
is "two hosts that are one machine: exit code" "$code" 2
like "two members on one device are refused" "$(err)" 'groups.world: ranks [01] \(.\) and [01] \(.\) share hpu-0'
like "the hint names the device" "$(err)" 'hint: each member of this group needs a separate HPU'

# A second machine, as far as boot ids tell machines apart, whose devices have the same ids.
if ! unshare -m true 2>/dev/null; then
    skip "two machines whose devices have equal ids" "no right to make a mount namespace"
elif ! awk '$2 == "00000000" {found = 1} END {exit !found}' /proc/net/route; then
    skip "two machines whose devices have equal ids" "no default route"
else
    mkdir far && cat /proc/sys/kernel/random/uuid >far/boot_id
    printf '#!/bin/sh\nexec unshare -m sh -c "mount --bind %s /proc/sys/kernel/random/boot_id; exec %s"\n' "$PWD/far/boot_id" "$agent" \
        >far/collrun-agent
    chmod +x far/collrun-agent
    look "hosts: {nodes: [{name: a, transport: {command: [$agent]}}, {name: b, transport: {command: [$PWD/far/collrun-agent]}}]}" \
        "processes: {count: 2, devices: {hpu: 1}}" "groups: {world: {backend: {host: gloo, hpu: hccl}}}" "stage: never"
    is "two machines whose devices have equal ids" "$saw" "$(printf 'rank 0: hpus hpu-0, gpus all\nrank 1: hpus hpu-0, gpus all')"
fi

# ---- a library of devices that takes longer than a remote host, or the runner, may be silent ----
mkdir slow && cp "$agent" slow/ || exit 1
printf '#!/bin/sh\n[ "$1" != --devices ] || sleep 11\nexec %s "$@"\n' "${agent%-agent}-engine" >slow/collrun-engine
chmod +x slow/collrun-engine
look "hosts: {defaults: {transport: {command: [$PWD/slow/collrun-agent]}}, nodes: [a]}" "processes: {count: 1, devices: {hpu: 1}}" \
    "groups: {world: {backend: shm}}" "network: {interface: lo}" "stage: never"
is "a slow listing is not a lost host" "$saw" "rank 0: hpus hpu-0, gpus all"
done_testing
