/* SPDX-License-Identifier: Apache-2.0
 *
 * A look: every group's note and lists become a WAITS frame; what the proof rests on beside it (the
 * turns of the notes, the time slices of threads that nothing is known of) is kept only to be
 * compared with that of the next look.
 */
#include "waits.h"

#include "backend.h"
#include "engine.h"
#include "group.h"
#include "reduce.h"
#include "task.h"
#include "threads.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A send of more bytes waits for its receiver, where the backend does not say better. */
enum { EAGER_LIMIT = 1 << 20 };

#define HASH_START 14695981039346656037u /* FNV-1a's */

int waits_thread(void)
{
    static _Thread_local int thread;
    if (!thread)
        thread = (int)syscall(SYS_gettid);
    return thread;
}

void waits_busy(struct engine *e, int change)
{
    atomic_fetch_add_explicit(&e->waits.busy, change, memory_order_seq_cst);
}

/* ---- one look ---- */

struct look {
    struct buf waits, groups; /* of the frame */
    uint32_t nwaits, ngroups;
    struct buf posted, traffic; /* of the group at hand, like the next two */
    uint32_t nposted, ntraffic;
    bool waited_in, lost;
    struct buf proof;
    int *standing; /* threads that are known to stand in a call */
    size_t nstanding;
    bool failed; /* out of memory */
};

struct waiter {
    int thread;
    uint64_t number, timeout_ns;
};

static void stands(struct look *l, int thread)
{
    int *grown = realloc(l->standing, (l->nstanding + 1) * sizeof *grown);
    l->failed = l->failed || !grown;
    if (!grown)
        return;
    l->standing = grown;
    l->standing[l->nstanding++] = thread;
}

static uint32_t world_rank(const struct collrun_group *g, const struct collrun_call *call)
{
    bool named = call->kind == COLLRUN_SEND || call->kind == COLLRUN_RECV;
    return named && call->peer >= 0 && (uint32_t)call->peer < g->nranks
               ? g->members.items[call->peer]
               : WIRE_HOST;
}

/* May this send end although its receiver never calls? */
static bool is_eager(const struct collrun_group *g, const struct collrun_call *call)
{
    uint64_t limit = 0;
    for (uint32_t i = 0; i < g->nsides; i++) {
        uint64_t own = g->sides[i].backend->table.eager_limit;
        own = own ? own : EAGER_LIMIT;
        limit = own > limit ? own : limit;
    }
    return call->kind == COLLRUN_SEND && call->count * dtype_size(call->dtype) <= limit;
}

static void tell_wait(struct look *l, const struct collrun_group *g, const struct waiter *w,
                      const struct collrun_call *call)
{
    buf_put_u32(&l->waits, (uint32_t)w->thread);
    buf_put_str(&l->waits, g->rendezvous.scope);
    buf_put_u64(&l->waits, w->number);
    buf_put_u64(&l->waits, w->timeout_ns);
    buf_put_u8(&l->waits, (uint8_t)call->kind);
    buf_put_u8(&l->waits, (uint8_t)call->dtype);
    buf_put_u8(&l->waits, (uint8_t)call->op);
    buf_put_u8(&l->waits, is_eager(g, call));
    buf_put_u64(&l->waits, call->count);
    buf_put_u32(&l->waits, world_rank(g, call));
    buf_put_u32(&l->waits, call->tag);
    l->nwaits++;
    l->waited_in = true;
}

static void tell_posted(struct look *l, const struct collrun_group *g,
                        const struct collrun_call *call)
{
    if (call->kind < COLLRUN_SEND)
        return;
    buf_put_u8(&l->posted, (uint8_t)call->kind);
    buf_put_u32(&l->posted, world_rank(g, call));
    buf_put_u32(&l->posted, call->tag);
    l->nposted++;
}

static struct collrun_call noted_call(const struct wait_call *c)
{
    uint32_t sort = atomic_load_explicit(&c->sort, memory_order_relaxed);
    return (struct collrun_call){.kind = (enum collrun_kind)(sort & 0xff),
                                 .dtype = (enum collrun_dtype)(sort >> 8 & 0xff),
                                 .op = (enum collrun_op)(sort >> 16 & 0xff),
                                 .tag = atomic_load_explicit(&c->tag, memory_order_relaxed),
                                 .peer = atomic_load_explicit(&c->peer, memory_order_relaxed),
                                 .count =
                                     (size_t)atomic_load_explicit(&c->count, memory_order_relaxed)};
}

/* Torn, it is thrown away: the proof then holds another number of turns than the next look's. */
static void look_at_note(struct look *l, const struct collrun_group *g)
{
    const struct wait_note *n = &g->note;
    uint64_t turns = atomic_load_explicit(&n->turns, memory_order_acquire);
    buf_put_u64(&l->proof, turns);
    if (!(turns & 1))
        return;
    struct waiter w = {.thread = atomic_load_explicit(&n->thread, memory_order_relaxed),
                       .number = atomic_load_explicit(&n->number, memory_order_relaxed),
                       .timeout_ns = atomic_load_explicit(&n->timeout_ns, memory_order_relaxed)};
    uint32_t ncalls = atomic_load_explicit(&n->ncalls, memory_order_relaxed);
    stands(l, w.thread);
    for (uint32_t i = 0; i < ncalls && i < WAITS_CALLS; i++) {
        struct collrun_call call = noted_call(&n->calls[i]);
        tell_wait(l, g, &w, &call);
        tell_posted(l, g, &call);
    }
}

static void look_at_lane(struct look *l, const struct collrun_group *g, struct lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    buf_put_u64(&l->proof, lane->waits);
    for (const struct lane_waiter *p = lane->waiting; p; p = p->next) {
        const struct collrun_request *r = p->request;
        struct waiter w = {
            .thread = p->thread, .number = r->number, .timeout_ns = r->calls[0].timeout_ns};
        stands(l, p->thread);
        for (uint32_t i = 0; i < r->ncalls; i++)
            tell_wait(l, g, &w, &r->calls[i]);
    }
    for (const struct collrun_request *r = lane->unfinished; r; r = r->later)
        for (uint32_t i = 0; i < r->ncalls; i++)
            tell_posted(l, g, &r->calls[i]);
    pthread_mutex_unlock(&lane->lock);
}

static void tell_lane_traffic(struct look *l, const struct collrun_group *g, struct lane *lane)
{
    struct traffic_table *table = atomic_load_explicit(&lane->traffic.table, memory_order_acquire);
    for (uint32_t i = 0; table && i < table->size; i++) {
        const struct traffic_entry *e = &table->entries[i];
        if (!e->key || traffic_member(e) >= g->nranks)
            continue;
        buf_put_u32(&l->traffic, g->members.items[traffic_member(e)]);
        buf_put_u32(&l->traffic, traffic_tag(e));
        buf_put_u64(&l->traffic, atomic_load_explicit(&e->sent, memory_order_acquire));
        buf_put_u64(&l->traffic, atomic_load_explicit(&e->received, memory_order_acquire));
        l->ntraffic++;
    }
    l->lost = l->lost || atomic_load_explicit(&lane->traffic.lost, memory_order_acquire);
}

/* What is posted first, then what is done: a message that ends in between is told twice, not left
 * out. */
static void look_at_group(struct look *l, struct collrun_group *g)
{
    buf_clear(&l->posted);
    buf_clear(&l->traffic);
    l->nposted = l->ntraffic = 0;
    l->waited_in = l->lost = false;
    look_at_note(l, g);
    for (uint32_t i = 0; i < g->nsides; i++)
        for (uint32_t k = 0; k < g->sides[i].nlanes; k++)
            look_at_lane(l, g, &g->sides[i].lanes[k]);
    for (uint32_t i = 0; i < g->nsides; i++)
        tell_lane_traffic(l, g, g->sides[i].lane[GROUP_MESSAGES]);
    buf_put_str(&l->groups, g->rendezvous.scope);
    buf_put_str(&l->groups, g->name);
    buf_put_u64(&l->groups,
                atomic_load_explicit(&g->numbers[GROUP_COLLECTIVES], memory_order_relaxed));
    uint32_t nmembers = l->waited_in ? g->nranks : 0;
    buf_put_u32(&l->groups, nmembers);
    for (uint32_t i = 0; i < nmembers; i++)
        buf_put_u32(&l->groups, g->members.items[i]);
    buf_put_u32(&l->groups, l->nposted);
    buf_put(&l->groups, l->posted.data, l->posted.len);
    buf_put_u8(&l->groups, l->lost);
    buf_put_u32(&l->groups, l->ntraffic);
    buf_put(&l->groups, l->traffic.data, l->traffic.len);
    l->ngroups++;
}

static void look_at_groups(struct look *l, struct engine *e)
{
    pthread_mutex_lock(&e->groups_lock);
    for (struct collrun_group *g = e->groups; g; g = g->next)
        look_at_group(l, g);
    pthread_mutex_unlock(&e->groups_lock);
}

/* ---- telling ---- */

static bool is_standing(void *ctx, int thread)
{
    const struct look *l = ctx;
    for (size_t i = 0; i < l->nstanding; i++) {
        if (l->standing[i] == thread)
            return true;
    }
    return false;
}

static bool tasks_run(struct engine *e)
{
    bool all = control_has(&e->control, CONTROL_GO) &&
               !control_has(&e->control, CONTROL_ABORT | CONTROL_FINISH);
    for (uint32_t i = 0; all && i < e->ntasks; i++)
        all = task_has(&e->tasks[i], TASK_RUNNING);
    return all;
}

/* They are asked to stop when all others are done, and thrown out of what they wait in. */
static bool background_goes_on(struct engine *e)
{
    bool any = false;
    for (uint32_t i = 0; i < e->ntasks; i++)
        any = any || (e->tasks[i].desc->background && !task_has(&e->tasks[i], TASK_ENDED));
    return any;
}

static void send(struct engine *e, const struct look *l, bool sure)
{
    size_t mark;
    struct buf *out = control_begin(&e->control, WIRE_WAITS, &mark);
    buf_put_u8(out, sure);
    buf_put_u32(out, l->nwaits);
    buf_put(out, l->waits.data, l->waits.len);
    buf_put_u32(out, l->ngroups);
    buf_put(out, l->groups.data, l->groups.len);
    control_end(&e->control, mark);
}

static uint64_t hash(uint64_t h, const struct buf *b)
{
    for (size_t i = 0; i < b->len; i++)
        h = (h ^ b->data[i]) * 1099511628211u;
    return h;
}

static bool is_whole(const struct look *l)
{
    return !l->failed && !l->waits.failed && !l->groups.failed && !l->posted.failed &&
           !l->traffic.failed && !l->proof.failed;
}

/* Tells what the last look found, too, unless that is known. */
static void weigh(struct engine *e, struct look *l)
{
    struct waits *w = &e->waits;
    uint64_t words = hash(hash(HASH_START, &l->waits), &l->groups);
    if (words == w->told && w->told_sure)
        return;
    bool sure = atomic_load(&w->busy) == 0 && !background_goes_on(e) &&
                threads_stand(is_standing, l, &l->proof);
    uint64_t seen = is_whole(l) && (sure || l->nwaits) ? hash(words + sure, &l->proof) : 0;
    if (seen && seen == w->seen && (words != w->told || sure)) {
        w->told = words;
        w->told_sure = sure;
        send(e, l, sure);
    }
    w->seen = seen;
}

void waits_look(struct engine *e)
{
    struct look l = {0};
    struct buf *bufs[] = {&l.waits, &l.groups, &l.posted, &l.traffic, &l.proof};
    if (!tasks_run(e))
        return;
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_init(bufs[i]);
    look_at_groups(&l, e);
    weigh(e, &l);
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_fini(bufs[i]);
    free(l.standing);
}
