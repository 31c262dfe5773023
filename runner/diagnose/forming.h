/* SPDX-License-Identifier: Apache-2.0
 *
 * The formations of groups that a rank waits in: the content of its FORMING frames.
 */
#ifndef RUNNER_DIAGNOSE_FORMING_H
#define RUNNER_DIAGNOSE_FORMING_H

#include "base/desc.h"
#include "base/wire.h"

struct forming_wait {
    bool split;                /* of the group with this name; else the group that is created */
    char name[64];             /* cut if it is longer */
    struct desc_ranks members; /* owned; world ranks */
    uint64_t since_ns;
};

struct rank_forming {
    struct forming_wait *items; /* owned */
    uint32_t n;
};

/* Adds or removes the formation of a FORMING frame that has just arrived. False: malformed, or out
 * of memory. */
bool rank_forming_read(struct rank_forming *f, const struct wire_frame *frame, uint64_t now_ns);
void rank_forming_fini(struct rank_forming *f); /* safe on a zeroed one */
/* The wait for the same formation; NULL: none. */
const struct forming_wait *rank_forming_find(const struct rank_forming *f,
                                             const struct forming_wait *like);

#endif
