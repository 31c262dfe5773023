/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions about a description.
 */
#include "base/desc.h"

#include <string.h>

int desc_ranks_find(const struct desc_ranks *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < ranks->n; i++) {
        if (ranks->items[i] == rank)
            return (int)i;
    }
    return -1;
}

/* ---- devices ---- */

uint32_t desc_rank_devices(const struct desc_rank *rank, uint32_t kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < rank->ndevices; i++)
        n += rank->devices[i].kind == kind;
    return n;
}

uint32_t desc_group_devices(const struct desc_group *group, uint32_t kind)
{
    for (uint32_t i = 0; i < group->ndevices; i++)
        if (group->devices[i].kind == kind)
            return group->devices[i].count;
    return 0;
}

bool desc_group_is_used(const struct desc *desc, uint32_t group)
{
    for (uint32_t i = 0; i < desc->nworkloads; i++)
        for (uint32_t k = 0; k < desc->workloads[i].ngroups; k++)
            if (desc->workloads[i].groups[k] == group)
                return true;
    return false;
}

/* ---- parameters ---- */

static bool desc_has_rank(const struct desc_ranks *ranks, uint32_t rank)
{
    for (uint32_t i = 0; i < ranks->n; i++)
        if (ranks->items[i] == rank)
            return true;
    return false;
}

uint32_t desc_find_command(const struct desc *desc, uint32_t rank)
{
    uint32_t i = 0;
    while (i < desc->nworkloads &&
           (!desc->workloads[i].command.n || !desc_has_rank(&desc->workloads[i].ranks, rank)))
        i++;
    return i;
}

static const struct desc_kv *desc_find_kv(const struct desc_kvs *kvs, const char *name)
{
    for (uint32_t i = 0; i < kvs->n; i++)
        if (strcmp(kvs->items[i].key, name) == 0)
            return &kvs->items[i];
    return NULL;
}

const struct desc_group *desc_find_group(const struct desc *desc, const char *name)
{
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        if (strcmp(desc->groups[i].name, name) == 0)
            return &desc->groups[i];
    }
    return NULL;
}

const struct desc_group *desc_find_own_group(const struct desc *desc, const char *name,
                                             uint32_t rank)
{
    const struct desc_group *group = desc_find_group(desc, name);
    const size_t len = strlen(name);
    for (uint32_t i = 0; !group && i < desc->ngroups; i++) {
        const struct desc_group *part = &desc->groups[i];
        if (strncmp(part->name, name, len) == 0 && part->name[len] == '/' &&
            desc_ranks_find(&part->ranks, rank) >= 0)
            group = part;
    }
    return group;
}

const struct desc_role *desc_find_role(const struct desc *desc, uint32_t rank)
{
    for (uint32_t i = 0; i < desc->nroles; i++)
        if (rank >= desc->roles[i].first && rank - desc->roles[i].first < desc->roles[i].n)
            return &desc->roles[i];
    return NULL;
}

const struct desc_kv *desc_find_param(const struct desc_workload *w, uint32_t rank,
                                      const char *name)
{
    const struct desc_kv *found = desc_find_kv(&w->params, name);
    for (uint32_t i = 0; i < w->noverrides; i++) {
        const struct desc_kv *own = desc_find_kv(&w->overrides[i].params, name);
        if (own && desc_has_rank(&w->overrides[i].ranks, rank))
            found = own;
    }
    return found;
}
