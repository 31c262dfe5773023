#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The examples that train a model: each converges, and its loss is that of one process.
. "$(dirname "$0")/lib.sh"
configs=$top/configs
last() { tail -n 1 out; }

# train NAME OPTIONS: the job converges.
train() {
    local name=$1
    shift
    run "$configs/$name.yaml" --run-dir "$tmp/$RANDOM.$name" "$@"
    ends "$name $*: runs" 0
    like "$name $*: converges" "$(last)" '^\[[01]\] converged: '
}

# ---- data-parallel, in C ----
run check "$configs/train.yaml"
ends "train: the file is good" 0
train train --set processes.count=1 --set workloads[0].params.fail_at=-1
alone=$(last)
like "train: it recognizes the digits" "$alone" '^\[0\] converged: loss 0\.[0-9]{6}, accuracy 0\.9[5-9][0-9]$'
for backend in shm tcp; do
    train train --set groups.world.backend=$backend
    is "train, $backend: the loss is that of one process" "$(last)" "$alone"
    is "train, $backend: the second attempt continues" "$(grep attempt out | tr '\n' ';')" \
        "[0] attempt 0: 4 processes from step 0;[0] attempt 1: 4 processes from step 40;"
done
run "$configs/train.yaml" --run-dir "$tmp/bad" --set workloads[0].params.steps=2 --set workloads[0].params.fail_at=-1
ends "train: too few steps are a failure" 1
like "train: which says so" "$(err)" 'not converged: accuracy 0\.[0-9]+ after 2 steps'

# ---- data and pipeline parallelism, in C ----
run check "$configs/pipeline.yaml"
ends "pipeline: the file is good" 0
for backend in shm tcp; do
    train pipeline --set mesh.groups.pp.backend=$backend --set mesh.groups.dp.backend=$backend
    is "pipeline, $backend: the loss is that of one process" "$(last)" "$(sed 's/^\[0\]/[1]/' <<<"$alone")"
done
train pipeline -n 6 # three columns; their sums have another order
train pipeline --set workloads[0].params.micro=7 # 250 images: the last micro-batch is smaller
is "pipeline: micro-batches of unequal size" "$(last)" "$(sed 's/^\[0\]/[1]/' <<<"$alone")"

# ---- a sharded parameter server with asynchronous workers, a program in C ----
export PROGRAM=${BUILD:-$top/build/release}/libexec/collrun/examples/parameter_server
run check "$configs/parameter_server.yaml"
ends "parameter_server: the file is good" 0
for backend in shm tcp; do
    train parameter_server --set groups.world.backend=$backend
    is "parameter_server, $backend: what it did" "$(last)" "[0] converged: 2 servers, 3 workers, accuracy at least 0.95"
done
train parameter_server -n 3
run "$configs/parameter_server.yaml" -n 2
ends "parameter_server: without a worker: refused" 2
like "parameter_server: which says why" "$(err)" 'roles\.worker: no rank is left for it'

done_testing
