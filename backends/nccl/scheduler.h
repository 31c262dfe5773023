/* SPDX-License-Identifier: Apache-2.0
 *
 * struct sched: decides when a collective may be launched, over all groups of the process.
 */
#ifndef NCCL_SCHEDULER_H
#define NCCL_SCHEDULER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct context;
struct nccl_group;
struct op;

enum sched_class {
    /* not scheduled: what forms a group, and messages */
    SCHED_NONE,
    /* a collective of one kernel */
    SCHED_ONE_KERNEL,
    /* a collective of several kernels, one after the other */
    SCHED_MULTI_KERNEL
};

struct sched {
    pthread_mutex_t lock;
    struct op *in_flight, **end; /* launched collectives, in the order of launch */
    unsigned stream_waits;       /* those of them that a stream of the program waits for */
    unsigned message_waits;      /* direct messages that one waits for, and that may not end */
    unsigned commitments;        /* collectives that are committed and have not ended, */
    const struct sched_queue *committed_queue; /* all of this queue */
};

struct sched_queue { /* the collectives of one group; under sched.lock */
    uint64_t submitted, launched, committed;
    uint64_t ready;                   /* committed by all ranks of the group */
    unsigned in_flight, stream_waits; /* stream_waits: those that a stream waits for */
    bool multi_kernel;                /* the last one in flight is of that class */
};

struct sched_op { /* one collective; under sched.lock */
    enum sched_class class;
    uint64_t seq;   /* its number in the group's queue */
    bool cross_dep; /* its callers' streams may wait for collectives of other queues */
    bool committed, launched, complete;
    bool stream_waits; /* a stream of the program waits for it */
    struct op *next;   /* in sched.in_flight */
};

void sched_init(struct sched *s);
void sched_fini(struct sched *s);
/* Enters a collective into its group's queue. Both: true if it has to be launched now. */
bool sched_submit(struct op *op);
bool sched_try_launch(struct op *op);
/* The number of collectives that the group has committed to; and the number that
 * all ranks have. */
uint64_t sched_committed(struct nccl_group *g);
void sched_set_ready(struct nccl_group *g, uint64_t ready);
/* A stream of the program is about to wait for the collective. */
void sched_pin(struct op *op);
/* The same for a direct message whose other end may not be launched; and it is, or it has ended. */
void sched_pin_message(struct context *context);
void sched_unpin_message(struct context *context);
/* The operation has ended, successfully or not. */
void sched_retire(struct op *op);
/* Whether what a stream holds now may wait for a collective in flight, or for a direct message
 * whose other end may not be launched. */
bool sched_has_dependents(struct context *context);

#endif
