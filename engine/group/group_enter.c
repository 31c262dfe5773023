/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver of a group is the workload whose thread is inside.
 */
#include "group/group_enter.h"

#include "core/error.h"
#include "core/fork_guard.h"
#include "core/process.h"

#include <stdio.h>

const struct collrun_ctx group_unknown_thread, group_closed_driver;

static const char *group_driver_name(const struct collrun_ctx *driver, char *out, size_t size)
{
    if (!driver || driver == &group_unknown_thread)
        return "another thread";
    snprintf(out, size, "workload \"%s\"", driver->desc->name);
    return out;
}

int group_enter_rejected(struct collrun_group *g, const struct collrun_ctx *inside,
                         const char *what)
{
    char a[160], b[160], where[256];
    if (fork_guard_in_child)
        error_cause(COLLRUN_ERR_INVALID, "%s", fork_guard_reason());
    else if (inside == &group_closed_driver && atomic_load(&g->process->finalized))
        error_cause(COLLRUN_ERR_INVALID, "collrun_finalize has closed the group");
    else if (inside == &group_closed_driver)
        error_cause(COLLRUN_ERR_INVALID, "the group was destroyed");
    else
        error_cause(
            COLLRUN_ERR_INVALID,
            "%s calls while %s is inside; one thread at a time may use a group%s",
            group_driver_name(thread_context, a, sizeof a), group_driver_name(inside, b, sizeof b),
            g->backends[0].pq[GROUP_MESSAGES]->starts ? ", except to send and receive" : "");
    snprintf(where, sizeof where, "%s %s", what, g->id.name);
    return error_wrap(COLLRUN_ERR_INVALID, g->id.name, 0, where);
}
