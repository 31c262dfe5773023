/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits of this rank for the other members of a group that are no operations (a create, split or
 * shrink, collrun_finalize), as FORMING frames, for the report of a stall and the verdict at a time
 * limit: a member that does not make the call is named there.
 *
 * - A thread lists the wait on its stack.
 * - The service thread sends a frame for each that takes longer than FORMING_REPORT_NS, and another
 *   one when it has ended.
 * - Wait reports (wait_report.h) list those with a number from then on. No report is certain while
 *   there is another one, unless it is collrun_finalize: a rank that calls no more is certain to.
 */
#ifndef ENGINE_GROUP_FORMING_H
#define ENGINE_GROUP_FORMING_H

#include "base/desc.h"
#include "base/wire.h"

#define FORMING_REPORT_NS 300000000ull

struct collrun_group;
struct engine;

struct forming {
    struct forming *next;
    enum wire_forming kind;
    const char *name;                 /* of the group; borrowed, like the members */
    const struct desc_ranks *members; /* world ranks */
    /* Of a create: how often these members have created a group of this name, with this one
     * (generation.h), or one without a name. Of a split: how often `parent` was split. 0: it is not
     * counted. All members count alike, so one that has counted less has not made this call. */
    uint64_t number;
    uint64_t id; /* of a create: generation_id */
    const struct collrun_group *parent;
    int thread;
    uint64_t since_ns;
    bool sent;
};

/* The caller fills in what comes before `thread`. `f` is listed until forming_end. */
void forming_begin(struct engine *e, struct forming *f);
void forming_end(struct engine *e, struct forming *f);
/* Called by the service thread at every tick. */
void forming_update(struct engine *e);

#endif
