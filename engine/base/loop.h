/* SPDX-License-Identifier: Apache-2.0
 *
 * A small epoll loop: descriptors with callbacks, and timers on one deadline list. One thread;
 * callbacks may add and remove anything, also themselves. Used by runner and agent; the engine's
 * service thread polls one descriptor and needs none of it.
 */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H

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

struct loop *loop_new(void); /* NULL: errno says why */
void loop_free(struct loop *l);
int loop_watch(struct loop *l, struct loop_fd *w, int fd, uint32_t events); /* 0, or -errno */
void loop_change(struct loop *l, struct loop_fd *w, uint32_t events);
void loop_unwatch(struct loop *l, struct loop_fd *w);
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t after_ns);
void loop_timer_clear(struct loop *l, struct loop_timer *t);
void loop_stop(struct loop *l);
void loop_run(struct loop *l); /* until loop_stop */

uint64_t now_ns(void); /* CLOCK_MONOTONIC */

#endif
