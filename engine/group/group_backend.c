/* SPDX-License-Identifier: Apache-2.0 */
#include "group/group_backend.h"

#include "core/backend.h"
#include "core/process.h"

#include <string.h>

static bool group_share_a_host(const struct process *p, const struct desc_ranks *members)
{
    for (uint32_t i = 1; i < members->n; i++) {
        if (p->desc.ranks[members->items[i]].host != p->desc.ranks[members->items[0]].host)
            return false;
    }
    return true;
}

static int group_backend_merit(uint64_t flags)
{
    return flags & COLLRUN_BACKEND_NEEDS_DEVICE ? 2 : flags & COLLRUN_BACKEND_ONE_HOST ? 1 : 0;
}

/* Chooses among the backends of the job by their flags. All ranks read the same job and make the
 * same choice. On one host, a backend for one host is preferred. Only the chosen one is opened: the
 * others may be for other ranks, and not work here. */
static int group_choose_backend(struct process *p, const struct desc_ranks *members,
                                struct backend **out, struct diag *d)
{
    bool one_host = group_share_a_host(p, members);
    struct backend *best = NULL;
    for (uint32_t i = 0; i < p->desc.nbackends; i++) {
        struct backend *b;
        if (p->desc.backends[i].unused)
            continue;
        int rc = registry_load(p, p->desc.backends[i].name, &b, d);
        if (rc != COLLRUN_OK)
            return rc;
        uint64_t flags = b->table.flags;
        bool fits = (!(flags & COLLRUN_BACKEND_NEEDS_DEVICE) || memory_kinds_owned_by(p, b)) &&
                    (one_host || !(flags & COLLRUN_BACKEND_ONE_HOST));
        if (fits && (!best || group_backend_merit(flags) > group_backend_merit(best->table.flags)))
            best = b;
    }
    if (!best)
        return diag_set(d, COLLRUN_ERR_UNAVAILABLE,
                        "no backend of this job suits these ranks; name one");
    return registry_get(p, best->name, out, d);
}

static int group_check_fits(struct process *p, const struct backend *b,
                            const struct desc_ranks *members, struct diag *d)
{
    if ((b->table.flags & COLLRUN_BACKEND_ONE_HOST) && !group_share_a_host(p, members))
        return diag_set(
            d, COLLRUN_ERR_UNSUPPORTED,
            "backend \"%s\" supports one host only, but these ranks are on several hosts", b->name);
    if (b->table.flags & COLLRUN_BACKEND_NEEDS_DEVICE && !memory_kinds_owned_by(p, b))
        return diag_set(d, COLLRUN_ERR_UNSUPPORTED,
                        "backend \"%s\" needs %ss, but this rank has none", b->name,
                        b->kind.title ? b->kind.title : "device");
    return COLLRUN_OK;
}

int group_find_backend(struct process *p, const char *name, const struct desc_ranks *members,
                       struct backend **out, struct diag *d)
{
    if (!name || strcmp(name, "auto") == 0)
        return group_choose_backend(p, members, out, d);
    int rc = registry_get(p, name, out, d);
    return rc == COLLRUN_OK ? group_check_fits(p, *out, members, d) : rc;
}
