#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs of MPICH and Intel MPI on several SSH hosts. tests/bench/peers.sh mpi installs both (PEERS=DIR is where).
hosts=4
. "$(dirname "$0")/testbed.sh"
testbed_up
peers=${PEERS:-$top/build/peers}

# mpi COUNT FAULT: a job of COUNT ranks on all hosts.
mpi() {
    { ssh_head '"h[1-4]"'
        echo "processes: {count: $1, map: cyclic}"
        echo "timeouts: {run: 100s}"
        echo "workloads: [{name: mpi, command: ['$venv/bin/python', '$top/tests/python/mpi_program.py'${2:+, $2}]}]"; } | job mpi
    run mpi.yaml
}
for kind in MPICH:mpich Intel:impi-devel; do
    name=${kind%:*} venv=$peers/${kind#*:}
    if ! "$venv/bin/python" -c 'import mpi4py, numpy' 2>/dev/null; then
        skip "mpi4py on $name" "$venv is not installed: tests/bench/peers.sh mpi"
        continue
    fi
    for count in 2 4 8 16; do
        mpi $count
        is "$name: $count ranks on 4 hosts" "$code $(grep -c "of $count: ok, $name" "$tmp/out")" "0 $count"
    done
    mpi 8 kill
    is "$name: SIGKILL: its code" "$code" 137
    like "$name: SIGKILL: rank and host" "$(err)" 'error: rank 1 \(h2, pid [0-9]+\).*SIGKILL'
done
bench=$peers/impi-devel/bin/IMB-MPI1
if [ -x "$bench" ]; then
    { ssh_head '"h[1-4]"'
        echo "processes: {count: 16, map: cyclic}"
        echo "env: {set: {LD_LIBRARY_PATH: '$peers/impi-devel/lib'}}"
        echo "workloads: [{name: imb, command: ['$bench', -npmin, 16, -msglog, 3:10, -iter, 50, -time, 2, Allreduce, Bcast]}]"; } | job imb
    run imb.yaml
    is "Intel's benchmark, 16 ranks on 4 hosts" "$code $(grep -cE '# #processes = 16' "$tmp/out")" "0 2"
fi
done_testing
