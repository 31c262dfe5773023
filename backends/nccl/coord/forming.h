/* SPDX-License-Identifier: Apache-2.0
 *
 * struct coord_forming: how the coordinator has the ranks form communicators, and close them. It
 * does no I/O; frame.h has the protocol.
 */
#ifndef NCCL_COORD_FORMING_H
#define NCCL_COORD_FORMING_H

#include "frame.h"

#include <stdbool.h>

struct coord_formation { /* what a rank has wanted: a handle, or a direction */
    struct coord_formation *next;
    struct coord_want what;
    bool active, over;
    uint32_t nreplies; /* to the step that its ranks are at */
    uint32_t turn;     /* the rank that was sent LOCK last */
};

struct coord_forming {
    uint32_t nranks, ndevs; /* ndevs: GPUs per rank */
    uint32_t leaver;        /* the first rank that has gone; nranks: none */
    struct coord_formation *first, **end;
    struct coord_forming_rank {
        uint32_t world_rank; /* UINT32_MAX: has not joined */
        bool left;           /* it takes no part any more */
        bool busy;           /* it takes part in a formation that is active */
        bool claimed;        /* while the next ones are chosen: busy, or an earlier one needs it */
        bool ready;          /* to close */
    } * ranks;
    struct coord_closing {
        bool active;       /* the ranks were sent LOCK */
        bool over;         /* the ranks close */
        uint32_t nreplies; /* to LOCK */
    } closing;
    void (*send)(void *ctx, uint32_t rank, const struct coord_form *form);
    void *ctx;
};

/* False: out of memory. */
bool coord_forming_init(struct coord_forming *f, uint32_t nranks, uint32_t ndevs,
                        void (*send)(void *ctx, uint32_t rank, const struct coord_form *form),
                        void *ctx);
void coord_forming_fini(struct coord_forming *f);
/* False if the rank has joined before. */
bool coord_forming_join(struct coord_forming *f, uint32_t rank, uint32_t world_rank);
/* What needs the rank, is wanted and not formed can no longer be formed. */
void coord_forming_leave(struct coord_forming *f, uint32_t rank);
/* All ranks have closed the group: no rank can want anything any more. */
void coord_forming_all_closed(const struct coord_forming *f);
/* All that it is for has been done. */
static inline bool coord_forming_is_over(const struct coord_forming *f)
{
    return f->closing.over;
}
/* False: out of memory. */
bool coord_forming_want(struct coord_forming *f, const struct coord_want *what);
/* False if the frame is malformed. */
bool coord_forming_on_frame(struct coord_forming *f, uint32_t rank, const struct coord_form *form);

#endif
