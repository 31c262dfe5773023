#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks of an MPI program that wait for each other are named, in MPI's words, soon after the last one has begun to; what only looks
# like a deadlock is none. With Debian's MPICH, and with that of tests/bench/peers.sh mpi where it is installed.
. "$(dirname "$0")/lib.sh"
peers=${PEERS:-$top/build/peers}
if [ ! -e "$home/lib/collrun/taps/libcollrun_mpi.so" ]; then
    skip "calls of MPI" "this build has no library that records them: sanitizers would need their runtime in the program"
    done_testing
fi

# starts WAY: a job of 3 ranks.
starts() {
    job "$1" <<END
version: 1
processes: {count: 3}
timeouts: {run: $((60 * slow))s, stall: off}
logging: {dir: $1.run}
env: {set: {LD_LIBRARY_PATH: '$libraries'}}
workloads: [{name: mpi, command: [./waits, $1]}]
END
    rm -rf "$1.run"
    run "$1.yaml"
    field() { python3 -S -c 'import json, sys
r = json.load(open(sys.argv[1]))
v = r["verdict"]
print(eval(sys.argv[2]))' "$way.run/result.json" "$1"; }
    way=$1
}
# blocked WAY CLASS CULPRITS SUSPECTS REGEX
blocked() {
    starts "$1"
    is "$name, $1: verdict" "$(field '(v["class"], v["culprits"], v["suspects"], r.get("internal"))')" "('$2', $3, $4, None)"
    like "$name, $1: message" "$(err)" "^collrun: error: $5"
    err >>messages
}
goes_on() {
    starts "$1"
    is "$name, $1: exit code" "$code" 0
    is "$name, $1: all ranks end" "$(grep -c 'is done' out)" 3
    is "$name, $1: no proof" "$(field 'v["class"], r.get("internal")')" "('ok', None)"
}
# all NAME MPICC LIBRARIES
all() {
    name=$1 libraries=$3
    : >messages
    "$2" -g -w "$here/mpi/waits.c" -o waits || { not_ok "$1: mpicc builds the program"; return; }
    blocked ring deadlock '[]' '[0, 1, 2]' 'deadlock: rank 0 waits in MPI_Recv\(count=1, MPI_INT, source=1, tag=0\) in MPI_COMM_WORLD (at receive \(waits.c:16\) )?for rank 1; rank 1 waits in .* (at receive \(waits.c:16\) )?for rank 2; rank 2 waits in .* for rank 0$'
    blocked tags deadlock '[]' '[0, 1]' 'deadlock: rank 0 waits in MPI_Barrier\(\), operation 1 of MPI_COMM_WORLD (at tags \(waits.c:47\) )?for rank 1; rank 1 waits in MPI_Recv\(count=1, MPI_INT, source=0, tag=6\) .*; rank 0 has sent 1 message with tag 5 to rank 1, which receives one with tag 6$'
    blocked synchronous deadlock '[]' '[0, 1, 2]' 'deadlock: rank 0 waits in MPI_Ssend\(count=1, MPI_INT, dest=1, tag=0\) in MPI_COMM_WORLD (at synchronous \(waits.c:52\) )?for rank 1; '
    blocked any deadlock '[]' '[0, 1, 2]' 'deadlock: rank 0 waits in MPI_Barrier.* for ranks 1-2; ranks 1-2 wait in MPI_Recv\(count=1, MPI_INT, source=MPI_ANY_SOURCE, tag=0\) in MPI_COMM_WORLD (at receive \(waits.c:16\) )?for any of ranks 0-2$'
    blocked requests deadlock '[]' '[0, 1]' 'deadlock: rank 0 waits in MPI_Irecv\(count=1, MPI_INT, source=1, tag=0\) in MPI_COMM_WORLD (at requests \(waits.c:67\) )?for rank 1; '
    blocked split deadlock '[]' '[0, 1]' 'deadlock: rank 0 waits in MPI_Recv.*; rank 1 waits in MPI_Comm_split\(\), operation 1 of MPI_COMM_WORLD (at split \(waits.c:76\) )?for rank 0'
    blocked finalized exit '[0]' '[]' 'ranks 1-2 wait in MPI_Recv.* in MPI_COMM_WORLD (at receive \(waits.c:16\) )?for rank 0; rank 0 calls nothing more'
    # The places of calls have half a second, which a busy machine may need for some.
    is "$name: places of calls" "$(grep -q 'at receive (waits.c:16) for' messages && echo yes)" yes
    for way in ordered late handler; do goes_on $way; done
}

mpicc=${MPICC:-$(command -v mpicc.mpich)}
if [ -n "$mpicc" ] && "$mpicc" -show 2>/dev/null | grep -q -- -lmpi; then
    all MPICH "$mpicc" ""
else
    skip "programs of MPICH" "no mpicc of MPICH (MPICC names one)"
fi
if [ -x "$peers/mpich/bin/mpicc" ]; then
    all "the newest MPICH" "$peers/mpich/bin/mpicc" "$peers/mpich/lib"
else
    skip "the newest MPICH" "$peers/mpich is not installed: tests/bench/peers.sh mpi"
fi
done_testing
