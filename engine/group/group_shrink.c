/* SPDX-License-Identifier: Apache-2.0
 *
 * collrun_group_shrink: the members of a group that have not exited form a new one.
 *
 * 1. They agree on who is left (core/agreement.h).
 * 2. They form the group.
 * 3. They agree on whether all of them have it. If so, each of them returns it.
 * 4. If a member has exited meanwhile, they close what they have formed and begin again at 2 with
 *    those that are left. Each round has fewer members, so there is an end.
 * 5. If a member that is left could not form it, all of them fail.
 *
 * All members take the same decision, since each agreement gives all of them the same list.
 */
#include "base/loop.h"
#include "core/agreement.h"
#include "core/process.h"
#include "group/group_enter.h"
#include "group/group_make.h"
#include "group/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int shrink_agree(struct collrun_group *broken, int status, struct agreement *out)
{
    struct group_table *t = broken->table;
    struct diag d;
    uint32_t number;
    struct agreement_spec spec = {.name = broken->id.name,
                                  .members = &broken->id.members,
                                  .timeout_ns = t->process->desc.rendezvous_timeout_ns};
    diag_init(&d);
    int rc = generation_within(broken, GENERATION_OF_AGREEMENT, &number, &spec.generation);
    if (rc != COLLRUN_OK)
        return error_set(rc, "shrink %s: out of memory", broken->id.name);
    struct forming forming = {
        .kind = WIRE_FORMING_SHRINK, .name = broken->id.name, .members = &broken->id.members};
    forming_begin(t, &forming);
    rc = agreement_reach(&t->process->control, &spec, status, out, &d);
    forming_end(t, &forming);
    if (rc != COLLRUN_OK && control_has(&t->process->control, CONTROL_ABORT))
        rc = COLLRUN_ERR_ABORTED; /* not PEER_FAILED: another shrink would not help */
    return rc == COLLRUN_OK ? rc : error_set(rc, "shrink %s: %s", broken->id.name, d.text);
}

static int shrink_form(const struct collrun_group *broken, const char *name,
                       const struct agreement *left, struct collrun_group **out)
{
    const struct desc_ranks members = {.items = left->ranks, .n = left->n};
    const struct group_spec spec = group_spec_like(broken, name, &members);
    return group_make(broken->table, &spec, out);
}

/* The failure that all members return: that of this one, or of the first that has failed. */
static int shrink_failed(const struct collrun_group *broken, int own, const struct agreement *now)
{
    if (own != COLLRUN_OK)
        return own;
    for (uint32_t i = 0; i < now->n; i++) {
        if (now->statuses[i] != COLLRUN_OK)
            return error_set(now->statuses[i],
                             "shrink %s: rank %u could not form the new group: %s", broken->id.name,
                             now->ranks[i], collrun_strstatus(now->statuses[i]));
    }
    return COLLRUN_OK;
}

/* One round, with the members in *left; AGAIN: fewer are left now. */
static int shrink_round(struct collrun_group *broken, const char *name, struct agreement *left,
                        struct collrun_group **out)
{
    struct collrun_group *g = NULL;
    struct agreement now = {0};
    int formed = shrink_form(broken, name, left, &g);
    struct error_record reason = *error_get();
    int rc = shrink_agree(broken, formed, &now);
    if (rc == COLLRUN_OK && now.n < left->n) {
        rc = COLLRUN_AGAIN;
    } else if (rc == COLLRUN_OK) {
        if (formed != COLLRUN_OK)
            error_restore(&reason);
        rc = shrink_failed(broken, formed, &now);
    }
    if (rc == COLLRUN_OK)
        *out = g;
    else if (g)
        group_close(g);
    agreement_fini(left);
    *left = now;
    return rc;
}

int collrun_group_shrink(struct collrun_group *broken, const char *name, struct collrun_group **out)
{
    struct agreement left = {0};
    if (!broken || !out)
        return error_set(COLLRUN_ERR_INVALID, "collrun_group_shrink: the %s is NULL",
                         broken ? "output pointer for the group" : "group");
    int rc = group_enter(broken, "shrink");
    if (rc != COLLRUN_OK)
        return rc;
    rc = group_check_name(broken->table, "collrun_group_shrink", name);
    if (rc == COLLRUN_OK && name && *name && group_find(broken->table, name))
        rc = error_set(COLLRUN_ERR_EXISTS, "collrun_group_shrink: a group \"%s\" is already open",
                       name);
    if (rc == COLLRUN_OK) {
        threads_busy(&broken->process->busy, 1);
        rc = shrink_agree(broken, COLLRUN_OK, &left);
        while (rc == COLLRUN_OK && (rc = shrink_round(broken, name, &left, out)) == COLLRUN_AGAIN)
            rc = COLLRUN_OK;
        threads_busy(&broken->process->busy, -1);
        agreement_fini(&left);
    }
    group_leave(broken);
    return rc;
}
