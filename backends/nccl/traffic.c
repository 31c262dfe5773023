/* SPDX-License-Identifier: Apache-2.0
 *
 * What may go onto the GPUs now. Kernels start in the order in which they were launched, and one
 * that waits for the kernel before it on its communicator (it is stacked) keeps all later ones of
 * the GPU waiting with it. Collectives of one kernel are launched in the program's order, which is
 * the same on all ranks, so they may be stacked and do no harm to each other. Messages, launched
 * when both ends are there, and collectives of several kernels, launched one after the other, know
 * no such order: they are delicate. Hence two rules:
 *
 *   - Two ranks agree on a message only while nothing is stacked in either process. Both then
 *     launch it at once.
 *   - While there is anything delicate that has not ended, a collective is launched only onto an
 *     idle communicator. Then nothing is stacked, so whatever is launched starts at once.
 *
 * Threads have no common order either. A program is known to have but one when a number of
 * collectives have come from one thread, and nothing is stacked before.
 *
 * So messages always run when they have been agreed on, and in a program whose threads start
 * operations in one order everywhere the oldest one that has not ended is never in anyone's way.
 * Programs without messages see nothing of this. What hangs under these rules is a program whose
 * ranks wait for each other: one rank waits for a message before it comes to a collective, another
 * one has started two collectives of that group before the message. The GPU has to have room for a
 * kernel of every communicator.
 */
#include "group.h"

enum { FROM_ONE_THREAD = 64 };

void traffic_init(struct traffic *t)
{
    *t = (struct traffic){0};
    t->end = &t->first;
    pthread_mutex_init(&t->lock, NULL);
}

void traffic_fini(struct traffic *t)
{
    pthread_mutex_destroy(&t->lock);
}

static void take_out(struct traffic *t, struct flight *f)
{
    struct flight **link = &t->first;
    while (*link != f)
        link = &(*link)->next;
    *link = f->next;
    if (!f->next)
        t->end = link;
}

static void count_kernel(struct nccl_group *g, bool more)
{
    const bool before = g->unfinished > 1;
    g->unfinished += more ? 1 : 0;
    g->unfinished -= more ? 0 : 1;
    const bool now = g->unfinished > 1;
    g->home->traffic.stacked += (unsigned)now - (unsigned)before;
}

/* Whether a collective may be launched behind an unfinished one of its group. */
static bool may_stack(const struct traffic *t)
{
    return t->delicate == 0 && !t->threads && t->alone >= FROM_ONE_THREAD;
}

/* Of the calling thread; a pthread_t is used again after a thread has ended. */
static uint64_t thread_id(void)
{
    static _Atomic uint64_t threads;
    static _Thread_local uint64_t mine;
    if (!mine)
        mine = atomic_fetch_add(&threads, 1) + 1;
    return mine;
}

static void note_thread(struct traffic *t)
{
    const uint64_t me = thread_id();
    if (t->alone == 0)
        t->thread = me;
    if (t->thread != me)
        t->threads = true;
    t->alone += t->alone < FROM_ONE_THREAD;
}

static bool may_launch(const struct traffic *t, const struct flight *f)
{
    const struct nccl_group *g = f->group;
    return (f->place == g->launched_calls && g->unfinished == 0) ||
           (f->class == LIGHT && t->first == f && may_stack(t));
}

/* With the lock. */
static bool launch_if_may(struct traffic *t, struct flight *f)
{
    if (!may_launch(t, f))
        return false;
    take_out(t, f);
    f->group->launched_calls++;
    f->launched = true;
    count_kernel(f->group, true);
    return true;
}

bool traffic_enter(struct flight *f)
{
    struct traffic *t = &f->group->home->traffic;
    bool now = false;
    pthread_mutex_lock(&t->lock);
    t->delicate += f->class != LIGHT;
    if (f->class != MESSAGES) {
        note_thread(t);
        f->place = f->group->queued_calls++;
        f->next = NULL;
        *t->end = f;
        t->end = &f->next;
        now = launch_if_may(t, f);
    }
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

bool traffic_is_clear(struct traffic *t)
{
    pthread_mutex_lock(&t->lock);
    const bool clear = t->stacked == 0;
    pthread_mutex_unlock(&t->lock);
    return clear;
}

void traffic_leave(struct flight *f)
{
    struct traffic *t = &f->group->home->traffic;
    if (f->class == FREE)
        return;
    pthread_mutex_lock(&t->lock);
    t->delicate -= f->class != LIGHT;
    if (f->class != MESSAGES && f->launched)
        count_kernel(f->group, false);
    else if (f->class != MESSAGES)
        take_out(t, f);
    pthread_mutex_unlock(&t->lock);
}
