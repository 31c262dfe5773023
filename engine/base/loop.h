/* SPDX-License-Identifier: Apache-2.0
 *
 * A small epoll loop: descriptors with callbacks, and timers in one sorted list. It runs in one
 * thread. Callbacks may add and remove descriptors and timers, also their own. Runner and agent use
 * it; the engine's service thread polls a single descriptor without it.
 */
#ifndef ENGINE_BASE_LOOP_H
#define ENGINE_BASE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct loop;

/* One watched descriptor, embedded in its owner, who keeps the descriptor open while it is watched.
 */
struct loop_fd {
    int fd;          /* -1 = not watched */
    uint32_t events; /* EPOLLIN | EPOLLOUT */
    void (*ready)(struct loop_fd *w, uint32_t events);
    void *owner;
};

/* One timer, embedded in its owner; fires once. */
struct loop_timer {
    uint64_t at_ns; /* CLOCK_MONOTONIC; 0 = not set */
    void (*fired)(struct loop_timer *t);
    void *owner;
    struct loop_timer *next;
};

struct loop *loop_new(void); /* NULL: see errno */
void loop_free(struct loop *l);
int loop_watch(struct loop *l, struct loop_fd *w, int fd, uint32_t events); /* 0, or -errno */
void loop_change(struct loop *l, struct loop_fd *w, uint32_t events);
void loop_unwatch(struct loop *l, struct loop_fd *w);
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ns);
void loop_timer_clear(struct loop *l, struct loop_timer *t);
void loop_stop(struct loop *l);
void loop_run(struct loop *l); /* until loop_stop */

uint64_t now_ns(void); /* CLOCK_MONOTONIC */
/* The same clock as of the kernel's last tick, at most 10 ms ago; a fifth of the cost. */
uint64_t now_coarse_ns(void);
/* `timeout_ns` after `now`; UINT64_MAX if that is past the end of the clock. */
static inline uint64_t deadline_after(uint64_t now, uint64_t timeout_ns)
{
    return timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
}

#endif
