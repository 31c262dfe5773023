/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of this process, from outside: which are the engine's own, and whether all others
 * stand still. Own threads, and those that backends make, carry names that begin with "collrun/":
 * a thread inherits the name of its maker, who bears one meanwhile.
 */
#ifndef ENGINE_THREADS_H
#define ENGINE_THREADS_H

#include "base/buf.h"

struct thread_name {
    char text[16];
};
/* Names this thread "collrun/NAME", for good or until it is given back its name. */
void thread_name_set(const char *name, struct thread_name *before); /* `before` may be NULL */
void thread_name_restore(const struct thread_name *before);

/* Whether no thread can do anything unless somebody lets it: the engine's own aside, each either is
 * known to stand, or sleeps on a futex without a time-out that no other process can wake, and so
 * waits for another thread of this one. What has to be the same at the next look, to know that it
 * did nothing in between, is added to `proof`. False also when /proc does not tell. */
bool threads_stand(bool (*known)(void *ctx, int thread), void *ctx, struct buf *proof);

#endif
