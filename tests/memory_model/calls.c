/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of ranks in their records, while another process takes cuts: what a cut shows is of one
 * instant, and cuts of several ranks, each of another time, never prove that a program which goes
 * on does not.
 */
#include "base/record_cut.h"
#include "base/record_writer.h"
#include "diagnose/proof.h"
#include "memory_model/model.h"

#include <unistd.h>

enum { RANKS = 2, CALLS = 8, ROUNDS = 3, LOOKS = 6, TAG = 7, GROUP_ID = 5 };

static struct rank {
    struct record_head *head;
    struct record_writer *writer;
    struct record_queue group;
    int file;
} ranks[RANKS];

/* The library: messages to each rank that were sent and received, and ranks in each barrier. */
static _Atomic uint32_t sent_to[RANKS], received_by[RANKS], arrived;

static void open_rank(uint32_t rank)
{
    static const uint32_t world[RANKS] = {0, 1};
    struct rank *r = &ranks[rank];
    if (r->head) {
        record_writer_close(r->writer);
        record_unmap(r->head, record_len(r->head));
        close(r->file);
    }
    r->file = record_make(rank, 0);
    r->head = record_map(r->file);
    MODEL_CHECK(r->head);
    r->writer = record_writer_open(r->head, RECORD_TAP_ENGINE, RECORD_LEVEL_SERIALIZED);
    MODEL_CHECK(r->writer);
    record_queue_open(&r->group, r->head,
                      &(struct record_queue_info){.name = "g",
                                                  .scope = "g",
                                                  .members = RANKS,
                                                  .rank = rank,
                                                  .id = GROUP_ID,
                                                  .world = world});
    atomic_store(&r->head->threads_used, 1);
    atomic_store(&r->writer->threads[1].tid, 100);
    model_racy(r->head, record_len(r->head));
}

static void open_ranks(void)
{
    record_queue_thread = 1; /* of each rank */
    for (uint32_t r = 0; r < RANKS; r++) {
        open_rank(r);
        atomic_store(&sent_to[r], 0);
        atomic_store(&received_by[r], 0);
    }
    atomic_store(&arrived, 0);
}

static bool survey(void *ctx, struct arena *arena, struct record_survey *out)
{
    static const struct record_task task = {.tid = 100, .state = RECORD_TASK_RUNS};
    (void)ctx;
    (void)arena;
    *out = (struct record_survey){.tasks = &task, .ntasks = 1};
    return true;
}

static void take_cut(uint32_t rank, struct arena *arena, struct record_cut *cut)
{
    struct record_view v;
    const struct rank *r = &ranks[rank];
    MODEL_CHECK(record_view_init(&v, r->head, record_len(r->head), NULL) == COLLRUN_OK);
    MODEL_CHECK(record_cut_take(&v, false, survey, NULL, arena, cut));
}

/* ---- one rank ---- */

/* No call follows; whether this one returns does not matter. */
static void finalize(uint32_t rank)
{
    struct record_thread *t = record_enter(ranks[rank].writer);
    record_finish(ranks[rank].writer);
    record_inside(t, RECORD_NONE, &(struct record_at){0});
}

/* Call number n sends a message with n elements, and receives one. */
static void make_calls(void)
{
    struct rank *r = &ranks[0];
    for (uint64_t n = 1; n <= CALLS; n++) {
        struct record_part part = {
            .group = r->group.group, .peer = 1, .tag = TAG, .count = n, .kind = COLLRUN_SEND};
        const struct record_at at = {.since = 5 * n, .site = 7 * n};
        struct record_thread *t = record_enter(r->writer);
        record_begin(r->writer, t, &part);
        part.kind = COLLRUN_RECV;
        const uint32_t handle = record_post(r->writer, t, &part, &at);
        record_wait(r->writer, t, handle);
        record_inside(t, RECORD_ALL, &at);
        model_yield();
        record_leave(t);
        record_take(r->writer, t, &part);
        record_close(r->writer, handle);
        record_outside(t);
    }
    finalize(0);
}

static void check_cut(const struct record_cut *cut)
{
    const struct record_cut_thread *t = cut->threads;
    const uint64_t sent = cut->nchannels ? cut->channels[0].sent : 0;
    const uint64_t taken = cut->nchannels ? cut->channels[0].taken : 0;
    const bool ended = cut->state == RECORD_CUT_ENDED, outside = !ended && !t->nops;
    MODEL_CHECK(taken == cut->takes);
    if (ended || outside) {
        MODEL_CHECK(sent == taken && cut->nreceives == 0);
        MODEL_CHECK(sent == CALLS || (outside && t->role == RECORD_CUT_ACTOR));
        return;
    }
    const uint64_t n = t->ops[0].count;
    MODEL_CHECK(t->nops == 2 && t->site == 7 * n && sent == n && taken == n - 1);
    MODEL_CHECK(t->ops[0].order == n - 1 && t->ops[0].kind == COLLRUN_SEND);
    MODEL_CHECK(t->ops[1].state == RECORD_OPEN && t->ops[1].count == n && t->ops[1].post == n - 1);
    MODEL_CHECK(cut->nreceives == 1 && cut->receives[0].count == n);
}

static void one_instant(uint32_t self)
{
    struct record_cut cut;
    struct arena arena;
    if (self == 0) {
        make_calls();
        return;
    }
    for (int look = 0; look < LOOKS; look++) {
        arena_init(&arena);
        take_cut(0, &arena, &cut);
        if (cut.state != RECORD_CUT_MOVING)
            check_cut(&cut);
        arena_fini(&arena);
    }
}

/* ---- two ranks ---- */

/* A blocking call: it is recorded, and the library does it. */
static void call(uint32_t rank, uint8_t kind, void (*library)(uint32_t rank))
{
    struct rank *r = &ranks[rank];
    const struct record_part part = {.group = r->group.group,
                                     .peer = (int32_t)(1 - rank),
                                     .tag = TAG,
                                     .count = 1,
                                     .kind = kind,
                                     .flags = RECORD_SYNC};
    struct record_thread *t = record_enter(r->writer);
    record_begin(r->writer, t, &part);
    record_inside(t, RECORD_ALL, &(struct record_at){0});
    library(rank);
    record_leave(t);
    if (kind == COLLRUN_RECV)
        record_take(r->writer, t, &part);
    record_outside(t);
}

/* Returns after the message was received. */
static void library_send(uint32_t rank)
{
    const uint32_t n = atomic_fetch_add_explicit(&sent_to[1 - rank], 1, memory_order_release) + 1;
    while (atomic_load_explicit(&received_by[1 - rank], memory_order_acquire) < n)
        model_yield();
}

static void library_receive(uint32_t rank)
{
    const uint32_t n = atomic_load_explicit(&received_by[rank], memory_order_relaxed);
    while (atomic_load_explicit(&sent_to[rank], memory_order_acquire) <= n)
        model_yield();
    atomic_store_explicit(&received_by[rank], n + 1, memory_order_release);
}

static void library_barrier(uint32_t rank)
{
    const uint32_t n = atomic_fetch_add_explicit(&arrived, 1, memory_order_acq_rel);
    (void)rank;
    while (atomic_load_explicit(&arrived, memory_order_acquire) < (n / RANKS + 1) * RANKS)
        model_yield();
}

/* The message that rank 0 receives last is from a rank that calls no more. */
static void run_rank(uint32_t rank)
{
    for (int i = 0; i < ROUNDS; i++) {
        if (rank == 0)
            call(rank, COLLRUN_SEND, library_send);
        call(rank, COLLRUN_RECV, library_receive);
        if (rank == 1)
            call(rank, COLLRUN_SEND, library_send);
        call(rank, COLLRUN_BARRIER, library_barrier);
    }
    if (rank == 0)
        call(rank, COLLRUN_RECV, library_receive);
    else
        call(rank, COLLRUN_SEND, library_send);
    finalize(rank);
}

/* Cuts of one look are compared with each other, and the first of a rank with later ones. */
static void never_proven(uint32_t self)
{
    struct record_cut cuts[RANKS], old;
    struct arena arena;
    struct proof p;
    if (self < RANKS) {
        run_rank(self);
        return;
    }
    arena_init(&arena);
    take_cut(0, &arena, &old);
    for (int look = 0; look < LOOKS; look++) {
        const struct record_cut *now[RANKS] = {&cuts[0], &cuts[1]},
                                *mixed[RANKS] = {&old, &cuts[1]};
        for (uint32_t r = 0; r < RANKS; r++)
            take_cut(look % 2 ? r : 1 - r, &arena, &cuts[look % 2 ? r : 1 - r]);
        MODEL_CHECK(proof_solve(now, RANKS, &arena, &p) && p.nblocked == 0);
        MODEL_CHECK(proof_solve(mixed, RANKS, &arena, &p) && p.nblocked == 0);
        old = cuts[0];
    }
    arena_fini(&arena);
}

int main(int argc, char **argv)
{
    const struct model_test tests[] = {
        {.name = "a cut is of one instant",
         .nthreads = 2,
         .setup = open_ranks,
         .thread = one_instant},
        {.name = "ranks that go on are never proven to wait",
         .nthreads = 3,
         .setup = open_ranks,
         .thread = never_proven},
    };
    return model_main(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
