/* SPDX-License-Identifier: Apache-2.0
 *
 * Posting, waiting and comparing; see step.h for the rules and why they suffice.
 */
#include "step.h"

#include "explain.h"
#include "wait.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define RING_FIRST_WINDOW (128u << 10)
#define WINDOW_TURNS 4u /* how often the window is gone through before it doubles */

/* ---- the ring ---- */

static size_t lines_len(size_t len)
{
    return (len + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* Maps a part of the own ring at once; without, every page's first use would be a fault, which
 * copy_out takes for a slow copy. Kernels before 5.14 cannot, and nothing depends on it. */
static void ring_populate(const struct shm_group *g, size_t from, size_t to)
{
#ifdef MADV_POPULATE_WRITE
    char *ring = g->seg.rings + (size_t)g->rank * RING_BYTES;
    (void)madvise(ring + from, to - from, MADV_POPULATE_WRITE);
#else
    (void)g, (void)from, (void)to;
#endif
}

/* Growing moves on to the new part, where four steps fit before the old one is entered again:
 * nothing in flight is hit. */
static void ring_grow(struct shm_group *g, size_t len)
{
    const size_t before = g->ring_window;
    size_t window = before ? before : RING_FIRST_WINDOW;
    if (g->ring_moved > WINDOW_TURNS * (uint64_t)window && window < RING_BYTES)
        window *= 2;
    while (len > window / RING_SHARE && window < RING_BYTES)
        window *= 2;
    if (window == before)
        return;
    ring_populate(g, before, window);
    g->ring_window = window;
    g->ring_pos = before;
    g->ring_moved = 0;
}

static struct post *next_post(struct shm_group *g)
{
    return &g->seg.posts[(size_t)((g->step + 1) % STEP_LANES) * g->nranks + g->rank];
}

char *step_room(struct shm_group *g, size_t len)
{
    struct post *p = next_post(g);
    g->post_len = offsetof(struct post, payload) + (len <= PAYLOAD_BYTES ? len : 0);
    if (len <= PAYLOAD_BYTES) {
        p->at = g->place = len > 0 ? POST_INLINE : POST_NOTHING;
        return p->payload;
    }
    if (len <= SLOT_BYTES) {
        p->at = g->place = POST_SLOT;
        return step_slot(g, g->rank, g->step + 1);
    }
    len = lines_len(len);
    ring_grow(g, len);
    if (g->ring_pos + len > g->ring_window)
        g->ring_pos = 0;
    p->at = g->place = (uint32_t)(g->ring_pos / LINE_BYTES);
    char *room = g->seg.rings + (size_t)g->rank * RING_BYTES + g->ring_pos;
    g->ring_pos += len;
    g->ring_moved += len;
    return room;
}

void step_refer(struct shm_group *g, struct heap_ref ref)
{
    struct post *p = next_post(g);
    p->at = g->place = POST_DIRECT;
    memcpy(p->payload, &ref, sizeof(ref));
}

void step_note(struct shm_group *g, const void *note, size_t len)
{
    memcpy(next_post(g)->payload, note, len);
}

/* ---- posting ---- */

/* How many posts the lane of `step` has seen when that step is complete, modulo 2^32. */
static uint32_t arrivals_due(const struct shm_group *g, uint64_t step)
{
    return (uint32_t)(((step - 1) / STEP_LANES + 1) * g->nranks);
}

/* In a crowded group the last to arrive wakes everybody at once; nobody is woken in vain. */
static void arrive(struct shm_group *g)
{
    struct segment_head *h = g->seg.head;
    const uint32_t count = atomic_fetch_add(&h->arrived[g->step % STEP_LANES].count, 1) + 1;
    if (count == arrivals_due(g, g->step) && atomic_load(&h->steps.sleepers) != 0)
        bell_wake(&h->steps);
}

void step_post(struct shm_group *g, const struct signature *s)
{
    struct post *p = next_post(g);
    g->step++;
    if (s) {
        p->signature = s->what;
        p->count = s->count;
    }
    atomic_store_explicit(&p->seq, (uint32_t)g->step, memory_order_release);
    if (g->crowded)
        arrive(g);
    else
        bell_ring(g, &g->seg.head->steps);
}

/* ---- waiting ---- */

static bool has_posted(const struct shm_group *g, uint32_t rank, uint64_t step)
{
    return atomic_load_explicit(&step_post_of(g, rank, step)->seq, memory_order_acquire) ==
           (uint32_t)step;
}

static void missing_posts(struct shm_group *g, const void *context, char *out, size_t len)
{
    const uint64_t step = *(const uint64_t *)context;
    for (uint32_t r = 0; r < g->nranks; r++)
        if (r != g->rank && !has_posted(g, r, step))
            rank_list_add(out, len, r);
}

static bool all_arrived(const struct shm_group *g, uint64_t step)
{
    const uint32_t count =
        atomic_load_explicit(&g->seg.head->arrived[step % STEP_LANES].count, memory_order_acquire);
    return count - arrivals_due(g, step) < UINT32_MAX / 2;
}

static int wait_arrivals(struct shm_group *g, uint64_t step)
{
    struct wait w = WAIT_FOR(g, &g->seg.head->steps);
    while (!all_arrived(g, step)) {
        const int status = wait_more(&w, missing_posts, &step);
        if (status != COLLRUN_OK)
            return status;
    }
    wait_end(&w);
    return COLLRUN_OK;
}

/* Asks for the further lines of a post as often as for its first, so that all come at once; for as
 * many as this rank has posted, which is right where all contribute alike. */
static void fetch_payload(const struct shm_group *g, uint32_t rank, uint64_t step)
{
    const char *post = (const char *)step_post_of(g, rank, step);
    for (size_t line = LINE_BYTES; line < g->post_len; line += LINE_BYTES)
        __builtin_prefetch(post + line);
}

static int wait_for_post(struct shm_group *g, uint32_t rank, uint64_t step)
{
    struct wait w = WAIT_FOR(g, &g->seg.head->steps);
    while (!has_posted(g, rank, step)) {
        fetch_payload(g, rank, step);
        const int status = wait_more(&w, missing_posts, &step);
        if (status != COLLRUN_OK)
            return status;
    }
    wait_end(&w);
    return COLLRUN_OK;
}

int step_wait(struct shm_group *g, uint64_t step)
{
    if (group_failed(g))
        return group_failure(g);
    if (g->crowded)
        return wait_arrivals(g, step);
    for (uint32_t r = 0; r < g->nranks; r++) {
        if (r == g->rank || has_posted(g, r, step))
            continue;
        const int status = wait_for_post(g, r, step);
        if (status != COLLRUN_OK)
            return status;
    }
    return COLLRUN_OK;
}

/* ---- signatures ---- */

bool kind_reduces(enum collrun_kind kind)
{
    return kind == COLLRUN_ALLREDUCE || kind == COLLRUN_REDUCE || kind == COLLRUN_REDUCE_SCATTER ||
           kind == COLLRUN_REDUCE_SCATTERV;
}

bool kind_has_root(enum collrun_kind kind)
{
    return kind == COLLRUN_REDUCE || kind == COLLRUN_BROADCAST || kind == COLLRUN_GATHER ||
           kind == COLLRUN_SCATTER || kind == COLLRUN_GATHERV || kind == COLLRUN_SCATTERV;
}

bool kind_is_uneven(enum collrun_kind kind)
{
    return kind == COLLRUN_ALLGATHERV || kind == COLLRUN_GATHERV || kind == COLLRUN_SCATTERV ||
           kind == COLLRUN_REDUCE_SCATTERV || kind == COLLRUN_ALLTOALLV;
}

struct signature signature_of(const struct collrun_call *call)
{
    struct signature s = {.what = (uint64_t)call->kind};
    if (call->kind == COLLRUN_BARRIER)
        return s;
    s.what |= (uint64_t)call->dtype << 8;
    if (kind_reduces(call->kind))
        s.what |= (uint64_t)call->op << 16;
    if (kind_has_root(call->kind))
        s.what |= (uint64_t)(uint32_t)call->root << 32;
    if (!kind_is_uneven(call->kind))
        s.count = call->count;
    return s;
}

static int mismatch(struct shm_group *g, uint32_t other, const struct post *p,
                    const struct signature *mine)
{
    char a[128];
    char b[128];
    const uint32_t first = g->rank < other ? g->rank : other;
    const struct signature theirs = {.what = p->signature, .count = p->count};
    explain_signature(g->rank == first ? mine : &theirs, a, sizeof(a));
    explain_signature(g->rank == first ? &theirs : mine, b, sizeof(b));
    return group_fail(g, COLLRUN_ERR_MISMATCH, "rank %u calls %s, rank %u calls %s", first, a,
                      first == g->rank ? other : g->rank, b);
}

int step_check(struct shm_group *g, uint64_t step, const struct signature *mine)
{
    for (uint32_t r = 0; r < g->nranks; r++) {
        const struct post *p = step_post_of(g, r, step);
        if (r == g->rank)
            continue;
        if (p->signature != mine->what || p->count != mine->count)
            return mismatch(g, r, p, mine);
    }
    return COLLRUN_OK;
}
