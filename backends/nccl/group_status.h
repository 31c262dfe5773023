/* SPDX-License-Identifier: Apache-2.0
 *
 * struct group_status: whether a group has failed, and why. A failed group stays failed: the first
 * reason is kept, and every later call returns it.
 */
#ifndef NCCL_GROUP_STATUS_H
#define NCCL_GROUP_STATUS_H

#include "nccl_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct dev_comm;
struct nccl_group;

struct group_status {
    atomic_int code;      /* 0, or the status that every later call returns; released after */
    char text[512];       /* the error message, which is written once */
    pthread_mutex_t lock; /* of the writers, and of the group's services */
    /* The handle for messages has these. */
    atomic_uint
        failed_peer;    /* the rank that failed while communicators were formed, + 1; 0: none */
    atomic_bool closed; /* by the program */
};

/* Fails the group, with its parts or its whole, and has the aborter stop their communicators. Only
 * the first call has an effect. Does not block; any thread may call it. */
void nccl_group_fail(struct nccl_group *g, int status, const char *text);
/* Stores the error of the calling thread. Returns the status. */
int nccl_group_report(struct nccl_group *g, int status, const char *text);
/* The group's services end: what its threads report now is reported to the context's. */
void nccl_group_end_services(struct nccl_group *g);
/* The group's failure, stored as the error of the calling thread. Returns the status. */
int nccl_group_failure(struct nccl_group *g);

/* Fail the group with what NCCL or CUDA reports, and with the driver's reason if there is one;
 * `what` is the action that failed. The error message is also that of the calling thread. After
 * such an error the communicator cannot be used any more. */
int nccl_group_fail_nccl(struct nccl_group *g, ncclComm_t comm, ncclResult_t result,
                         const char *what);
int nccl_group_fail_cuda(struct nccl_group *g, const struct dev_comm *dev, cudaError_t error,
                         const char *what);
/* Fails the group because the connection to its coordinator is lost, with an errno; `task`:
 * "matches the messages". Returns the group's failure, as nccl_group_failure does. */
int nccl_group_fail_coordinator(struct nccl_group *g, int error, const char *task);
/* Another rank failed while the communicators of messages were formed. What the coordinator has
 * sent this rank before may tell the cause, a message that the two disagree about, so the thread
 * that takes the replies fails the group; in a closed one there is none, and this thread does. */
void nccl_group_note_failed_peer(struct nccl_group *part, uint32_t rank);
void nccl_group_fail_peer(struct nccl_group *g, uint32_t rank);
/* The program has closed the handle: a rank that has failed meanwhile fails it. */
void nccl_group_note_closed(struct nccl_group *g);
int nccl_group_out_of_memory(struct nccl_group *g); /* for the calling thread only */

/* While the group is being formed: OK, or why the job has failed meanwhile. Asks at most every
 * 20 ms. */
int nccl_group_check_job(struct nccl_group *g);

/* struct aborter: the thread that stops communicators on the GPUs. group_abort may be called from
 * any thread and must not block, so it only queues the group here. */

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
