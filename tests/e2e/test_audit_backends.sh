#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that disagree about a collective are found with `check: async` on every backend, within 250 ms of the later call: in the operator, in
# a type of the same size, in the root, in the counts of a v-form. The verdict names the operation, the argument and the rank; which
# of two pairs of a v-form is wrong only its two ranks know, so both may be suspects.
. "$(dirname "$0")/lib.sh"
fake=${BUILD:-$top/build/release}/tests/fake
plugin "$here/audit_programs.c" "$tmp/audit_programs.so" || {
    echo "Bail out! the workload does not compile"
    exit 1
}

# verdict: class, culprits and suspects, group, number, field of result.json
verdict() {
    python3 -S -c 'import json, sys
v = json.load(open(sys.argv[1]))["verdict"]
print(v["class"], sorted(v["culprits"] + v["suspects"]), v["group"], v["number"], v["field"])' "$tmp/run/result.json" 2>&1
}
# disagree BACKEND MISTAKE WANTED [KEYS OF THE GROUP]: 4 ranks, of which rank 2 makes the mistake in operation 25
disagree() {
    rm -rf "$tmp/run"
    {
        echo "version: 1"
        echo "processes: {count: 4}"
        echo "backends: {stream: {path: ./libcollrun_stream.so}, mpi: {path: ./vendor/libcollrun_mpi.so}}"
        echo "groups: {world: {ranks: all, backend: $1${4:+, $4}}}"
        echo "timeouts: {grace: 1s}"
        echo "workloads:"
        echo "  - {plugin: ./audit_programs.so, params: {mistake: $2, rank: 2, ${steps:-at: 25, steps: 2000, pause_us: 2000}}}"
    } >"$tmp/job.yaml"
    [ -d vendor ] || sed -i 's/, mpi: [^}]*}//' "$tmp/job.yaml"
    run job.yaml --run-dir "$tmp/run"
    ends "$1: $2: 1" 1
    like "$1: $2: verdict" "$(verdict)" "^$3\$"
    ms=$(sed -n 's/.*went on for \([0-9]*\) ms/\1/p' "$tmp/out")
    echo "# $1: $2: the later call ended after ${ms:-?} ms"
    check "$1: $2: soon" [ "${ms:-9999}" -lt $((2000 * slow)) ]
}
# all_mistakes BACKEND [KEYS OF THE GROUP]
all_mistakes() {
    disagree "$1" op "mismatch \\[2\\] world 25 op" "${2:-}"
    disagree "$1" dtype "mismatch \\[2\\] world 25 dtype" "${2:-}"
    disagree "$1" root "mismatch \\[2\\] world 25 root" "${2:-}"
    disagree "$1" counts "mismatch \\[2(, 3)?\\] world 25 counts" "${2:-}"
}

cp "$top/examples/backend-template/stream.c" .
cc -std=c11 -O2 -fvisibility=hidden -fPIC -shared -I"$include" -o libcollrun_stream.so stream.c || {
    echo "Bail out! the backend template does not compile"
    exit 1
}
if command -v mpicc.openmpi >/dev/null && [[ $home != *[at]san ]]; then
    mkdir vendor
    mpicc.openmpi -std=c11 -D_GNU_SOURCE -O2 -fvisibility=hidden -fPIC -pthread -shared -I"$include" -o vendor/libcollrun_mpi.so \
        "$top"/examples/backend-mpi/*.c -ldl || {
        echo "Bail out! the adapter of Open MPI does not compile"
        exit 1
    }
fi

all_mistakes shm # compares calls itself, before data moves
all_mistakes gloo
# Two ranks compare their calls while the other two are on their way.
steps="at: 3, steps: 10, late: 0, late_ranks: 2, late_us: 300000" disagree gloo op "mismatch \\[2\\] world 3 op"
all_mistakes stream
if [ -d vendor ]; then
    all_mistakes mpi
else
    skip "mpi" "Open MPI is not installed, or cannot run under a sanitizer"
fi
# The stand-in of NCCL reports ranks that disagree, and hangs, as NCCL may.
if [ -e "$fake/libnccl.so.2" ]; then
    export LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    all_mistakes nccl "gpus_per_process: 1"
else
    skip "nccl" "the stand-in libraries are not built: make fake"
fi
done_testing
