# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
# Sourced by the benchmarks of nccl: the GPUs of this machine.

# find_gpus: sets `gpus`, and prints the machine. STANDIN=1: 2 stand-ins of tests/fake in $build.
find_gpus() {
    echo "# $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg), $(date -u +%F)"
    if [ -n "${STANDIN:-}" ]; then
        echo "# on the stand-ins: no figure below means anything"
        export LD_LIBRARY_PATH=$build/tests/fake
        gpus=2
        return
    fi
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || true
    if [ "$gpus" = 0 ]; then
        echo "# there is no GPU on this machine (nvidia-smi -L lists none): NCCL itself is not measured"
    else
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | sed 's/^/# /'
        "$build/bin/collrun" backends | sed -n 's/^nccl.*(\(.*\))$/# \1/p'
    fi
}

# share_gpus RANKS: the lines of job.yaml by which more ranks than GPUs share them, each on its own host for NCCL.
share_gpus() {
    local i list=
    [ "$1" -gt "$gpus" ] || return 0
    for ((i = 0; i < $1; i++)); do list+="${list:+, }$((i % gpus))"; done
    echo "hosts: {nodes: [{name: here, transport: local, gpus: [$list]}]}"
    echo 'env: {set: {NCCL_HOSTID: "{rank}"}}'
}
