/* SPDX-License-Identifier: Apache-2.0
 *
 * struct coord_forming: how the coordinator has the ranks form the communicators of a handle. It
 * does no I/O; frame.h has the protocol.
 */
#ifndef NCCL_COORD_FORMING_H
#define NCCL_COORD_FORMING_H

#include "frame.h"

#include <stdbool.h>

struct coord_forming {
    uint32_t nranks;
    uint32_t joined;      /* ranks that take part */
    bool left;            /* one of them has gone */
    uint32_t leaver;      /* if so */
    uint32_t *world_rank; /* by rank; UINT32_MAX: has not joined */
    bool wanted[COORD_HANDLES], over[COORD_HANDLES];
    enum coord_handle active; /* COORD_HANDLES: none */
    uint32_t nreplies;        /* to the step that the ranks are at */
    uint32_t turn;            /* the rank that was sent LOCK last */
    void (*send)(void *ctx, uint32_t rank, const struct coord_form *form);
    void *ctx;
};

/* False: out of memory. */
bool coord_forming_init(struct coord_forming *f, uint32_t nranks,
                        void (*send)(void *ctx, uint32_t rank, const struct coord_form *form),
                        void *ctx);
void coord_forming_fini(struct coord_forming *f);
/* False if the rank has joined before. */
bool coord_forming_join(struct coord_forming *f, uint32_t rank, uint32_t world_rank);
/* What is wanted and not formed can no longer be formed. */
void coord_forming_leave(struct coord_forming *f, uint32_t rank);
void coord_forming_want(struct coord_forming *f, enum coord_handle handle);
/* False if the frame is malformed. */
bool coord_forming_on_frame(struct coord_forming *f, uint32_t rank, const struct coord_form *form);

#endif
