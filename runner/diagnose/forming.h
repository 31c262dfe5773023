/* SPDX-License-Identifier: Apache-2.0
 *
 * The waits of a rank for other members that are no operations, such as the creation of a group and
 * collrun_finalize: the content of its FORMING frames.
 */
#ifndef RUNNER_DIAGNOSE_FORMING_H
#define RUNNER_DIAGNOSE_FORMING_H

#include "base/desc.h"
#include "base/wire.h"

struct forming_wait {
    enum wire_forming kind;
    char name[64];             /* of the group; cut if it is longer */
    struct desc_ranks members; /* owned; world ranks */
    uint64_t since_ns;
};

struct rank_forming {
    struct forming_wait *items; /* owned */
    uint32_t n;
    struct forming_wait last; /* the one that ended last; without members: none has */
};

/* Adds or removes the formation of a FORMING frame that has just arrived. False: malformed, or out
 * of memory. */
bool rank_forming_read(struct rank_forming *f, const struct wire_frame *frame, uint64_t now_ns);
/* Adds a copy. */
void rank_forming_add(struct rank_forming *f, const struct forming_wait *w);
void rank_forming_fini(struct rank_forming *f); /* safe on a zeroed one */
/* "the split of group world", "collrun_finalize" */
const char *forming_text(enum wire_forming kind, const char *name, char *out, size_t size);
/* Same kind, name and members, in the same order. */
bool forming_is_same(const struct forming_wait *a, const struct forming_wait *b);
/* The wait for the same formation; NULL: none. */
const struct forming_wait *rank_forming_find(const struct rank_forming *f,
                                             const struct forming_wait *like);

#endif
