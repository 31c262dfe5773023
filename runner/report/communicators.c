/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts communicators: of each group that a workload may use, on the devices that it uses of its
 * members.
 */
#include "report/communicators.h"

#include <string.h>

static bool communicators_has_member(const struct desc_group *group, uint32_t rank)
{
    for (uint32_t i = 0; i < group->ranks.n; i++)
        if (group->ranks.items[i] == rank)
            return true;
    return false;
}

/* The value of an option of the group, which goes before that of its backend; "": it has none. */
static const char *communicators_option(const struct desc_group *group,
                                        const struct desc_backend *backend, const char *key)
{
    const struct desc_kvs *const sources[] = {&group->options, &backend->options};
    for (int s = 0; s < 2; s++)
        for (uint32_t i = 0; i < sources[s]->n; i++)
            if (strcmp(sources[s]->items[i].key, key) == 0)
                return sources[s]->items[i].value;
    return "";
}

/* Adds the communicators of one group on one of its backends. */
static void communicators_add(const struct desc_group *group, const struct desc_backend *backend,
                              uint32_t ndevices, struct communicators *out)
{
    bool alone = group->ranks.n * ndevices == 1; /* one handle, which is formed at once */
    uint32_t most = alone ? 1 : backend->communicators;
    bool later = backend->on_demand && !alone;
    const char *option = backend->direction_option;
    if (*option &&
        strcmp(communicators_option(group, backend, option), backend->direction_value) == 0)
        most += 2 * (group->ranks.n * ndevices - 1); /* to and from each other device */
    out->at_most += most;
    out->at_start += !later ? most : group->on_demand ? 0 : 1;
}

/* Whether the rank's device of that index is one of the group's, which a workload may use. */
static bool communicators_has_device(const struct desc *desc, uint32_t group, uint32_t rank,
                                     uint32_t kind, uint32_t device, uint32_t *ndevices)
{
    uint32_t wanted = desc_group_devices(&desc->groups[group], kind);
    *ndevices = wanted ? wanted : 1;
    return device < *ndevices && communicators_has_member(&desc->groups[group], rank) &&
           desc_group_is_used(desc, group);
}

struct communicators communicators_on(const struct desc *desc, uint32_t rank, uint32_t kind,
                                      uint32_t device)
{
    struct communicators n = {0};
    uint32_t ndevices;
    for (uint32_t i = 0; i < desc->ngroups; i++) {
        const struct desc_group *group = &desc->groups[i];
        if (!communicators_has_device(desc, i, rank, kind, device, &ndevices))
            continue;
        for (uint32_t k = 0; k <= group->nroutes; k++) {
            uint32_t backend = k ? group->routes[k - 1].backend : group->backend;
            if (strcmp(desc->backends[backend].device_kind, desc->kinds[kind].name) == 0)
                communicators_add(group, &desc->backends[backend], ndevices, &n);
        }
    }
    return n;
}
