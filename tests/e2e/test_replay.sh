#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The replay workload: small traces that traces.py writes, on as many processes as ranks and folded, with checked values; every
# refusal with its place. TRACES=DIR adds those of real programs (DLRM, ResNet-50, SWEEP3D), as archives or unpacked.
. "$(dirname "$0")/lib.sh"
traces=$top/tests/e2e/traces.py

# replay TRACE PROCESSES [PARAMS [ARGUMENTS...]]
replay() {
    job replay <<END
version: 1
processes: {count: $2}
groups: {world: {ranks: all, backend: ${backend:-shm}}}
timeouts: {run: ${limit}s}
workloads:
  - {plugin: replay, params: {trace: $1, verify: true${3:+, $3}}}
END
    run replay.yaml "${@:4}"
}
# answer PYTHON: of d, the results in kept/replay.json
answer() { python3 -S -c 'import json, sys; d = json.load(open("kept/replay.json")); print(eval(sys.argv[1]))' "$1"; }
# calls: "KIND CALLS ..." of the table
calls() { awk '$2 ~ /^[a-z_]+$/ && $3 ~ /^[0-9]+$/ { printf "%s %s ", $2, $3 }' out; }
right() { is "$1: every result is right" "$code $(grep -c 'Out of bounds values : 0 OK' out)" "0 1"; }

# ---- MPI ----
python3 -S "$traces" mpi ring 4
mpi_calls="barrier 4 allreduce 12 reduce 4 broadcast 4 allgather 4 gather 4 scatter 4 alltoall 4 send 12 recv 12 wait 12 "
for n in 4 3 2 1; do
    replay ring $n "gaps: drop"
    right "MPI, $n processes"
    is "MPI, $n processes: its calls" "$(calls)" "$mpi_calls"
done
backend=tcp replay 'ring/rank-*.txt' 4 "speed: 100x, iterations: 3" --run-dir kept
right "MPI on tcp, three times"
like "the head" "$(out)" '^\[0\] # replay of ring/rank-\*\.txt: 4 ranks by 4 processes in group world \(tcp\); speed 100x, 3 iterations$'
is "JSON: the same" "$(answer 'd["ranks"], d["processes"], d["backend"], d["speed"], d["verified"], d["wrong"], d["recorded_ms"]')" \
    "(4, 4, 'tcp', '100x', True, 0, 0.96)"
is "JSON: recorded times" "$(answer '{o["operation"]: (o["calls"], o["bytes"], o.get("recorded_ms")) for o in d["operations"] if o["operation"] in ("allreduce", "send", "recv")}')" \
    "{'allreduce': (36, 864, 0.03), 'send': (36, 144288, 0.03), 'recv': (36, 288000, None)}"
is "JSON: a time for each kind" "$(answer 'all(o["achieved_ms"] > 0 for o in d["operations"]) and d["achieved_ms"] > 0')" True
replay '"ring/rank-{rank}.txt"' 4 "gaps: drop"
right "a file with {rank}"

# ---- PyTorch ----
python3 -S "$traces" pytorch workers 4
for n in 4 3 1; do
    replay workers $n
    right "PyTorch 1.0, $n processes"
    is "PyTorch 1.0, $n processes: its calls" "$(calls)" \
        "barrier 4 allreduce 4 allgather 4 reduce_scatter 4 alltoall 4 alltoallv 4 wait 4 "
done
like "waits for what began before" "$(out)" '# 4 waits are for operations that began before the trace$'
mkdir times && python3 -S "$traces" kineto times 4
rm -rf kept
replay workers 4 "times: times" --run-dir kept
right "PyTorch with a timeline"
is "its times: of kernels, and from first to last" "$(answer '{o["operation"]: o.get("recorded_ms") for o in d["operations"]}, d["recorded_ms"]')" \
    "({'barrier': None, 'allreduce': 0.03, 'allgather': 0.03, 'reduce_scatter': 0.03, 'alltoall': 0.03, 'alltoallv': 0.03, 'wait': None}, 0.71)"
sed -i 's/record_param_comms/record_param_comm/' times/times.2.json # on its one line: the first
replay workers 4 "times: times"
like "a timeline of another run" "$(err)" 'times: times/times\.2\.json: 7 events record_param_comms; the execution trace has 8: they are not of one run'
replay workers 4 "times: 'times/*.[01].json'"
like "too few timelines" "$(err)" 'times: 2 files for 4 ranks'
python3 -S "$traces" spmd spmd.json
for n in 4 2; do
    replay spmd.json $n
    right "PyTorch 1.1, one file, $n processes"
    is "PyTorch 1.1, one file, $n processes: its calls" "$(calls)" "allreduce 8 broadcast 8 wait 16 "
done

# ---- Chakra ----
python3 -S "$traces" chakra nodes 4
for n in 4 3 2; do
    replay nodes $n
    right "Chakra, $n processes"
    is "Chakra, $n processes: its calls" "$(calls)" \
        "barrier 4 allreduce 4 reduce 4 broadcast 4 allgather 4 gather 4 scatter 4 reduce_scatter 8 alltoall 4 send 12 recv 12 wait 12 "
done

# ---- refusals: each with its place ----
# edited FROM FILE SED REGEX: the trace FROM, with FILE changed, is refused
edited() {
    rm -rf bad && cp -r "$1" bad
    sed -i -E "$3" "bad/$2"
    replay bad 4
    if [ "$code" -eq 1 ] && grep -qE -- "$4" err; then ok "refused: $4"; else not_ok "refused: $4"; fi
}
mpi() { edited ring rank-1.txt "$@"; }
mpi '6s/MPI_Barrier/MPI_File_open/' 'bad/rank-1\.txt: line 6: MPI_File_open cannot be replayed'
mpi '8s/:500:/:-5:/' 'line 8: MPI_Send: a count of -5'
mpi '8s/:500:/:99999999999999999999:/' 'line 8: MPI_Send: a count of '
mpi '8s/:500:/:2199023255552:/' 'line 8: MPI_Send: a count of 2199023255552'
mpi '8s/:500:/:1000000000:/;8s/11,8,8/11,1000000,8/' 'line 8: MPI_Send of 1000000000 elements of 1000000 bytes: more than 1 TiB'
mpi '8s/:500:/:many:/' 'line 8: MPI_Send: "many" is no number'
mpi '8s/0,1,4/0,1/' 'line 8: MPI_Send: .* has less than 3 numbers'
mpi '8s/0,1,4/5,0,2/' 'line 8: MPI_Send in communicator 5 of 2 ranks, and 4 ranks were traced: the file does not say which'
mpi '8s/0,1,4/0,2,4/' 'line 8: MPI_Send by rank 2; rank 1 was expected'
mpi '8s/:2:7:/:9:7:/' 'line 8: send: peer 9 is not in group 0'
mpi '7s/:0:7:/:-1:7:/' 'line 7: MPI_Irecv from -1: of a receive from any source'
mpi '10s/11,8,8/11,16,16/' 'line 10: MPI_Allreduce: a type of 16 bytes in a reduction'
mpi '9s/:99:/:98:/' 'line 9: MPI_Wait for request 98, which no call has started'
mpi '9d' 'line 10: MPI_Irecv starts request 99, which is in flight'
mpi '8s/:[^:]*$//' 'line 8: MPI_Send has 8 fields and needs 9'
mpi '8s/1000000250/100/' 'line 8: MPI_Send ends before it begins'
mpi '10,$d;9s/99.*//' 'line 9: MPI_Wait has 3 fields and needs 5'
mpi '8d' 'the trace of rank 2, line 15: recv from rank 1 with tag 7 has no send'
mpi '16s/:2:7:/:0:7:/' 'the trace of rank [12], line 1[56]: (send to rank 0|recv from rank 1) with tag 7 has no (receive|send)'
mpi '8s/:500:/:1500:/' 'the traces differ: rank 1 \(line 8\) calls send of 1500 x float64, rank 2 \(line 7\) calls recv of 1000 x float64'
mpi '10s/:3:11,8,8/:4:11,8,8/' 'the traces differ: rank 1 \(line 10\) calls allreduce of 4 x float64, rank 0 \(line 10\) calls allreduce of 3 x float64'
mpi '5s/:1:0,1,4/:2:0,1,4/' 'rank 1 \(line 5\) calls broadcast of 16 x int32 with root 2, rank 0 \(line 5\) calls .* with root 1'
mpi '6d' 'the traces differ: rank 1 \(line 9\) calls allreduce of 3 x float64, rank 0 \(line 6\) calls barrier'
mpi '23d' 'the trace of rank 0, line 23: the trace of rank 1 has no such scatter'
printf '\037\213' >bad/rank-1.txt
replay bad 4
like "refused: a compressed file" "$(err)" 'bad/rank-1\.txt: the file is compressed; unpack it first'
echo 'hello' >bad/rank-1.txt
replay bad 4
like "refused: another format" "$(err)" 'bad/rank-1\.txt: the format is unknown'
replay bad 5
like "refused: more processes than traces" "$(err)" 'bad: 4 traces for 5 processes'
replay missing 2
like "refused: no such file" "$(err)" 'trace: missing: No such file or directory'
replay ring 4 "speed: fast"
ends "refused before the start: a speed" 2
like "at its place" "$(err)" 'params\.speed: "fast" is neither "recorded" nor a factor'

json() { edited workers worker_1.json "$@"; }
json 's/all_to_allv/all_to_some/' 'bad/worker_1\.json: node 25: all_to_some cannot be replayed'
json 's/"schema": "1.0.1"/"schema": "2.0"/' 'worker_1\.json: schema 2\.0; 1\.0 and 1\.1 can be replayed'
json 's/.{100}$//' 'worker_1\.json: byte [0-9]+ of [0-9]+ is no JSON'
json 's/"nodes": \[/"nodes": [,/' 'worker_1\.json: byte 41 of [0-9]+ is no JSON'
json 's/("id": [0-9]+)/"é": true \1/' 'worker_1\.json: byte 86 of [0-9]+ is no JSON: .* near ."id".'
json 's/, \{"name"/ {"name"/' 'worker_1\.json: byte [0-9]+ of [0-9]+ is no JSON: .\]. expected'
json 's/"pid": 1,/"pid" 1,/' "byte 26 of [0-9]+ is no JSON: a key and ':' expected"
json 's/\]\}$/]/' "byte ([0-9]+) of \\1 is no JSON: '\}' expected"
json 's/$/ {/' 'is no JSON: the end of the file expected'
json 's/"nodes"/"n"/' 'no execution trace of PyTorch: it has no "nodes"'
json 's/"schema"/"s"/' 'no execution trace of PyTorch: it has no "schema"'
json 's/1000, 4, "cuda/-3, 4, "cuda/' 'node 35: allreduce: a tensor of -3 elements'
json 's/1000, 4, "cuda/4000000000000, 4, "cuda/' 'node 35: allreduce: a tensor of 4000000000000 elements'
json 's/1000, 4, "cuda/1000, 8, "cuda/' 'node 35: allreduce: elements of type float32 have 8 bytes'
json 's/1000, 4, "cuda/"x", 4, "cuda/' 'node 35: allreduce: a tensor has no number and size'
json 's/Tensor\(float\)/Tensor(quaternion)/' 'node 35: allreduce of elements of the type "quaternion"'
json 's/\[192, /[191, /' 'node 25: all_to_allv: [0-9]+ elements are no multiple of'
json 's/5, 4711, 0, "allreduce"/5, 4712, 0, "allreduce"/' 'node 35: allreduce in a second group'
json 's/\[192, 288, 384, 480\]/[288, 192, 384, 480]/' 'the traces differ: rank [0-9] \(node 25\) calls alltoallv of [0-9]+ x int32, rank [0-9] \(node 25\) calls alltoallv of [0-9]+ x int32 from it'

rm -rf numbers
cp -r workers numbers
sed -i 's/"schema": "1.0.1",/"schema": "1.0.1", "numbers": [Infinity, -Infinity ,NaN, 18446744073709551615, -9223372036854775809, "NaN, \\"Infinity"],/' numbers/*
grep -q '"numbers": \[Infinity' numbers/worker_1.json || not_ok "the trace has numbers"
replay numbers 4
ends "numbers of PyTorch that are no JSON" 0

# The largest rank: a trace costs the memory of its text, and not that of all its values, which is ten times as much.
memory() { python3 -S -c 'import json; print(max(r["max_rss_bytes"] for r in json.load(open("kept/result.json"))["ranks"]))'; }
case $COLLRUN in
*asan* | *tsan*) skip "memory for a large trace" "the sanitizers keep memory that is free" ;;
*)
    python3 -S -c 'import json, sys
for name in sys.argv[1:]:
    d = json.load(open(name))
    d["nodes"] += 50000 * [{"name": "aten::add", "id": 9, "inputs": [[1, 2, 0, 4, 4, "cpu"], [1, 2, 0, 4, 4, "cpu"]]}]
    json.dump(d, open(name, "w"))' numbers/*
    rm -rf kept
    replay workers 4 "" --run-dir kept
    before=$(memory) text=$(stat -c %s numbers/worker_1.json)
    rm -rf kept
    replay numbers 4 "" --run-dir kept
    more=$(($(memory) - before))
    if [ "$code" -eq 0 ] && [ "$more" -lt $((2 * text)) ]; then ok "memory for a large trace"; else not_ok "memory for a large trace: $more for $text bytes"; fi
    ;;
esac

# chakra CHANGE REGEX
chakra() {
    rm -rf bad
    python3 -S "$traces" chakra bad 4 "$1"
    replay bad 4
    if [ "$code" -eq 1 ] && grep -qE -- "$2" err; then ok "refused: $2"; else not_ok "refused: $2"; fi
}
chakra type 'bad/t\.1\.et: node 50: a collective of type 12 cannot be replayed'
chakra size 'node 50: allreduce of -4 bytes'
chakra "no size" 'node 50: allreduce has no comm_size'
chakra odd 'node 50: alltoall of 7 bytes, for 4 ranks'
chakra group 'node 50: allreduce in group tp: the file does not say which ranks it has'
chakra dimensions 'node 50: allreduce in some dimensions of the network'
chakra kind 'node 50: a node of type 9 cannot be replayed'
chakra depends 'node 50: it depends on node 51, which is not in front of it'
chakra twice 'node 22: a second node has this id'
chakra source 'node 50: send of rank 2 in the file of rank 1'
chakra peer 'node 50: send: rank 4 of 4'
chakra damaged 'node 50: the node is damaged'
chakra schema 'bad/t\.1\.et: the schema is not 0\.0\.4'
chakra short 'bad/t\.1\.et: the message at byte [0-9]+ is longer than the file'

# ---- folding that is impossible ----
rm -rf bad && cp -r ring bad
sed -i -E 's/^MPI_Reduce:([^:]*):(.*):2:0,/MPI_Scan:\1:\2:0,/' bad/*
replay bad 4
right "a scan"
replay bad 2
like "a scan by two processes is refused" "$(err)" 'bad/rank-[01]\.txt: line 19: scan: the ranks of one process have different results; start as many processes as ranks, 4'
sed -i -E 's/:7:0,/:2000000000:0,/' bad/*
sed -i -E '/MPI_Scan/d' bad/*
replay bad 2
like "a tag has no room" "$(err)" 'line 7: recv: its tag is too large'

# ---- a deadlock of the trace is one of the replay ----
for rank in 0 1; do
    printf '%s\n' "MPI_Recv:100.0:1:5:2,4,4:$((1 - rank)):3:0,$rank,2:9:110.0" \
        "MPI_Send:120.0:1:5:2,4,4:$((1 - rank)):3:0,$rank,2:130.0" >"circle.$rank"
done
case $COLLRUN in
*tsan*) skip "receives that wait for each other" "ThreadSanitizer runs a thread in every rank" ;;
*)
    replay 'circle.*' 2
    ends "receives that wait for each other" 124
    like "are a deadlock" "$(err)" 'deadlock'
    ;;
esac

# ---- traces of real programs ----
if [ -n "${TRACES:-}" ]; then
    mkdir real
    for archive in "$TRACES"/*.tar.gz; do tar -xzf "$archive" -C real; done
    for file in "$TRACES"/*.json.gz; do gunzip -c "$file" >"real/$(basename "$file" .gz)"; done
    dlrm=$(dirname "$(find real -name 'dlrm_eg_0.json')") sweep=$(dirname "$(find real -name 'pmpi-trace-rank-0.txt')")
    for backend in shm tcp; do
        for n in 8 3; do
            replay "$dlrm" $n "times: $(dirname "$(find real -name 'worker0_step*')")"
            right "DLRM, $n processes on $backend"
            is "DLRM: its calls" "$(calls)" "allreduce 24 alltoall 8 alltoallv 32 wait 24 "
        done
        for n in 4 2; do
            replay "'$sweep/pmpi*'" $n "gaps: drop"
            right "SWEEP3D, $n processes on $backend"
            is "SWEEP3D: its calls" "$(calls)" "barrier 12 allreduce 128 broadcast 16 send 5760 recv 5760 "
        done
        replay real/resnet_2gpu_et.json 2
        right "ResNet-50 on $backend"
        is "ResNet-50: its calls" "$(calls)" "allreduce 30 broadcast 12 wait 12 "
    done
else
    skip "traces of real programs" "TRACES names no folder"
fi
done_testing
