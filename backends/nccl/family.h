/* SPDX-License-Identifier: Apache-2.0
 *
 * struct family: groups whose communicators for collectives share resources. The option `share` of
 * a group names its parent, from whose communicators its own are split (share.h).
 */
#ifndef NCCL_FAMILY_H
#define NCCL_FAMILY_H

#include "nccl_api.h"

#include <collrun/backend.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct context;
struct nccl_group;
struct op;

/* Of a group's handle for collectives. Under context.family_lock, and set before the first
 * operation.
 */
struct family {
    struct nccl_group *root;   /* that all of the family stem from; NULL: it shares with none */
    struct nccl_group *parent; /* NULL: it is the root */
    struct nccl_group *newest; /* of the root: all members, those formed last first, */
    struct nccl_group *older;  /* linked by this */
    unsigned open;             /* of the root: members that the program has not closed */
    ncclComm_t *made;          /* where NCCL puts what is split; family_slots */
    /* Of the root: held from the decision to launch a collective to its launch. */
    pthread_mutex_t launch_lock;
};

/* Of one split: NCCL may write there until the parent is gone, so the context keeps it. */
struct family_slots {
    struct family_slots *next;
    ncclComm_t comms[];
};

/* Gives the group a place for what is split. False: out of memory. */
bool family_make_slots(struct nccl_group *g);
/* Enters the family of the parent. */
void family_enter(struct nccl_group *g, struct nccl_group *parent);
/* The program closes the group. False: others of its family are open, and the last one of them
 * closes it. Else `newest` and `older` list what is to be closed, in that order. */
bool family_close(struct nccl_group *g);
/* It is about to be freed: no other one of the family uses it any more. */
void family_leave(struct nccl_group *g);
/* The first of a list that family_close has made, and the next one; NULL: the end. */
struct nccl_group *family_first(struct nccl_group *g);
struct nccl_group *family_next(const struct nccl_group *g);
/* The group whose coordinator counts the collectives of the family: the root, or the group. */
struct nccl_group *family_counter(struct nccl_group *g);
/* Several handles of a family launch, each in its own thread: what is decided first has to be
 * launched first. Without a family there is nothing to lock. */
void family_lock_launch(struct nccl_group *g);
void family_unlock_launch(struct nccl_group *g);
/* Writes what a collective that timed out has to do with its family; "" without one. */
void family_timeout_text(const struct op *op, char *out, size_t len);
void family_free_slots(struct context *context);

#endif
