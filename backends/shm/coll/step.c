/* SPDX-License-Identifier: Apache-2.0
 *
 * Publishing, waiting and comparing; see step.h for the rules and why they suffice.
 */
#include "coll/step.h"

#include "transport/copy.h"
#include "transport/wait.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define STEP_PREFETCH_DISTANCE 2u
#define RING_FIRST_WINDOW (128u << 10)
#define RING_LEAD_MIN 2u
#define RING_LEAD_PARTS 8u
#define RING_WINDOW_TURNS 4u /* passes through the window before it doubles */

/* ---- the ring ---- */

/* Maps a part of this rank's ring at once. Otherwise the first use of every page would be a fault,
 * which copy_out would take for a slow copy. Kernels before 5.14 lack the call; nothing depends on
 * it. */
static void step_populate_ring(const struct shm_group *g, size_t from, size_t to)
{
#ifdef MADV_POPULATE_WRITE
    char *ring = g->seg.rings + (size_t)g->rank * RING_BYTES;
    (void)madvise(ring + from, to - from, MADV_POPULATE_WRITE);
#else
    (void)g, (void)from, (void)to;
#endif
}

/* Enlarges the window if the traffic or `len` asks for it. Writing then continues in the new part,
 * where four steps fit before the old part is entered again: no data in flight is overwritten. */
static void step_grow_ring(struct shm_group *g, size_t len)
{
    struct step_state *s = &g->step;
    const size_t before = s->ring_window;
    size_t window = before ? before : RING_FIRST_WINDOW;
    if (s->ring_moved > RING_WINDOW_TURNS * (uint64_t)window && window < RING_BYTES)
        window *= 2;
    while (len > window / STEP_RING_PARTS && window < RING_BYTES)
        window *= 2;
    if (window == before)
        return;
    step_populate_ring(g, before, window);
    s->ring_window = window;
    s->ring_pos = before;
    s->ring_moved = 0;
}

static char *step_reserve_ring(struct shm_group *g, size_t len)
{
    struct step_state *s = &g->step;
    len = (len + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    step_grow_ring(g, len);
    if (s->ring_pos + len > s->ring_window)
        s->ring_pos = 0;
    s->location = (uint32_t)(s->ring_pos / LINE_BYTES);
    char *room = g->seg.rings + (size_t)g->rank * RING_BYTES + s->ring_pos;
    s->ring_pos += len;
    s->ring_moved += len;
    return room;
}

/* With a lead of 2 + window / 8 / len, others still read at most, with a step of `len` bytes: five
 * steps of an eighth of the window, of which the longest have a lead of 3; and an eighth in shorter
 * ones after them. Another eighth may be left empty at the window's end. When the window has just
 * doubled, its new half is as long as the old window, whose steps are read before that is full. */
uint32_t step_lead_with_ring(const struct shm_group *g, size_t len)
{
    const size_t window = g->step.ring_window ? g->step.ring_window : RING_FIRST_WINDOW;
    const size_t lead = RING_LEAD_MIN + window / RING_LEAD_PARTS / len;
    return lead < STEP_LEAD(g) ? (uint32_t)lead : STEP_LEAD(g);
}

/* ---- publishing ---- */

static struct step_rec *step_next_rec(struct shm_group *g)
{
    return &g->seg.step_recs[step_index(g, g->step.last + 1) * g->nranks + g->rank];
}

char *step_reserve(struct shm_group *g, size_t len)
{
    struct step_rec *rec = step_next_rec(g);
    struct step_state *s = &g->step;
    char *room;
    s->rec_len = offsetof(struct step_rec, payload) + (len <= PAYLOAD_BYTES ? len : 0);
    if (len <= PAYLOAD_BYTES) {
        s->location = len > 0 ? STEP_IN_PAYLOAD : STEP_NO_DATA;
        room = rec->payload;
    } else if (len <= SLOT_BYTES) {
        s->location = STEP_IN_SLOT;
        room = step_slot(g, g->rank, s->last + 1);
    } else {
        room = step_reserve_ring(g, len);
    }
    rec->location = s->location;
    return room;
}

void step_set_heap_ref(struct shm_group *g, struct heap_ref ref)
{
    struct step_rec *rec = step_next_rec(g);
    rec->location = g->step.location = STEP_IN_HEAP;
    memcpy(rec->payload, &ref, sizeof ref);
}

void step_write_payload(struct shm_group *g, const void *payload, size_t len)
{
    memcpy(step_next_rec(g)->payload, payload, len);
}

/* The value of the arrival counter of `step` when that step is complete, modulo 2^32.
 */
static uint32_t step_arrivals_due(const struct shm_group *g, uint64_t step)
{
    return (uint32_t)(((step - 1) / g->seg.depth + 1) * g->nranks);
}

/* Oversubscribed groups: only the last rank to arrive wakes the others, so no rank wakes too early.
 */
static void step_arrive(struct shm_group *g)
{
    struct segment_head *h = g->seg.head;
    const uint64_t step = g->step.last;
    const uint32_t count = atomic_fetch_add(&h->arrived[step_index(g, step)].count, 1) + 1;
    if (count == step_arrivals_due(g, step) && atomic_load(&h->step_doorbell.sleepers) != 0)
        doorbell_wake(&h->step_doorbell);
}

/* Takes the lines of a later record from the CPUs that have read them, for as much as this one has.
 * That takes about two short steps. */
static void step_prefetch_own(struct shm_group *g)
{
    const size_t later = step_index(g, g->step.last + STEP_PREFETCH_DISTANCE) * g->nranks + g->rank;
    copy_prefetch_out((char *)&g->seg.step_recs[later], g->step.rec_len);
}

void step_publish(struct shm_group *g, const struct signature *s)
{
    struct step_rec *rec = step_next_rec(g);
    g->step.last++;
    g->step.signatures[step_index(g, g->step.last)] = s ? *s : SIGNATURE_NONE;
    if (s) {
        rec->signature = s->what;
        rec->count = s->count;
    }
    atomic_store_explicit(&rec->seq, (uint32_t)g->step.last, memory_order_release);
    step_prefetch_own(g);
    if (g->wait.oversubscribed)
        step_arrive(g);
    else
        doorbell_notify(g, &g->seg.head->step_doorbell);
}

void step_wake(struct shm_group *g)
{
    if (g->wait.oversubscribed && g->nranks > 2)
        doorbell_notify(g, &g->seg.head->step_doorbell);
}

/* ---- comparing ---- */

/* Both members of a pair report the same text: the lower rank is first. */
static int step_mismatch(struct shm_group *g, uint32_t other, struct signature theirs,
                         struct signature mine)
{
    const struct collrun_call a = signature_call(mine), b = signature_call(theirs);
    if (g->rank < other)
        return shm_group_fail_mismatch(g, g->rank, &a, other, &b);
    return shm_group_fail_mismatch(g, other, &b, g->rank, &a);
}

/* Compares the signature of `rank` in `step` with that of this rank. */
static int step_compare(struct shm_group *g, uint32_t rank, uint64_t step)
{
    const struct step_rec *rec = step_rec_of(g, rank, step);
    const struct signature theirs = {.what = rec->signature, .count = rec->count};
    const struct signature mine = g->step.signatures[step_index(g, step)];
    if (theirs.what == mine.what && theirs.count == mine.count)
        return COLLRUN_OK;
    return signature_is_none(mine) || signature_agree(theirs, mine)
               ? COLLRUN_OK
               : step_mismatch(g, rank, theirs, mine);
}

/* All ranks have published `step`: compares what was not yet compared. */
static int step_compare_all(struct shm_group *g, uint64_t step)
{
    while (g->step.complete < step) {
        const uint64_t next = g->step.complete + 1;
        for (uint32_t r = 0; r < g->nranks; r++) {
            const int status = r == g->rank ? COLLRUN_OK : step_compare(g, r, next);
            if (status != COLLRUN_OK)
                return status;
        }
        g->step.complete = next;
    }
    return COLLRUN_OK;
}

/* ---- waiting ---- */

static bool step_is_published(const struct shm_group *g, uint32_t rank, uint64_t step)
{
    return atomic_load_explicit(&step_rec_of(g, rank, step)->seq, memory_order_acquire) ==
           (uint32_t)step;
}

static bool step_is_missing(const struct shm_group *g, const void *step, uint32_t rank)
{
    return rank != g->rank && !step_is_published(g, rank, *(const uint64_t *)step);
}

struct step_of_rank {
    uint32_t rank;
    uint64_t step;
};

static bool step_of_rank_is_missing(const struct shm_group *g, const void *context, uint32_t rank)
{
    const struct step_of_rank *awaited = context;
    return rank == awaited->rank && !step_is_published(g, rank, awaited->step);
}

/* In one order with step_arrive: a rank that counts itself among the sleepers and then finds the
 * step incomplete is woken. */
static bool step_all_arrived(const struct shm_group *g, uint64_t step)
{
    const uint32_t count = atomic_load(&g->seg.head->arrived[step_index(g, step)].count);
    return count - step_arrivals_due(g, step) < UINT32_MAX / 2;
}

static int step_wait_arrivals(struct shm_group *g, uint64_t step)
{
    struct wait w = WAIT_FOR(g, &g->seg.head->step_doorbell);
    while (!step_all_arrived(g, step)) {
        const int status = wait_more(&w, step_is_missing, &step);
        if (status != COLLRUN_OK)
            return status;
    }
    wait_end(&w);
    return COLLRUN_OK;
}

/* Asks for the further lines of a record whenever its first line is polled, so that all arrive
 * together. Asks for as many as this rank has published itself, which is right where all contribute
 * alike. */
static void step_prefetch(const struct shm_group *g, uint32_t rank, uint64_t step)
{
    const char *rec = (const char *)step_rec_of(g, rank, step);
    for (size_t line = LINE_BYTES; line < g->step.rec_len; line += LINE_BYTES)
        __builtin_prefetch(rec + line);
}

static int step_wait_for_rank(struct shm_group *g, uint32_t rank, uint64_t step,
                              missing_fn *is_missing, const void *context)
{
    struct wait w = WAIT_FOR(g, &g->seg.head->step_doorbell);
    while (!step_is_published(g, rank, step)) {
        step_prefetch(g, rank, step);
        const int status = wait_more(&w, is_missing, context);
        if (status != COLLRUN_OK)
            return status;
    }
    wait_end(&w);
    return COLLRUN_OK;
}

static int step_wait_ranks(struct shm_group *g, uint64_t step)
{
    for (uint32_t r = 0; r < g->nranks; r++) {
        if (r == g->rank || step_is_published(g, r, step))
            continue;
        const int status = step_wait_for_rank(g, r, step, step_is_missing, &step);
        if (status != COLLRUN_OK)
            return status;
    }
    return COLLRUN_OK;
}

int step_wait(struct shm_group *g, uint64_t step)
{
    if (shm_group_has_failed(g))
        return shm_group_report_failure(g);
    const int status =
        g->wait.oversubscribed ? step_wait_arrivals(g, step) : step_wait_ranks(g, step);
    return status == COLLRUN_OK ? step_compare_all(g, step) : status;
}

/* The rank has published `step`: compares what was not yet compared of this rank. */
static int step_compare_rank(struct shm_group *g, uint32_t rank, uint64_t step)
{
    uint64_t *compared = &g->step.compared[rank];
    int status = COLLRUN_OK;
    if (*compared < g->step.complete)
        *compared = g->step.complete;
    while (*compared < step && status == COLLRUN_OK)
        status = step_compare(g, rank, ++*compared);
    return status;
}

int step_wait_for(struct shm_group *g, uint32_t rank)
{
    const uint64_t step = g->step.last;
    if (g->nranks == 2)
        return step_wait(g, step);
    if (shm_group_has_failed(g))
        return shm_group_report_failure(g);
    const struct step_of_rank awaited = {rank, step};
    const int status = step_wait_for_rank(g, rank, step, step_of_rank_is_missing, &awaited);
    return status == COLLRUN_OK ? step_compare_rank(g, rank, step) : status;
}

/* When the lead is used up, this rank waits until half of it is free again: it then reads the
 * records of several steps at a time, which others no longer write. */
int step_begin(struct shm_group *g, uint32_t lead)
{
    const struct step_state *s = &g->step;
    return s->last - s->complete < lead ? COLLRUN_OK : step_wait(g, s->last - lead / 2);
}

/* ---- memory that is read in place ---- */

static bool step_read_of_aborted(const struct shm_group *g, const void *context, uint32_t rank)
{
    const bool direct = g->coll.in[rank].direct || g->coll.out[rank].direct;
    (void)context;
    return direct && rank != g->rank && shm_group_rank_has_aborted(g, rank);
}

static bool step_has_read_of_aborted(const struct shm_group *g)
{
    uint32_t r = 0;
    while (r < g->nranks && !step_read_of_aborted(g, NULL, r))
        r++;
    return r < g->nranks;
}

int step_end_direct(struct shm_group *g)
{
    struct wait w = WAIT_FOR(g, &g->seg.head->step_doorbell);
    if (shm_group_has_failed_meanwhile(g))
        return shm_group_report_failure(g);
    while (step_has_read_of_aborted(g)) { /* until the time-out */
        const int status = wait_more(&w, step_read_of_aborted, NULL);
        if (status != COLLRUN_OK)
            return status;
    }
    step_reserve(g, 0);
    step_publish(g, NULL);
    return step_wait(g, g->step.last);
}
