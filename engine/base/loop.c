/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop. Timers are few, so they are in one sorted list. A callback may unwatch any descriptor
 * whose event is still to be delivered in this round: such events are dropped.
 */
#include "base/loop.h"

#include "base/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { ROUND = 64 };

struct loop {
    int epoll;
    bool stopped;
    struct loop_timer *timers; /* earliest first */
    struct epoll_event round[ROUND];
    int nround, at; /* events of this round, the one being delivered */
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t now_coarse_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

struct loop *loop_new(void)
{
    struct loop *l = memory_checked(calloc(1, sizeof *l));
    if (!l)
        return NULL;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0) {
        free(l);
        return NULL;
    }
    return l;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    close(l->epoll);
    free(l);
}

int loop_watch(struct loop *l, struct loop_fd *w, int fd, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = w};
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) < 0)
        return -errno;
    w->fd = fd;
    w->events = events;
    return 0;
}

void loop_change(struct loop *l, struct loop_fd *w, uint32_t events)
{
    if (w->fd < 0 || w->events == events)
        return;
    struct epoll_event e = {.events = events, .data.ptr = w};
    epoll_ctl(l->epoll, EPOLL_CTL_MOD, w->fd, &e);
    w->events = events;
}

void loop_unwatch(struct loop *l, struct loop_fd *w)
{
    if (w->fd < 0)
        return;
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    w->fd = -1;
    for (int i = l->at + 1; i < l->nround; i++) {
        if (l->round[i].data.ptr == w)
            l->round[i].data.ptr = NULL;
    }
}

void loop_timer_clear(struct loop *l, struct loop_timer *t)
{
    for (struct loop_timer **p = &l->timers; t->at_ns && *p; p = &(*p)->next) {
        if (*p == t) {
            *p = t->next;
            break;
        }
    }
    t->at_ns = 0;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ns)
{
    loop_timer_clear(l, t);
    t->at_ns = deadline_after(now_ns(), after_ns);
    struct loop_timer **p = &l->timers;
    while (*p && (*p)->at_ns <= t->at_ns)
        p = &(*p)->next;
    t->next = *p;
    *p = t;
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
}

/* Fires the timers that are due; returns milliseconds until the next one, -1 for none. */
static int loop_run_timers(struct loop *l)
{
    while (l->timers && !l->stopped) {
        uint64_t now = now_ns();
        struct loop_timer *t = l->timers;
        if (t->at_ns > now) {
            uint64_t ms = (t->at_ns - now + 999999) / 1000000;
            return ms > 3600000 ? 3600000 : (int)ms;
        }
        l->timers = t->next;
        t->at_ns = 0;
        t->fired(t);
    }
    return -1;
}

void loop_run(struct loop *l)
{
    l->stopped = false;
    while (!l->stopped) {
        int wait_ms = loop_run_timers(l);
        if (l->stopped)
            break;
        int n = epoll_wait(l->epoll, l->round, ROUND, wait_ms);
        if (n < 0 && errno != EINTR)
            break;
        l->nround = n > 0 ? n : 0;
        for (l->at = 0; l->at < l->nround && !l->stopped; l->at++) {
            struct loop_fd *w = l->round[l->at].data.ptr;
            if (w)
                w->ready(w, l->round[l->at].events);
        }
        l->nround = 0;
    }
}
