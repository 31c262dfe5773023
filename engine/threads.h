/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of this process, from outside: which are the engine's own, and whether all others
 * stand still. Own threads, and those that backends make, carry names that begin with "collrun/": a
 * thread inherits the name of its maker, who bears one meanwhile.
 */
#ifndef ENGINE_THREADS_H
#define ENGINE_THREADS_H

#include "base/buf.h"

/* Names this thread "collrun/NAME". */
void thread_name(const char *name);

/* Threads that come to be between the two get such a name. The name of the main thread, which is
 * that of the process to everybody outside, stays: what it makes is named afterwards, which is
 * exact as long as no workload runs. */
struct adoption {
    char name[16], own[16]; /* of the children; of this thread */
    int *there;             /* main thread: those that were there before */
    size_t nthere;
};
void adoption_begin(struct adoption *a, const char *name);
void adoption_end(struct adoption *a);

/* Whether no thread can do anything unless somebody lets it: the engine's own aside, each either is
 * known to stand, or sleeps on a futex without a time-out that no other process can wake, and so
 * waits for another thread of this one. What has to be the same at the next look, to know that it
 * did nothing in between, is added to `proof`. False also when /proc does not tell. */
bool threads_stand(bool (*known)(void *ctx, int thread), void *ctx, struct buf *proof);

#endif
