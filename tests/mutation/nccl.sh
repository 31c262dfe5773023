#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Mutation test of the GPU tests, on the stand-in libraries. It applies one mutation at a time to a copy of backends/nccl,
# builds the copy, and runs the GPU workload, which must fail; with SUITE=conform the conformance suite must fail instead.
# A mutation names the function that it changes, wherever that is. One whose target is no longer in the source fails as well; --check
# tests only that, in a second, and is part of `make test`, so that a rename that orphans a mutation shows at once.
# usage: [SUITE=conform] tests/mutation/nccl.sh [--check]     output: TAP, one case per mutation
#   MUTATIONS  numbers of those to run (default: all)
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/e2e/lib.sh"
build=${BUILD:-$top/build/release}
export LD_LIBRARY_PATH=$build/tests/fake FAKE_NCCL_STALL_MS=1000
check_only=
if [ "${1:-}" = --check ]; then
    check_only=yes SUITE=conform # all mutations are listed then
    suite=(none)
elif [ "${SUITE:-}" = conform ]; then
    cc -std=c11 -O2 -g -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -pthread -I"$include" "$top"/tests/conform/*.c -L"$build/lib" -lcollrun -lm \
        -o "$tmp/conform.so" || exit 1
    MUTATIONS=${MUTATIONS:-1 2 3 4 5 6 7 8 9 10 11 12 19 20 24 25 26 27 28 29}
    suite=("2 processes with 2 GPUs" "host or stream" "2 processes with 1 GPU:" requests disagree)
fi
[ -n "$check_only" ] || plugin "$top/tests/gpu/workload" "$tmp/gpu_test.so" -ldl || { echo "Bail out! the GPU workload does not compile"; exit 1; }
sources=$(cd "$top/backends/nccl" && find . -name '*.c' -printf '%P\n')
number=0

run_case() { # CASE RANKS GPUS_PER_PROCESS
    local timeout=1s run=25s limit=$limit # without a mutation only the cases of a late rank time out
    [ -n "$change" ] || { run=50s limit=$((60 * slow)); }
    [ -n "$change" ] || [[ $1 == late* ]] || timeout=30s
    job gpu <<END
version: 1
processes: {count: $2}
env: {set: {NCCL_HOSTID: "{rank}"}}
timeouts: {run: $run}
backends:
  mutant: {path: ./libcollrun_mutant.so}
groups:
  world: {backend: mutant, gpus_per_process: $3, timeout: $timeout$([[ $1 != direct_* ]] || echo ", options: {messages: direct}")}
  second: {backend: mutant, gpus_per_process: $3, timeout: $timeout}
  third: {backend: mutant, gpus_per_process: $3, timeout: $timeout}
workloads:
  - {plugin: ./gpu_test.so, params: {case: $1}}
END
    run run gpu.yaml
}

# Runs the jobs that are most likely to detect a mutation, until one fails.
conform() {
    local jobs round=0
    for jobs in "${suite[@]}"; do
        round=$((round + 1))
        COLLRUN=$build/bin/collrun BACKEND=$PWD/libcollrun_mutant.so CONFORM_SO=$tmp/conform.so JOBS=$jobs SEED=$round FIRST=1 GROUP_TIMEOUT=${patience:-3s} \
            JOB_TIMEOUT=60 FAKE=1 FAKE_CUDA_DELAY_US=300 FAKE_NCCL_STALL_MS=${stall_ms:-1000} "$top/tests/conform/devices.sh" >conform.out 2>&1
        code=$?
        [ $code = 0 ] || break
    done
    ! grep -q 'timeouts.run' conform.out || code=0 # a late job alone is no detection
    sed -nE '/^# .*(FAIL|error:|stand-in\))/s/^# */# /p' conform.out | head -n 1
}

# compile FOLDER OBJECTS FILE.c...: of a copy of the backend, which has another name then.
compile() {
    local folder=$1 objects=$2 file
    shift 2
    mkdir -p "$objects"
    sed -i 's/.name = "nccl"/.name = "mutant"/' "$folder/plugin.c"
    for file; do echo "$file" "$objects/$(tr / _ <<<"${file%.c}").o"; done |
        (cd "$folder" && xargs -r -P "$(nproc)" -L 1 sh -c 'exec cc -std=c11 -D_GNU_SOURCE -O1 -g -w -fPIC -pthread -I"$0" -I. -c "$1" -o "$2"' "$include")
}

# mutate FUNCTION SED-EXPRESSION: changes the function, or the table of that name, in the copy of the backend, and prints its file. It
# fails if there is no such code.
mutate() {
    local begin="^[a-z].*\<$1\(\((.*[^;]\)\| = {\)\$" file
    for file in $(cd nccl && grep -rl --include='*.[ch]' "$begin" . | sed 's/^\.\///'); do # a header has its prototype
        cp "nccl/$file" before
        sed -i -e "/$begin/,/^}/{" -e "$2" -e '}' "nccl/$file"
        cmp -s "nccl/$file" before || echo "$file"
    done | grep .
}

# mutation WHAT "FUNCTION..." SED-EXPRESSION "CASE RANKS GPUS"...: the expression changes lines of these functions, or tables.
mutation() {
    local what=$1 functions=$2 change=$3 case ranks gpus function file files=
    shift 3
    number=$((number + 1))
    [ -z "${MUTATIONS:-}" ] || [[ " $MUTATIONS " == *" $number "* ]] || return 0
    rm -rf nccl && cp -r "$top/backends/nccl" nccl
    for function in $functions; do
        if ! file=$(mutate "$function" "$change"); then
            not_ok "$number: $what" "backends/nccl has no $function with code that this mutation changes: update it in tests/mutation"
            return
        fi
        [[ $file == *.c ]] || file=$sources # a header
        files+=" $file"
    done
    if [ -n "$check_only" ]; then
        ok "$number: $what: its target is there"
        return
    fi
    # What the mutation does not change is compiled once.
    rm -rf changed && cp -r objects changed
    { compile nccl "$PWD/changed" $files && cc -shared -pthread changed/*.o -ldl -o libcollrun_mutant.so; } 2>err || {
        not_ok "$number: $what" "it does not compile" "$(head -n 5 err)"
        return
    }
    [ "${SUITE:-}" != conform ] || set --
    for shape; do
        read -r case ranks gpus <<<"$shape"
        run_case "$case" "$ranks" "$gpus"
        [ "$code" = 0 ] || break
    done
    if [ "${SUITE:-}" = conform ]; then
        # Without a mutation nothing may time out, and a kernel that is slow on a busy machine is no stall.
        [ -n "$change" ] || local patience=30s stall_ms=20000
        conform
    fi
    if [ -n "$change" ]; then
        check "$number: $what" test "$code" != 0
    else
        is "$number: $what" "$code" 0
    fi
}

if [ -z "$check_only" ]; then
    cp -r "$top/backends/nccl" nccl
    compile nccl "$PWD/objects" $sources || { echo "Bail out! the backend does not compile"; exit 1; }
fi
mutation "without a mutation all cases pass" "" "" "streams 2 1" "devices 2 2" "messages 2 2" "cross 2 1" "groups 3 1" "late 3 1" "memory 2 1" "late_sender 3 1" "threads 2 1" \
    "inverse 2 1" "overtake 2 1" "chains 2 1" "forming 2 1" "left 3 1" "batches 3 1" "held_up 3 1" "capture 3 1" \
    "direct_flight 2 1" "direct_pipeline 4 1"
mutation "operations do not wait for the caller's stream" issue_after \
    's/g->context->lib.cuda.cudaStreamWaitEvent(dev->stream, event->handle, 0)/cudaSuccess/' "streams 2 1"
mutation "operations wait for the default stream instead" issue_after_callers 's/issue_after_stream(g, dev, op->calls\[i\].stream)/issue_after_stream(g, dev, NULL)/' \
    "streams 2 1"
mutation "wait_stream does not make the stream wait" nccl_order \
    's/g->context->lib.cuda.cudaStreamWaitEvent(stream, op->after_evts\[device\]->handle, 0)/cudaSuccess/' "streams 2 1"
mutation "another device is current" device_enter 's/context->lib.cuda.cudaSetDevice(ordinal);/context->lib.cuda.cudaSetDevice(before);/' "devices 2 2"
mutation "the event is recorded before the launch" issue_record 's/status = comm_await_ready(g, dev, deadline_ns);/status = COLLRUN_OK;/' \
    "streams 2 1" "devices 2 2"
mutation "the event is recorded on another stream" issue_record 's/event_record(g, dev, dev->stream)/event_record(g, dev, NULL)/' \
    "streams 2 1" "devices 2 2"
mutation "an event that is not passed counts as passed" op_query_events \
    's/if (error == cudaErrorNotReady)/if (0)/; s/if (error != cudaSuccess)$/if (error != cudaSuccess \&\& error != cudaErrorNotReady)/' \
    "streams 2 1" "devices 2 2"
mutation "the root is always the first GPU of its process" native_call_of \
    's/.root = call->root \* (int)g->ndevs + call->peer_device/.root = call->root * (int)g->ndevs/' "devices 2 2"
mutation "messages go to the first GPU of the peer" nccl_p2p_request \
    's/(uint32_t)c->peer \* g->ndevs + (uint32_t)c->peer_device/(uint32_t)c->peer * g->ndevs/' "messages 2 2"
mutation "ranks and devices are exchanged" nccl_p2p_request \
    's/(uint32_t)c->peer \* g->ndevs + (uint32_t)c->peer_device/(uint32_t)c->peer_device * g->nranks + (uint32_t)c->peer/' "messages 2 2"
mutation "the calls of an operation are no NCCL group" "issue_native issue_message_group issue_direct_group issue_connect" \
    's/ncclResult_t result = g->context->lib.nccl.ncclGroupStart();/ncclResult_t result = ncclSuccess;/; s/result = comm_group_end(g, result);/;/' \
    "cross 2 1" "messages 2 2"
mutation "a time-out is ignored" op_is_overdue 's/return now >= op->deadline_ns;/return false;/' "late 3 1"
mutation "an abort does not stop the GPU" aborter_thread 's/^        aborter_abort_group(g);/        (void)aborter_abort_group;/' "late 3 1"
mutation "threads race to launch" issue_lock_devices 's/lock ? pthread_mutex_lock(m) : pthread_mutex_unlock(m);/(void)m, (void)lock;/' "groups 3 1" "groups 3 1"
mutation "memory is allocated on the first GPU" nccl_alloc_on 's/g->devs\[device\].ordinal/g->devs[0].ordinal/' "memory 2 2"
mutation "collectives are stacked without commitments" sched_may_launch 's/!sched_is_committed_by_all(op)/false/' "inverse 2 1" "overtake 2 1"
mutation "cross-group dependencies are ignored" sched_submit 's/op->sched.cross_dep = .*stream_waits;/op->sched.cross_dep = false;/' "chains 2 1"
mutation "a batch ignores what its calls need of each other" batch_own_cuts 's/cut = batch_depends(.*;/cut = false;/' "batches 3 1"
mutation "the cuts of the other ranks are ignored" coord_server_on_cuts 's/s->cuts |= cuts;/s->cuts \&= cuts;/' "batches 3 1"
mutation "its memory has no events: to start waits for the stream" cuda 's/^    \.event_.*//' "held_up 3 1"
mutation "messages of the engine wait for what the stream gets later" "nccl_p2p_record_caller nccl_p2p_unmatched_text" 's/if (c->tag == COLLRUN_ENGINE_TAG)/if (0)/' "held_up 3 1"
mutation "one rank's commitment counts for all" "coord_server_on_commit coord_server_on_cuts coord_server_closes" \
    's/for (uint32_t i = 0; i < s->nranks; i++)$/for (uint32_t i = 0; i < 0; i++)/; s/was_lowest = .*;/was_lowest = true;/' "inverse 2 1" "overtake 2 1"
if [ "${SUITE:-}" = conform ]; then
    patience=20s # these give wrong results, and nothing hangs
    mutation "an allgather counts elements as bytes" native_move 's/ncclAllGather(c->send, c->recv, count,/ncclAllGather(c->send, c->recv, count \/ n->scale,/'
    suite=(requests)
    export SCOPE=full
    mutation "tags are ignored" coord_server_on_match_req 's/req->tag, item/0, item/'
    mutation "recv_any does not return the source" message_complete 's/(int)(m->peer_rank \/ g->ndevs)/0/'
    suite=(disagree)
    mutation "different counts of a message are not detected" message_agrees 's|if (rep->count == c->count)|if (rep->count + 1)|'
    export SCOPE=core
    suite=("2 processes with 2 GPUs" "2 processes with 4 GPUs")
    export FAKE_NCCL_SLOW_US=3000 # the GPUs of a process end at different times
    mutation "a stream waits for another GPU's event" nccl_order 's/op->after_evts\[device\]->handle/op->after_evts[0]->handle/'
    unset FAKE_NCCL_SLOW_US
    suite=("2 processes with [24] GPUs" "2 processes with 2 GPUs" "2 processes with 4 GPUs") # each run detects it with some probability only
    mutation "chunks reduced on the host overwrite each other" host_reduce_submit 's/emulate_at(call->recv, k->offset \* k->width)/call->recv/'
fi
mutation "a message is launched before its communicator is formed" nccl_p2p_launch_epoch 's/(nccl_group_is_formed(g) || nccl_p2p_is_next_empty(p))/true/' "messages 2 2"
mutation "ranks connect their GPUs before all have made their communicators" coord_formation_all 's/bool all = ++n->nreplies == needed;/bool all = ++n->nreplies == 1 || !needed;/' \
    "messages 2 2" "first_use 3 1"
mutation "communicators are closed beside a kernel" closing_are_idle 's/idle = idle \&\& atomic_load(.*;/(void)g->devs[i];/' "left 3 1" "broken 2 1"
mutation "a rank closes its communicators without the others" on_demand_close 's/eventfd_write(alone ? d->stop : d->wake, 1);/eventfd_write(d->stop, 1);/' "left 3 1" "left 3 1"
mutation "direct messages are stacked before the other end is known" direct_end_may_launch 's/return !e->in_flight.first || e->answered == e->launched;/return true;/' \
    "direct_flight 2 1"
mutation "direct messages wait for the coordinator" direct_end_may_launch 's/return !e->in_flight.first || e->answered == e->launched;/return e->answered == e->launched;/' \
    "direct_stopped 3 1"
mutation "collectives follow direct messages that may not end" "sched_pin_message sched_unpin_message" 's/context->sched.message_waits++;/;/; s/context->sched.message_waits--;/;/' \
    "direct_behind 2 1"
mutation "direct messages do not wait for the caller's stream" issue_direct 's/status = issue_after_direct(g, dev, list)/status = COLLRUN_OK/' \
    "direct_behind 2 1"
mutation "operations begin after a stream that captures a graph" cuda 's/^    \.stream_check.*//' "capture 3 1"
mutation "the query of an event disturbs the capture of another stream" capture_relax 's/mode = cudaStreamCaptureModeRelaxed/mode = (enum cudaStreamCaptureMode)0/' \
    "capture 3 1"
done_testing
