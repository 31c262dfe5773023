#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The option share of groups on nccl, with the GPU workload (tests/gpu/workload/share.c) on the stand-in libraries of tests/fake:
# results, memory, orders that differ by rank, failures, and what is refused.
. "$(dirname "$0")/lib.sh"
. "$here/gpu_lib.sh"

share_tp="{share: dp}" share_pp="{share: tp}" limits="timeouts: {run: $((40 * slow))s}" check=async
# run_case CASE GROUP RANKS GPUS_PER_PROCESS: sets code, out and err
run_case() {
    job share <<END
version: 1
processes: {count: $3, gpus_per_process: $4}
$limits
groups:
  dp: {backend: nccl, timeout: 2s, check: $check}
  tp: {backend: nccl, timeout: 2s, check: $check, options: $share_tp}
  pp: {backend: nccl, timeout: 2s, check: $check, options: $share_pp}
workloads:
  - {plugin: ./gpu_test.so, params: {case: $1, group: $2}}
END
    run run share.yaml
}
good() { # WHAT CASE GROUP RANKS GPUS_PER_PROCESS
    local what=$1
    shift
    run_case "$@"
    is "$what" "$code, $(grep -c 'done$' out), $(grep FAIL out | head -n 3), $(grep -c stand-in err)" "0, $3, , 0"
}
memory() { # of a GPU at the start, in MiB
    sed -n 's/^.*gpu_test: \([0-9]*\) MiB$/\1/p' out | sort -nu | tail -n 1
}

# ---- one order on all ranks ----
export FAKE_NCCL_MEMORY_MIB=64
good "collectives of three groups, in turn and in flight together" share dp 3 1
shared=$(memory)
check "... hold the memory of one communicator: $shared MiB" test "$shared" -ge 64 -a "$shared" -lt 80
check=strict good "... also with check: strict" share dp 2 1
for shape in "2 2" "1 2" "1 1"; do
    read -r ranks devices <<<"$shape"
    good "$ranks x $devices GPUs" share dp "$ranks" "$devices"
done
share_tp="{}" share_pp="{}" good "the same without share" share dp 3 1
own=$(memory)
check "... holds that of three: $own MiB" test "$own" -ge 192
FAKE_NCCL_SLOW_US=3000 good "ranks that end at different times" share dp 3 1
share_pp="{share: dp}" good "two groups share with the same one" share dp 2 1
share_tp="{share: dp, NCCL_MAX_CTAS: 4, NCCL_ALGO: Ring}" good "options of kernels may differ" share dp 2 1
LD_LIBRARY_PATH=$fake/old:$LD_LIBRARY_PATH good "an older NCCL, without revoke" share dp 2 1

# ---- other orders, and failures ----
run_case share_inverse dp 2 1
is "orders that differ by rank end" "$(grep -c 'done$' out), $(grep FAIL out | head -n 3)" "2, "
like "... with a message about the option" "$(out)" \
    'share_inverse: rank [01]: allreduce (dp|tp)#1: rank [01].* groups dp, tp, pp share a communicator \(option share\), and of their collectives on this rank this is number 1, on the GPU: all ranks must start them in one order'
for group in dp tp; do
    other=$([ $group = dp ] && echo tp || echo dp)
    run_case share_abort $group 2 1
    is "abort of $group" "$(grep -c 'done$' out), $(grep FAIL out | head -n 3)" "2, "
    like "... fails $other" "$(out)" \
        "share_abort: allreduce $other#[12]: group $other shares the communicator of group $group \(option share\), which failed: "
    run_case share_late $group 3 1
    is "a rank that does not call $group" "$(grep -c 'done$' out), $(grep FAIL out | head -n 3)" "3, "
    like "... fails $other" "$(out)" \
        "share_late: allreduce $other#1: group $other shares the communicator of group $group \(option share\), which failed: "
done
LD_LIBRARY_PATH=$fake/old:$LD_LIBRARY_PATH run_case share_late tp 2 1
is "... with an older NCCL" "$(grep -c 'done$' out), $(grep FAIL out | head -n 3)" "2, "
run_case share_killed tp 3 1
is "a rank that is killed" "$(grep -c survived out), $(grep FAIL out | head -n 3)" "2, "
limits="timeouts: {run: 40s, rendezvous: 4s, grace: 1s}"
FAKE_NCCL_FAULT=ncclCommSplit:1:5:1 run_case share dp 2 1
like "an error of ncclCommSplit" "$(err)" 'rank 1 .*group "tp" on backend "nccl": ncclCommSplit: .*an injected fault'
FAKE_NCCL_FAULT=ncclCommSplit:1:7:1 run_case share dp 2 1
like "ranks that do not find each other" "$(err)" 'group "tp".*all ranks have arrived, but NCCL did not connect them within 3'
FAKE_NCCL_FAULT=ncclCommSplit:1:99:1 run_case share dp 2 1
like "a rank that hangs in it is named" "$(err)" 'group "tp": rank 1 did not finish joining within 4.0 s'

# ---- what is refused ----
refused() { # WHAT EXPECTED COMMAND LINES: the lines are those of the groups
    job refused <<END
version: 1
processes: {count: 2, gpus_per_process: 1}
$4
workloads:
  - {plugin: ./gpu_test.so, params: {case: share, group: dp}}
END
    run "$3" refused.yaml
    like "$1" "$(err)" "refused.yaml:[0-9]+(:[0-9]+)?: .*$2"
    [ "$code" -ne 0 ] || { not_ok "$1: the exit code is 0"; }
}
dp="groups:
  dp: {backend: nccl}"
refused "a group that does not exist" 'groups.tp.options.share: "dq": there is no such group' check "$dp
  tp: {backend: nccl, options: {share: dq}}"
like "... with a hint" "$(err)" 'share names an earlier group on the same backend, with the same ranks in the same order'
refused "a later group" 'groups.tp.options.share: "dp": that group is formed later' check "groups:
  tp: {backend: nccl, options: {share: dp}}
  dp: {backend: nccl}"
refused "the group itself" 'groups.tp.options.share: "tp": a group cannot share with itself' check "$dp
  tp: {backend: nccl, options: {share: tp}}"
refused "another backend" 'groups.tp.options.share: "dp": that group is on backend "shm"' check "groups:
  dp: {backend: shm}
  tp: {backend: nccl, options: {share: dp}}"
refused "other ranks" 'groups.tp.options.share: "dp": that group has other ranks' check "$dp
  tp: {backend: nccl, ranks: [0], options: {share: dp}}"
refused "the same ranks in another order" 'groups.tp.options.share: "dp": that group has other ranks, or the same in another order' check "$dp
  tp: {backend: nccl, ranks: [1, 0], options: {share: dp}}"
refused "another number of GPUs" 'groups.tp.options.share: "dp": that group has 1 devices per process, and this one has 2' check "$dp
  tp: {backend: nccl, gpus_per_process: 2, options: {share: dp}}"
refused "the option for all groups" 'backends.nccl.options.share: "dp": it is an option of one group, not of all' check "backends: {nccl: {options: {share: dp}}}
$dp"
refused "a backend that cannot share" 'groups.tp.options: .*share' check "$dp
  tp: {backend: shm, options: {share: dp}}"
refused "another option of the connections" 'the option NCCL_NET is Socket, and differs from that of group dp, whose connections this group shares; leave it out, or leave out share' run "$dp
  tp: {backend: nccl, options: {share: dp, NCCL_NET: Socket}}"
refused "... in a number" 'the option NCCL_COMM_BLOCKING is 1, and differs from that of group dp, .*; write NCCL_COMM_BLOCKING: 0 in the options of this group, too, or' run "$dp
  tp: {backend: nccl, options: {share: dp, NCCL_COMM_BLOCKING: 1}}"
# Options of the backend are those of every group that has no other one.
for_all() { # OPTION_FOR_ALL OPTIONS_OF_DP OPTIONS_OF_TP
    echo "backends: {nccl: {options: {$1}}}
groups:
  dp: {backend: nccl, options: {$2}}
  tp: {backend: nccl, options: {share: dp${3:+, $3}}}"
}
refused "an option for all groups, of which the parent has another one" \
    'the option NCCL_NET is Socket, and differs from that of group dp, .*; write NCCL_NET: IB in the options of this group, too, or leave out share' run \
    "$(for_all 'NCCL_NET: Socket' 'NCCL_NET: IB')"
refused "... in a number" 'NCCL_TRAFFIC_CLASS is 3, and differs .*; write NCCL_TRAFFIC_CLASS: 5 in the options of this group, too' run \
    "$(for_all 'NCCL_TRAFFIC_CLASS: 3' 'NCCL_TRAFFIC_CLASS: 5')"
accepted() { # WHAT LINES: the lines are those of the groups
    job accepted <<END
version: 1
processes: {count: 2, gpus_per_process: 1}
$2
workloads:
  - {plugin: bench, params: {ops: allreduce, max: 64B, iters: 2}, groups: [tp]}
END
    run run accepted.yaml
    is "$1" "$code$(err)" 0
}
accepted "... with what the message says" "$(for_all 'NCCL_NET: Socket' 'NCCL_NET: IB' 'NCCL_NET: IB')"
accepted "options for all groups" "$(for_all 'NCCL_NET: Socket, NCCL_TRAFFIC_CLASS: 3' '')"
FAKE_NCCL_VERSION=21705 refused "an old NCCL" 'the option share needs ncclCommSplit of NCCL 2.18, and this is NCCL 2.17.5' run "$dp
  tp: {backend: nccl, options: {share: dp}}"

# ---- which groups are formed ----
plan() { # WHAT EXPECTED GROUPS WORKLOAD_GROUPS
    job plan <<END
version: 1
processes: {count: 2, gpus_per_process: 1}
groups: {$3}
workloads:
  - {plugin: bench, params: {ops: allreduce, max: 64B, iters: 2}, groups: [$4]}
END
    run plan plan.yaml
    is "$1" "$(grep -A1 COMMUNICATORS out | tail -n 1)" "0-1            $2"
    run run plan.yaml
    is "... and it runs" "$code" 0
}
plan "a group that only another one shares with is formed" "2 at the start, 4 at most; tp shares that of dp" \
    "dp: {backend: nccl}, tp: {backend: nccl, options: {share: dp}}" tp
plan "world, which is named by share alone, is formed at the start" "2 at the start, 4 at most; tp shares that of world" \
    "tp: {backend: nccl, options: {share: world}}" tp
plan "a group that no workload uses is not" "1 at the start, 2 at most" \
    "dp: {backend: nccl}, tp: {backend: nccl, options: {share: dp}}" dp
done_testing
