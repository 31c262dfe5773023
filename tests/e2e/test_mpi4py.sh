#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Programs of MPICH and Intel MPI as commands: mpi4py at 1 to 16 ranks, how their failures are explained, and Intel's benchmark.
# tests/bench/peers.sh mpi installs both from PyPI (PEERS=DIR is where).
. "$(dirname "$0")/lib.sh"
peers=${PEERS:-$top/build/peers}
within=$((100 * slow))

# mpi COUNT PROGRAM ARGUMENTS...: a job of COUNT ranks. FURTHER: lines of the job.
mpi() {
    local count=$1 list=
    shift
    for word; do list="$list'$word', "; done
    job mpi <<END
version: 1
processes: {count: $count}
timeouts: {run: ${within}s}
${FURTHER:-}
workloads:
  - {name: mpi, command: [${list%, }], observe: ${OBSERVE:-auto}}
END
    run mpi.yaml
}

for kind in MPICH:mpich Intel:impi-devel; do
    name=${kind%:*} venv=$peers/${kind#*:}
    if ! "$venv/bin/python" -c 'import mpi4py, numpy' 2>/dev/null; then
        skip "mpi4py on $name" "$venv is not installed: tests/bench/peers.sh mpi"
        continue
    fi
    for count in 1 2 8 16; do
        mpi $count "$venv/bin/python" "$top/tests/python/mpi_program.py"
        is "$name: $count ranks" "$code $(grep -c "of $count: ok, $name" out)" "0 $count"
        quiet_or_late "$name: $count ranks say nothing on stderr"
    done
    mpi 4 "$venv/bin/python" -m mpi4py "$top/tests/python/mpi_program.py" raise
    like "$name: an exception: what it was" "$(err)" '\[1\] LookupError: no such sample'
    like "$name: an exception: mpi4py aborts" "$(err)" 'error: rank 1 .*MPI_Abort with exit code 1(; it wrote last: .*)?$'
    # Without -m mpi4py, MPI_Finalize of the rank that has failed waits for the others, whose next call is another one.
    mpi 4 "$venv/bin/python" "$top/tests/python/mpi_program.py" raise
    like "$name: an exception that hangs" "$(err)" 'error: rank 1 .*rank 1 calls MPI_Finalize\(\)'
    OBSERVE=off within=4 mpi 4 "$venv/bin/python" "$top/tests/python/mpi_program.py" raise
    like "$name: an exception that hangs, not observed: when" "$(err)" 'error: timeouts.run expired after 4.0 s'
    like "$name: an exception that hangs, not observed: why" "$(err)" 'rank 1 wrote last to stderr: LookupError: no such sample'
    mpi 4 "$venv/bin/python" "$top/tests/python/mpi_program.py" kill
    is "$name: SIGKILL: its code" "$code" 137
    like "$name: SIGKILL" "$(err)" 'error: rank 1 .*SIGKILL'
    mpi 4 "$venv/bin/python" "$top/tests/python/mpi_program.py" abort
    is "$name: MPI_Abort: its code" "$code" 7
    like "$name: MPI_Abort" "$(err)" 'error: rank 1 .*MPI_Abort with exit code 7'
done

bench=$peers/impi-devel/bin/IMB-MPI1
if [ -x "$bench" ]; then
    for count in 2 4 16; do
        FURTHER="env: {set: {LD_LIBRARY_PATH: '$peers/impi-devel/lib'}}" mpi $count "$bench" \
            -npmin $count -msglog 3:10 -iter 50 -time 2 Allreduce Alltoall PingPong
        is "Intel's benchmark, $count ranks" "$code $(grep -cE '#bytes .*t[_[]' out) $(grep -cE '# #processes = (2|'$count')( |$)' out)" "0 3 3"
    done
else
    skip "Intel's benchmark" "$bench is not installed: tests/bench/peers.sh mpi"
fi
done_testing
