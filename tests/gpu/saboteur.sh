#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that the drills can fail: plants one bug at a time into a copy of backends/nccl, builds it, and runs on the stand-ins the
# drills that have to notice; with SUITE=conform the conformance suite, which has to notice those that spoil a result.
# BUGS chooses some by number.
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/e2e/lib.sh"
build=${BUILD:-$top/build/release}
export LD_LIBRARY_PATH=$build/tests/fake FAKE_NCCL_STALL_MS=1000
if [ "${SUITE:-}" = conform ]; then
    sources=$(ls "$top"/tests/conform/*.c | grep -v saboteur)
    cc -std=c11 -O2 -g -D_GNU_SOURCE -shared -fPIC -fvisibility=hidden -pthread -I"$include" $sources -L"$build/lib" -lcollrun -lm \
        -o "$tmp/conform.so" || exit 1
    BUGS=${BUGS:-1 2 3 4 5 6 7 8 9 10 11 12 20 21 22 23 24 25 26}
    suite=("2 processes with 2 GPUs" "host or stream" "2 processes with 1 GPU:" requests disagree)
fi
plugin "$top/tests/gpu/drill" "$tmp/drill.so" -ldl || { echo "Bail out! the drills do not compile"; exit 1; }
bug=0

drill() { # CASE RANKS GPUS_PER_PROCESS
    job drill <<END
version: 1
processes: {count: $2}
env: {set: {NCCL_HOSTID: "{rank}"}}
timeouts: {run: 20s}
backends:
  bugged: {path: ./libcollrun_bugged.so}
groups:
  world: {backend: bugged, gpus_per_process: $3, timeout: 1s}
  second: {backend: bugged, gpus_per_process: $3, timeout: 1s}
  third: {backend: bugged, gpus_per_process: $3, timeout: 1s}
workloads:
  - {plugin: ./drill.so, params: {case: $1}}
END
    run run drill.yaml
}

# The jobs of the suite that have most to say, until one fails.
conform() {
    local jobs round=0
    for jobs in "${suite[@]}"; do
        round=$((round + 1))
        COLLRUN=$build/bin/collrun BACKEND=$PWD/libcollrun_bugged.so CONFORM_SO=$tmp/conform.so JOBS=$jobs SEED=$round GROUP_TIMEOUT=${patience:-3s} \
            JOB_TIMEOUT=60 FAKE=1 FAKE_CUDA_DELAY_US=300 "$top/tests/conform/devices.sh" >conform.out 2>&1
        code=$?
        [ $code = 0 ] || break
    done
    ! grep -q 'timeouts.run' conform.out || code=0 # nobody noticed: it is only late
    sed -nE '/^# .*(FAIL|error:|stand-in\))/s/^# */# /p' conform.out | head -n 1
}

# plant WHAT FILE SED-EXPRESSION "CASE RANKS GPUS"...
plant() {
    local what=$1 file=$2 change=$3 case ranks gpus
    shift 3
    bug=$((bug + 1))
    [ -z "${BUGS:-}" ] || [[ " $BUGS " == *" $bug "* ]] || return 0
    rm -rf nccl && cp -r "$top/backends/nccl" nccl
    sed -i "$change" "nccl/$file"
    if [ -n "$change" ] && cmp -s "nccl/$file" "$top/backends/nccl/$file"; then
        not_ok "$bug: $what" "the code has changed: there is no place for this bug any more"
        return
    fi
    sed -i 's/.name = "nccl"/.name = "bugged"/' nccl/nccl.c
    cc -std=c11 -D_GNU_SOURCE -O1 -g -w -shared -fPIC -pthread -I"$include" nccl/*.c -ldl -o libcollrun_bugged.so 2>err || {
        not_ok "$bug: $what" "it does not compile"
        return
    }
    [ "${SUITE:-}" != conform ] || set --
    for shape; do
        read -r case ranks gpus <<<"$shape"
        drill "$case" "$ranks" "$gpus"
        [ "$code" = 0 ] || break
    done
    if [ "${SUITE:-}" = conform ]; then
        [ -n "$change" ] || local patience=30s # what is well may take its time
        conform
    fi
    if [ -n "$change" ]; then
        check "$bug: $what" test "$code" != 0
    else
        is "$bug: $what" "$code" 0
    fi
}

plant "without a bug all is well" nccl.c "" "streams 2 1" "devices 2 2" "messages 2 2" "cross 2 1" "groups 3 1" "late 3 1" "memory 2 1" "walk 3 1" "threads 2 1" \
    "inverse 2 1" "overtake 2 1" "chains 2 1" "forming 2 1"
plant "nothing waits for the caller's stream" issue.c \
    's/error = cuda->cudaStreamWaitEvent(p->stream, p->ready->event, 0);/error = cudaSuccess;/' "streams 2 1"
plant "it waits for the default stream instead" issue.c 's/follow(g, p, f->calls\[i\].stream)/follow(g, p, NULL)/' "streams 2 1"
plant "a stream that was to wait does not" request.c \
    's/g->home->lib.cuda.cudaStreamWaitEvent(stream, f->done\[device\]->event, 0)/cudaSuccess/' "streams 2 1"
plant "another device is current" issue.c 's/home->lib.cuda.cudaSetDevice(ordinal);/home->lib.cuda.cudaSetDevice(before);/' "devices 2 2"
plant "the end is marked before the launch" issue.c 's/status = await_ready(g, p, deadline_ns);/status = COLLRUN_OK;/' \
    "streams 2 1" "devices 2 2"
plant "the end is marked on another stream" issue.c 's/port_mark(g, p, p->stream)/port_mark(g, p, NULL)/' \
    "streams 2 1" "devices 2 2"
plant "what has not ended counts as done" request.c \
    's/if (error == cudaErrorNotReady)/if (0)/; s/if (error != cudaSuccess)$/if (error != cudaSuccess \&\& error != cudaErrorNotReady)/' \
    "streams 2 1" "devices 2 2"
plant "the root is always its process's first GPU" issue.c \
    's/.root = call->root \* (int)g->nports + call->peer_device/.root = call->root * (int)g->nports/' "devices 2 2"
plant "messages go to the first GPU of the peer" message.c \
    's/(uint32_t)c->peer \* g->nports + (uint32_t)c->peer_device/(uint32_t)c->peer * g->nports/' "messages 2 2"
plant "ranks and devices are exchanged" message.c \
    's/(uint32_t)c->peer \* g->nports + (uint32_t)c->peer_device/(uint32_t)c->peer_device * g->nranks + (uint32_t)c->peer/' "messages 2 2"
plant "messages of one call are no group" issue.c \
    's/ncclResult_t result = nccl->ncclGroupStart();/ncclResult_t result = ncclSuccess;/; s/const ncclResult_t end = nccl->ncclGroupEnd();/const ncclResult_t end = ncclSuccess;/' \
    "cross 2 1" "messages 2 2"
plant "a time-out is forgotten" request.c 's/clock_ns() >= f->deadline_ns) {/0) {/' "late 3 1"
plant "an abort leaves the GPU running" abort.c 's/^        stop(g);/        (void)stop;/' "late 3 1"
plant "threads race to launch" issue.c 's/lock ? pthread_mutex_lock(m) : pthread_mutex_unlock(m);/(void)m, (void)lock;/' "groups 3 1" "groups 3 1"
plant "memory comes from the first GPU" memory.c 's/g->ports\[device\].ordinal/g->ports[0].ordinal/' "memory 2 2"
plant "collectives follow on each other that nobody has promised" traffic.c 's/!is_promised_by_all(f)/false/' "inverse 2 1" "overtake 2 1"
plant "it does not matter what a stream waits for" traffic.c 's/f->bound = t->awaited != g->awaited;/f->bound = false;/' "chains 2 1"
plant "the desk takes one rank's promise for all" desk.c 's/for (uint32_t i = 0; i < d->nranks; i++)$/for (uint32_t i = 0; i < 0; i++)/; s/was_last = .*;/was_last = true;/' \
    "inverse 2 1" "overtake 2 1"
if [ "${SUITE:-}" = conform ]; then
    plant "an allgather takes elements for bytes" issue.c 's/ncclAllGather(c->send, c->recv, count,/ncclAllGather(c->send, c->recv, count \/ o->scale,/'
    suite=(requests)
    export SCOPE=full
    plant "tags do not matter" desk.c 's/send->tag == recv->tag && //'
    plant "the sender of a message from anyone is not told" message.c 's/(int)(m->place \/ g->nports)/0/'
    suite=(disagree)
    plant "a message of another length is not noticed" message.c 's/match->count != m->call->count ||/0 ||/'
    orders="each rank in its own order$"
    suite=("$orders" "$orders" "$orders" "$orders")
    patience=10s
    plant "promises are made in several groups at once" traffic.c 's/ || (t->promises \&\& t->promised_to != g)//'
    export SCOPE=core
    suite=("2 processes with [24] GPUs" "2 processes with 2 GPUs" "2 processes with 4 GPUs") # chance has a part in it
    patience=3s
    plant "a stream waits for what another GPU does" request.c 's/f->done\[device\]->event/f->done[0]->event/'
    plant "long data that is reduced on the host comes to one place" emulate.c 's/at(call->recv, k->from \* k->width)/call->recv/'
fi
done_testing
