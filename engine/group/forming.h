/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits of this rank for the other members of a group that are no operations (a create, split or
 * shrink, collrun_finalize), as FORMING frames, for the report of a stall and the verdict at a time
 * limit: a member that does not make the call is named there.
 *
 * - A thread lists the wait on its stack.
 * - The service thread sends a frame for each that takes longer than FORMING_REPORT_NS, and another
 *   one when it has ended.
 */
#ifndef ENGINE_GROUP_FORMING_H
#define ENGINE_GROUP_FORMING_H

#include "base/desc.h"
#include "base/wire.h"

#define FORMING_REPORT_NS 300000000ull

struct engine;

struct forming {
    struct forming *next;
    enum wire_forming kind;
    const char *name;                 /* of the group; borrowed, like the members */
    const struct desc_ranks *members; /* world ranks */
    uint64_t since_ns;
    bool sent;
};

/* `f` is listed until forming_end. No wait report is certain in between, but in collrun_finalize: a
 * rank that calls no more is certain to. */
void forming_begin(struct engine *e, struct forming *f, enum wire_forming kind, const char *name,
                   const struct desc_ranks *members);
void forming_end(struct engine *e, struct forming *f);
/* Called by the service thread at every tick. */
void forming_update(struct engine *e);

#endif
