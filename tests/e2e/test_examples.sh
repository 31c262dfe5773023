#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every job of configs/ and every example workload: does it run, is what it prints true, is anything left behind; and
# the same sources built as users build theirs, with an installed header tree, pkg-config and cc.
. "$(dirname "$0")/lib.sh"
unset SITE STREAM
configs=$top/configs
shows() { like "$1" "$(out)" "$2"; }
lines() { grep -cE -- "$1" out; }

own_product # processes of other agents and engines are not ours
nothing_remains() { [ -z "$(executing "$home/libexec/collrun/*")" ]; }
# runs NAME: the job of that name in configs/ checks, runs, ends well and leaves nothing.
runs() {
    local name=$1
    shift
    run check "$configs/$name.yaml" "$@"
    ends "$name: the file is good" 0
    run "$configs/$name.yaml" "$@"
    ends "$name: runs" 0
    quiet_or_late "$name: collrun itself says nothing"
    check_within "$name: nothing is left" 60 nothing_remains
}
# with PLUGIN PARAMS [COUNT]: one workload on every rank.
with() {
    job one <<END
version: 1
processes: {count: ${3:-4}}
workloads:
  - {plugin: $1, params: {$2}}
END
    run one.yaml
}

# ---- the jobs of configs/ ----
runs hello
is "hello: every rank says it once" "$(grep -oE '^\[[0-3]\] hello from rank [0-3] of 4 on [^ ;]+; world: [0-3] of 4 \(shm\)$' out |
    sed -E 's/^\[(.)\] hello from rank (.).*world: (.).*/\1\2\3/' | sort | tr '\n' ' ')" "000 111 222 333 "
is "hello: no other line" "$(lines .)" 4

runs allreduce
shows "allreduce: what it did" '^\[0\] allreduce in group world: 4 ranks on shm, 262144 x float32 \(1048576 B\), sum, 20 calls, all verified$'
is "allreduce: best, median, worst in order" "$(awk '$2 == "best" || $2 == "median" || $2 == "worst" {
    ok += $3 >= last && $3 > 0; last = $3
    alg = 1048576 / $3 / 1000; ok += $4 > alg - 0.002 && $4 < alg + 0.002
    ok += $5 > alg * 1.5 - 0.002 && $5 < alg * 1.5 + 0.002 } END { print ok }' out)" 9
run "$configs/allreduce.yaml" --run-dir kept
like "allreduce: its metrics are in the run directory" "$(cat kept/result.json)" '"allreduce.busbw_GBps": [0-9]+\.[0-9]+'
runs allreduce --set groups.world.backend=gloo
shows "allreduce: on the other backend" '4 ranks on gloo, .* all verified$'

export TMPDIR=$tmp
runs matrix
shows "matrix: the last run" '^\[3/3\] backend=tcp,n=4: ok, '

runs survivors # test_shrink.sh has the losses
is "survivors: all of them" "$(out)" "[0] 100 steps, 4 ranks at the end"

runs ring
shows "ring: clockwise" 'ring clockwise: 5 ranks on shm, 10 laps of 65536 B tokens by sendrecv: 50 hops verified'
shows "ring: counter" '^\[4\] ring counter: 5 ranks on shm, 10 laps of 65536 B tokens by parity: 50 hops verified'

# row GROUP RANKS BACKEND OPERATION CALLS: of grid's table
row() { shows "$job_name: $1" "^\[0\]   $1 +$2 +$3 +$4 .* $5 of $5 +[0-9.]+ us +[0-9.]+ us +([0-9.]+ GB/s|-)$"; }
job_name=grid
runs grid
row pp/dp=0 '0 2 4' shm send/recv 40
row pp/dp=1 '1 3 5' shm send/recv 40
row dp/pp=0 0-1 tcp allreduce 40
row dp/pp=2 4-5 tcp allreduce 40
row world 0-5 shm allreduce 10
job_name=demo
runs demo
for column in 0 1 2 3; do row "pp/dp=$column" "$column $((column + 4))" shm send/recv 40; done
row dp/pp=0 0-3 tcp allreduce 40
row dp/pp=1 4-7 tcp allreduce 40
row world 0-7 shm allreduce 10
check "demo: in less than 30 s" [ "$elapsed" -lt $((30000 * slow)) ]
shows "demo: two threads" 'two threads per rank'

runs bench
is "bench: a table for each group and operation" "$(lines '# (allreduce|broadcast|sendrecv) in group (left|right): 2 ranks on shm') \
$(lines '# (allreduce|broadcast|sendrecv) in group world: 4 ranks on shm')" "6 3"
is "bench: nothing is wrong" "$(lines '# Out of bounds values : 0 OK')" 3
is "bench: sizes" "$(sed -n '/in group world/,$p' out | awk '$1 == "[0]" && $4 == "float32" && $5 == "sum" {print $2, $3}' |
    tr '\n' ' ')" "8 2 64 16 512 128 4096 1024 32768 8192 "

TRACE=$top/examples/traces/ring runs replay
is "replay: every operation of the trace" "$(awk '$3 ~ /^[0-9]+$/ { n += $3 } END { print n }' out)" 76

LD_LIBRARY_PATH=${BUILD:-$top/build/release}/tests/fake runs gpus
is "gpus: a table for each group" "$(lines '# allreduce in group fast: 2 ranks on nccl;') \
$(lines '# allreduce in group mixed: 2 ranks on shm .host., nccl .cuda.;')" "1 1"
is "gpus: nothing is wrong" "$(lines '# Out of bounds values : 0 OK')" 2
LD_LIBRARY_PATH=${BUILD:-$top/build/release}/tests/fake runs devices

runs groups
shows "groups: rank 0" '^\[0\] hello from rank 0 of 6 on left; world: 0 of 6 .*; members: 0 of 6 \(tcp\); low: 0 of 3 \(shm\); picked: 1 of 4 .*; node/left: 0 of 3 \(shm\); careful: 0 of 2 \(tcp\); patient: 0 of 6 \(tcp\)$'
shows "groups: rank 5" '^\[5\] hello from rank 5 of 6 on right; world: 5 of 6 .*; members: 5 of 6 \(tcp\); odd: 2 of 3 .*; picked: 0 of 4 .*; node/right: 2 of 3 \(shm\); patient: 5 of 6 '
shows "groups: rank 2" '^\[2\] .*; low: 2 of 3 \(shm\); picked: 2 of 4 .*; node/left: 2 of 3 '

runs background
shows "background: the foreground" 'allreduce in group train: 4 ranks on shm, .* 200 calls, all verified$'
shows "background: the heart beat" '^\[3\] heartbeat control: [1-9][0-9]* beats, the slowest took [0-9]+ us$'

SITE=lab runs environment
shows "environment: rank 0 is greeted by name" '^\[0\] welcome to [^ {]+ from rank 0 of 4 on '
is "environment: the others are not" "$(lines '^\[[1-3]\] greetings from rank [1-3] of 4 ')" 3
is "environment: what was set arrives" "$(lines '^\[([0-3])\] .*; TAG=[^;/{]+/\1 on [^;{]+; SITE=lab$')" 4
run "$configs/environment.yaml"
is "environment: or its default" "$(lines 'SITE=nowhere$')" 4

# ---- workloads, with other parameters ----
for op in sum prod min max avg; do
    for dtype in float32 float64 int32 int64 uint8; do
        with allreduce "bytes: 10008, iters: 2, op: $op, dtype: $dtype" 3
        is "allreduce $op $dtype" "$code $(lines "x $dtype .*, $op, 2 calls, all verified")" "0 1"
    done
done
with allreduce "bytes: 10008, iters: 2, dtype: bfloat16" 3
is "allreduce bfloat16" "$code $(lines 'x bfloat16 .* all verified')" "0 1"
with allreduce "bytes: 64KiB, iters: 2" 1
is "allreduce alone" "$code $(lines 'all verified')" "0 1"
with allreduce "verify: false, bytes: 64KiB, iters: 2"
is "allreduce unverified says so" "$code $(lines 'not verified')" "0 1"
with allreduce "op: median"
ends "allreduce: an operator that it does not know" 2
like "and says so" "$(err)" 'params\.op: "median" is not one of sum, prod'
with ring "bytes: 4MiB, laps: 2, order: parity" 3
is "ring: large tokens by parity" "$code $(lines '6 hops verified')" "0 1"
with ring "bytes: 4MiB, laps: 2" 2
is "ring: large tokens by sendrecv" "$code $(lines '4 hops verified')" "0 1"
with ring "laps: 1" 1
is "ring: alone is an error" "$code" 1
like "and says so" "$(err)" 'a ring needs at least two ranks'
with grid "steps: 2"
ends "grid: without its groups" 1
like "names the first that is missing" "$(err)" 'no group named "pp"'
with bench "ops: all, max: 4KiB, factor: 16, iters: 3" 3
ends "bench: all operations" 0
for operation in allreduce reduce broadcast allgather reduce_scatter alltoall gather scatter sendrecv barrier scan exscan allgatherv gatherv scatterv reduce_scatterv alltoallv; do
    shows "bench: $operation" "^\[0\] # $operation in group world: 3 ranks on shm"
done
is "bench: and none is left out" "$(lines '^\[0\] # .*not supported')" 0
shows "bench: all results are right" 'Out of bounds values : 0 OK'
run one.yaml --set groups.world.backend=gloo
is "bench: the same on gloo" "$code $(lines '# [a-z_]+ in group world: 3 ranks on gloo') $(lines 'Out of bounds values : 0 OK')" "0 17 1"
with bench "ops: [reduce, allreduce], op: max, dtype: int64, root: 1, max: 1KiB, iters: 3"
is "bench: another operator, type and root" "$code $(lines ' int64 +max +1 ') $(lines ' int64 +max +-1 ')" "0 8 8"
with bench "sizes: [1KiB, 24], iters: 2"
is "bench: a list of sizes, in its order" "$code $(awk '$2 ~ /^[0-9]+$/ {print $2}' out | tr '\n' ' ')" "0 1024 24 "
with bench "ops: []"
like "bench: no operation" "$(err)" 'params\.ops: the list is empty'
with bench "ops: [reduce, allredcue]"
ends "bench: an operation that there is not" 2
like "and says which there are" "$(err)" 'params\.ops\[1\]: "allredcue" is not one of all, allreduce, '
with allreduce "byts: 64KiB"
ends "a misspelt parameter" 2
like "and what was meant" "$(err)" 'bytes'

# ---- as users build them ----
mkdir -p pc mine
cat >pc/collrun.pc <<END
Name: collrun
Description: the build under test
Version: 0
Cflags: -I$include
Libs: -L$home/lib -lcollrun
END
export PKG_CONFIG_PATH=$tmp/pc
for source in "$top"/examples/*.c; do
    name=$(basename "$source" .c)
    # shellcheck disable=SC2046
    cc -shared -fPIC $(pkg-config --cflags --libs collrun) "$source" -o "mine/lib$name.so" 2>cc.log
    is "$name: cc, without a word" "$? $(cat cc.log)" "0 "
    # shellcheck disable=SC2046
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror -shared -fPIC $(pkg-config --cflags --libs collrun) "$source" -o c11.so 2>cc.log
    is "$name: strict C11" "$? $(cat cc.log)" "0 "
done
cp -r "$top/examples/backend-template" mine/
rm -f mine/backend-template/*.so
make -s -C mine/backend-template >make.log 2>&1
is "the backend template: make, without a word" "$? $(cat make.log)" "0 "
job mine/job <<END
version: 1
processes: {count: 3}
workloads:
  - {plugin: ./liballreduce.so, params: {bytes: 64KiB, iters: 3}}
END
run mine/job.yaml
is "a workload of one's own, by path" "$code $(lines 'all verified')" "0 1"
export STREAM=$tmp/mine/backend-template/libcollrun_stream.so
runs backend
shows "backend: runs on the template" '3 ranks on stream, .* all verified$'
job stream <<END
version: 1
processes: {count: 4}
backends: {stream: {path: $STREAM}}
groups:
  world: {ranks: all, backend: stream}
workloads:
  - {plugin: bench, params: {ops: all, max: 4KiB, factor: 16, iters: 2}}
END
run stream.yaml
is "backend: every operation, built from send and receive" "$code $(lines 'Out of bounds values : 0 OK')" "0 1"
run stream.yaml --set workloads[0].params.ops=sendrecv --set workloads[0].params.max=16MiB
is "backend: messages that a socket has no room for" "$code $(lines 'Out of bounds values : 0 OK')" "0 1"
run stream.yaml --set backends.stream.options.junk=9
like "backend: an option that it does not have is refused" "$(err)" 'the backend "stream" has no option "junk"'
jobs=${CONFORM_JOBS:-'world of [138]|permuted|messages|check: strict|programs, three'}
COLLRUN=$COLLRUN STEPS=200 JOBS=$jobs "$top/tests/conform/run.sh" "$STREAM" >conform.log 2>&1
code=$?
is "backend: the template conforms: $(tail -n 1 conform.log | tr -d '#')" "$code" 0
grep -A12 '^not ok' conform.log | sed 's/^/# /'

# ---- the checks themselves ----
# A workload whose expectation is wrong in one place must fail, and so must its job.
sed 's/first + n - 1;/first + n;/' "$top/examples/allreduce.c" >wrong.c
check "a wrong expectation was planted" sh -c "! cmp -s wrong.c '$top/examples/allreduce.c'"
plugin wrong.c mine/libwrong.so
with "$tmp/mine/libwrong.so" "op: max, bytes: 1KiB, iters: 1"
ends "an expectation that is wrong fails the job" 1
like "and names the element" "$(err)" 'element 0 of 256 is [0-9]+, expected [0-9]+'
is "a check of this file that is wrong is not ok" "$(is planted one two 2>/dev/null | head -n 1 | cut -d' ' -f1)" not
done_testing
