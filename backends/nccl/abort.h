/* SPDX-License-Identifier: Apache-2.0
 *
 * struct aborter: the thread that stops communicators on the GPUs. group_abort may be called from
 * any thread and must not block, so it only queues the group here.
 */
#ifndef NCCL_ABORT_H
#define NCCL_ABORT_H

#include <pthread.h>
#include <stdbool.h>

struct context;
struct nccl_group;

struct abort_entry { /* one per group; under aborter.lock */
    bool queued;
    bool stopped; /* its communicators have been ordered to stop */
    struct nccl_group *next;
};

struct aborter {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
    struct nccl_group *queue;
};

void aborter_init(struct aborter *a);
void aborter_fini(struct aborter *a);
/* OK, or SYSTEM with its message stored. */
int aborter_start(struct context *context);
/* After this no group may be queued. */
void aborter_stop(struct context *context);
void aborter_queue(struct nccl_group *g); /* only the first call has an effect */
/* If the group is queued: waits until the aborter has finished with it. */
void aborter_await(struct nccl_group *g);

#endif
