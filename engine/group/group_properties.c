/* SPDX-License-Identifier: Apache-2.0
 *
 * The getters of collrun.h for a group. What they return does not change while the group is open,
 * so any thread may call them at any time.
 */
#include "core/backend.h"
#include "group/group_enter.h"

int collrun_rank(const struct collrun_group *group)
{
    return group ? (int)group->rank : -1;
}

int collrun_size(const struct collrun_group *group)
{
    return group ? (int)group->nranks : -1;
}

int collrun_world_rank_of(const struct collrun_group *group, int rank)
{
    bool is_one = group && rank >= 0 && (uint32_t)rank < group->nranks;
    return is_one ? (int)group->id.members.items[rank] : -1;
}

const char *collrun_group_name(const struct collrun_group *group)
{
    return group ? group->id.name : "";
}

const char *collrun_group_backend(const struct collrun_group *group)
{
    return group ? group->id.backend_name : "";
}

uint64_t collrun_group_timeout(const struct collrun_group *group)
{
    return group ? group->timeout_ns : 0;
}

enum collrun_check collrun_group_check(const struct collrun_group *group)
{
    return group ? group->check : COLLRUN_CHECK_OFF;
}

int collrun_group_members(const struct collrun_group *group, int *ranks, int max)
{
    for (int i = 0; group && ranks && i < max && (uint32_t)i < group->nranks; i++)
        ranks[i] = (int)group->id.members.items[i];
    return collrun_size(group);
}

int collrun_group_rank_of(const struct collrun_group *group, int world_rank)
{
    return group && world_rank >= 0 ? desc_ranks_find(&group->id.members, (uint32_t)world_rank)
                                    : -1;
}

/* ---- devices ---- */

void *collrun_group_native(const struct collrun_group *group, const char *what, int device)
{
    void *found = NULL;
    if (!group || !what || device < 0 || group_is_closed(group))
        return NULL;
    for (uint32_t i = 0; !found && i < group->nbackends; i++) {
        const struct group_backend *gb = &group->backends[i];
        if (gb->backend->table.native_handle && (uint32_t)device < group_devices(gb))
            found = gb->backend->table.native_handle(gb->pq[GROUP_COLLECTIVES]->config.handle, what,
                                                     (uint32_t)device);
    }
    return found;
}

int collrun_devices(const struct collrun_group *group)
{
    return group ? (int)group_device_backend(group)->ndevices : 0;
}

int collrun_device(const struct collrun_group *group, int index)
{
    const struct group_backend *gb = group ? group_device_backend(group) : NULL;
    bool is_one = gb && index >= 0 && (uint32_t)index < gb->ndevices;
    return is_one ? gb->kind->numbers[index] : -1;
}

const char *collrun_memory_of(const struct collrun_group *group, const void *ptr, int *device)
{
    int index = -1;
    const struct memory_kind *kind = group ? memory_kind_of(&group->kinds, ptr, &index) : NULL;
    if (device)
        *device = index;
    return !group ? NULL : kind ? kind->name : "host";
}
