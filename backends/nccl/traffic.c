/* SPDX-License-Identifier: Apache-2.0
 *
 * What may go onto the GPUs now. Kernels of a GPU start in the order in which they were launched,
 * and one that cannot start yet keeps all later ones waiting with it, whatever group they are of.
 * So a kernel is launched only if it is certain to start, whatever this rank may do next. That is
 * so
 *
 *   - when its communicator is idle and it is not bound: its caller's stream does not wait for an
 *     unfinished collective of another group. Then it waits for the kernels before it to start;
 *   - when it is stacked, launched behind an unfinished one of its communicator, and all of the
 *     group's ranks have promised it. The promise is to launch a collective, and all before it, on
 *     no other condition than that those before it end. A rank has promises to keep in one group at
 *     a time, so it stacks in that one alone.
 *
 * Hence the oldest promised collective that has not ended is launched on all ranks, nothing before
 * it on any GPU is stacked, so it starts everywhere, and ends: what is stacked always does. A
 * promise is for speed only; what nobody else promises is launched when its communicator is idle.
 *
 * Messages are launched when both ends are there, neither is bound, and those before them have
 * ended. So operations of different groups, and messages, may be started in any order on any rank,
 * by any threads. The GPU has to have room for a kernel of every communicator.
 */
#include "group.h"

void traffic_init(struct traffic *t)
{
    *t = (struct traffic){0};
    t->end = &t->aloft;
    pthread_mutex_init(&t->lock, NULL);
}

void traffic_fini(struct traffic *t)
{
    pthread_mutex_destroy(&t->lock);
}

/* ---- what is on the GPUs; all with the lock ---- */

static void take_off(struct traffic *t, struct flight *f)
{
    *t->end = f;
    t->end = &f->next;
    f->launched = true;
    f->group->launched_calls++;
    f->group->unfinished++;
    f->group->heavy = f->class == HEAVY;
}

static void land(struct traffic *t, struct flight *f)
{
    struct nccl_group *g = f->group;
    struct flight **link = &t->aloft;
    while (*link != f)
        link = &(*link)->next;
    *link = f->next;
    if (!f->next)
        t->end = link;
    f->landed = true;
    g->unfinished--;
    g->heavy = false;
    g->awaited -= f->awaited;
    t->awaited -= f->awaited;
}

static bool has_passed(const struct flight *f)
{
    const struct nccl_group *g = f->group;
    if (!atomic_load_explicit(&f->marked, memory_order_acquire))
        return false;
    for (uint32_t i = 0; i < g->nports; i++)
        if (f->done[i] && g->home->lib.cuda.cudaEventQuery(f->done[i]->event) != cudaSuccess)
            return false;
    return true;
}

/* Whether what a stream holds now may wait for a collective on the GPUs; not counting those of `g`,
 * if any. Their owners may look late, so this does. */
static bool binds(struct traffic *t, const struct nccl_group *g)
{
    const unsigned own = g ? g->awaited : 0;
    struct flight *f = t->aloft, *next;
    for (; f && t->awaited != own; f = next) {
        next = f->next;
        if (f->awaited && f->group != g && has_passed(f))
            land(t, f);
    }
    return t->awaited != (g ? g->awaited : 0);
}

/* ---- collectives; all with the lock ---- */

static void promise(struct traffic *t, struct flight *f)
{
    struct nccl_group *g = f->group;
    const uint64_t next =
        g->promised_calls > g->launched_calls ? g->promised_calls : g->launched_calls;
    if (f->promised || f->bound || f->place != next || (t->promises && t->promised_to != g))
        return;
    f->promised = true;
    g->promised_calls = f->place + 1;
    t->promised_to = g;
    t->promises++;
}

static bool is_promised_by_all(const struct flight *f)
{
    return f->promised && f->place < f->group->tally.ready;
}

static bool launch_if_may(struct traffic *t, struct flight *f)
{
    const struct nccl_group *g = f->group;
    f->bound = f->bound && binds(t, g);
    if (f->place != g->launched_calls || g->unfinished || f->bound) {
        promise(t, f);
        if (f->place != g->launched_calls || g->heavy || f->class != LIGHT ||
            !is_promised_by_all(f))
            return false;
    }
    take_off(t, f);
    return true;
}

/* ---- the interface ---- */

bool traffic_enter(struct flight *f)
{
    struct nccl_group *g = f->group;
    struct traffic *t = &g->home->traffic;
    pthread_mutex_lock(&t->lock);
    f->place = g->queued_calls++;
    f->bound = t->awaited != g->awaited;
    const bool now = launch_if_may(t, f);
    pthread_mutex_unlock(&t->lock);
    return now;
}

bool traffic_turn(struct flight *f)
{
    struct traffic *t = &f->group->home->traffic;
    pthread_mutex_lock(&t->lock);
    const bool now = launch_if_may(t, f);
    pthread_mutex_unlock(&t->lock);
    return now;
}

void traffic_await(struct flight *f)
{
    struct traffic *t = &f->group->home->traffic;
    pthread_mutex_lock(&t->lock);
    if (!f->landed && !f->awaited) {
        f->awaited = true;
        f->group->awaited++;
        t->awaited++;
    }
    pthread_mutex_unlock(&t->lock);
}

bool traffic_binds(struct traffic *t)
{
    pthread_mutex_lock(&t->lock);
    const bool bound = binds(t, NULL);
    pthread_mutex_unlock(&t->lock);
    return bound;
}

void traffic_leave(struct flight *f)
{
    struct traffic *t = &f->group->home->traffic;
    if (f->class != LIGHT && f->class != HEAVY)
        return;
    pthread_mutex_lock(&t->lock);
    t->promises -= f->promised;
    if (f->launched && !f->landed)
        land(t, f);
    pthread_mutex_unlock(&t->lock);
}
