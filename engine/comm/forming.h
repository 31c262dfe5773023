/* SPDX-License-Identifier: Apache-2.0
 *
 * Formations of groups in which threads of this rank wait for the other members, as FORMING frames,
 * for the report of a stall: a member that does not call the create or the split is named there.
 *
 * - A thread lists the formation on its stack while it waits.
 * - The service thread sends a frame for each that takes longer than FORMING_REPORT_NS, and another
 *   one when it has ended.
 */
#ifndef ENGINE_COMM_FORMING_H
#define ENGINE_COMM_FORMING_H

#include "base/desc.h"

#define FORMING_REPORT_NS 300000000ull

struct engine;

struct forming {
    struct forming *next;
    bool split;       /* of the group with this name; else the group that is created */
    const char *name; /* borrowed, like the members */
    const struct desc_ranks *members; /* world ranks */
    uint64_t since_ns;
    bool sent;
};

/* `f` is listed until forming_end. No wait report is certain in between. */
void forming_begin(struct engine *e, struct forming *f, bool split, const char *name,
                   const struct desc_ranks *members);
void forming_end(struct engine *e, struct forming *f);
/* Called by the service thread at every tick. */
void forming_update(struct engine *e);

#endif
