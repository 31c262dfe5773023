#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Is each acquire and release in the code under the memory model needed, and would its loss be found? Weakens them to relaxed, one by
# one, in a copy of the tree, and expects run.sh to fail. Those that it does not find are named below, with the reason. TAP.
# usage: tests/memory_model/weaken.sh [RUNS]   RUNS: of each test (3000); FILE=PATTERN: only in files whose path ends so
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
copy=$(mktemp -d) || exit 2
trap 'rm -rf "$copy"' EXIT
number=0 failed=0

# FILE, the number of the occurrence in it, and the reason why the loss of it is not found
not_found=$(cat <<'END'
cma.c 1 the kernel reads the memory of another process: not under the model
cma.c 2 as above
group.h 1 a rank that fails a group and then uses its memory again: not in these programs
heap.c 1 shared by the threads of one rank; the model runs one thread a rank
heap.c 2 as above
receiver.c 1 in these programs the counter of the FIFO orders the same accesses
sender.c 1 as above
record_cut.c 2 both readings of a word would have to return the same old one: too rare for these runs
record_writer.c 1 the ranks of these programs have one thread each
record_writer.c 2 as above
record_writer.h 1 as above
record_queue.c 1 a thread's number is read long after it was written, and once
record_queue.c 2 no operator of the caller is named in these programs
record_queue.c 3 no call fails in these programs
record_queue.c 4 as above
record_queue.c 5 as above
record_queue.c 6 the modules are read long after they were listed
record_queue.c 8 no reader takes a slot that is being filled: `used` orders it
record_queue.h 6 a mark that is torn has another checksum
record_queue.h 7 as above
END
)

# Where an order stands: "FILE LINE". Operations without an order are seq_cst; a few are weakened by expressions below.
orders() {
    grep -n 'memory_order_\(acquire\|release\|acq_rel\)' "$1" | cut -d: -f1 | sed "s|^|$1 |"
}
reason() { # FILE OCCURRENCE
    sed -n "s|^${1##*/} $2 ||p" <<<"$not_found"
}
weakened_is_found() { # PROGRAM...
    local program
    for program in "$@"; do
        ONLY=$program SOURCE=$copy "$here/run.sh" "$runs" >"$copy/out" 2>&1 || return 0
    done
    return 1
}
try() { # TITLE FILE OCCURRENCE PROGRAM...
    local title=$1 why
    why=$(reason "$2" "$3")
    number=$((number + 1))
    if weakened_is_found "${@:4}"; then
        echo "ok $number - $title: $(sed -n 's/^# run [0-9]*: //p' "$copy/out" | head -n 1)"
    elif [ -n "$why" ]; then
        echo "ok $number - $title: not found: $why"
    else
        echo "not ok $number - $title: not found"
        failed=1
    fi
}

runs=${1:-3000}
cd "$top" || exit 2
cp -r --parents engine runner/diagnose backends/shm "$copy"
for file in backends/shm/*.[ch] backends/shm/*/*.[ch] engine/base/record*.[ch]; do
    [[ $file == *"${FILE:-}" ]] || continue
    programs=(shm_collectives shm_messages)
    [[ $file != engine/* ]] || programs=(record calls)
    occurrence=0
    while read -r _ line; do
        occurrence=$((occurrence + 1))
        sed "${line}s/memory_order_\(acquire\|release\|acq_rel\)/memory_order_relaxed/" "$file" >"$copy/$file"
        try "$file:$line $(sed -n "${line}s/^ *//p" "$file" | cut -c1-70)" "$file" $occurrence "${programs[@]}"
        cp "$file" "$copy/$file"
    done < <(orders "$file")
done
# Operations that are seq_cst, and what orders otherwise. expression FILE EXPRESSION PROGRAM
expression() {
    [[ $1 == *"${FILE:-}" ]] || return
    sed "$2" "$1" >"$copy/$1"
    if cmp -s "$1" "$copy/$1"; then
        number=$((number + 1))
        failed=1
        echo "not ok $number - $1: the expression changes nothing: $2"
    else
        try "$1: $2" "$1" - "$3"
    fi
    cp "$1" "$copy/$1"
}
step=backends/shm/coll/step.c wait=backends/shm/transport/wait.c
expression $step 's/atomic_fetch_add(&h->arrived\(.*\), 1)/atomic_fetch_add_explicit(\&h->arrived\1, 1, memory_order_relaxed)/' shm_collectives
expression $step 's/atomic_load(&h->step_doorbell.sleepers)/atomic_load_explicit(\&h->step_doorbell.sleepers, memory_order_relaxed)/' shm_collectives
expression $step 's/atomic_load(\(&g->seg.head->arrived.*\));/atomic_load_explicit(\1, memory_order_acquire);/' shm_collectives
expression $wait 's/atomic_fetch_add(&w->doorbell->sleepers, 1)/atomic_fetch_add_explicit(\&w->doorbell->sleepers, 1, memory_order_relaxed)/' shm_collectives
expression $wait 's/w->visible = .*/w->visible = true;/' shm_collectives
expression backends/shm/transport/doorbell.h 's/atomic_fetch_add(&doorbell->sleepers, 0).*/atomic_load_explicit(\&doorbell->sleepers, memory_order_acquire)/' shm_messages
expression backends/shm/transport/doorbell.c 's/atomic_fetch_add(&doorbell->seq, 1)/(void)doorbell/' shm_collectives
expression backends/shm/p2p.c 's/peer->watched = peer->notify_due/peer->watched = false/' shm_messages
expression backends/shm/group.c 's/atomic_store(&f->state, FAILURE_SET)/atomic_store_explicit(\&f->state, FAILURE_SET, memory_order_relaxed)/' shm_collectives
expression backends/shm/coll/step.h 's/#define STEP_LEAD(g) .*/#define STEP_LEAD(g) ((g)->seg.depth + 1)/' shm_collectives
expression backends/shm/coll/step.h 's/#define STEP_LEAD_WITH_SLOT(g) .*/#define STEP_LEAD_WITH_SLOT(g) ((g)->seg.nslots + 1)/' shm_collectives
queue=engine/progress/progress_queue
expression $queue.c 's/atomic_store(\(&pq->contended, true\))/atomic_store_explicit(\1, memory_order_release)/' queue
expression $queue.c 's/atomic_load(\(&pq->owner\)) == PQ_DIRECT/atomic_load_explicit(\1, memory_order_relaxed) == PQ_DIRECT/' queue
expression $queue.h 's/if (!atomic_load(\(&pq->contended\)))/if (!atomic_load_explicit(\1, memory_order_acquire))/' queue
expression $queue.h 's/memory_order_seq_cst, memory_order_relaxed/memory_order_acquire, memory_order_relaxed/' queue
expression $queue.c 's/atomic_compare_exchange_strong(\(&pq->requests.deferred, &none, r\))/atomic_compare_exchange_strong_explicit(\1, memory_order_relaxed, memory_order_relaxed)/' queue
expression $queue.c 's/if (atomic_load(&pq->worker.asleep))/if (atomic_load_explicit(\&pq->worker.asleep, memory_order_relaxed))/' queue
expression engine/progress/progress_owner.c 's/atomic_exchange(&q->deferred, NULL)/atomic_exchange_explicit(\&q->deferred, NULL, memory_order_relaxed)/' queue
expression engine/core/host_scope.c '/seq_cst.*after the store/d' scope
expression engine/core/host_scope.c '/seq_cst.*before the loads/d' scope
echo "1..$number"
exit $failed
