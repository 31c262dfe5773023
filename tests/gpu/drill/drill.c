/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload for what GPUs add to the API: order by streams, several GPUs per process, messages
 * between GPUs, memory of the group, buffers on a GPU on backends for host memory, groups with a
 * backend for each sort of memory, and failures in the middle of it. `case` names one drill; a rank
 * prints "FAIL ..." for what is wrong and "drill: CASE done" at its end.
 */
#include "drill.h"

static const struct {
    const char *name;
    void (*run)(struct drill *d);
} drills[] = {
    {"streams", drill_streams},   {"devices", drill_devices},   {"messages", drill_messages},
    {"memory", drill_memory},     {"cross", drill_cross},       {"deadlock", drill_deadlock},
    {"unmet", drill_unmet},       {"overtake", drill_overtake}, {"walk", drill_walk},
    {"groups", drill_groups},     {"threads", drill_threads},   {"inverse", drill_inverse},
    {"chains", drill_chains},     {"forming", drill_forming},   {"staged", drill_staged},
    {"mixed", drill_mixed},       {"late", drill_late},         {"peer", drill_peer},
    {"mismatch", drill_mismatch}, {"fault", drill_fault},       {"self", drill_self}};

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    const char *name = collrun_param_string(ctx, "case");
    struct drill d = {.ctx = ctx};
    if (cuda_load() != 0)
        return collrun_fail(ctx, "libcudart.so.13 (or .12) does not load");
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "group"), &d.g);
    if (rc != COLLRUN_OK)
        return rc;
    d.rank = collrun_rank(d.g);
    d.size = collrun_size(d.g);
    d.devices = collrun_devices(d.g);
    d.places = d.size * (d.devices ? d.devices : 1);
    for (size_t i = 0; i < sizeof drills / sizeof *drills; i++)
        if (strcmp(drills[i].name, name) == 0) {
            drills[i].run(&d);
            printf("drill: %s done\n", name);
            fflush(stdout);
            return d.failures ? 1 : 0;
        }
    return collrun_fail(ctx, "no drill \"%s\"", name);
}

static const struct collrun_param params[] = {
    {.name = "case", .type = COLLRUN_PARAM_STRING, .help = "which drill"},
    {.name = "group", .type = COLLRUN_PARAM_STRING, .def = "world", .help = "on which group"},
    {0},
};

COLLRUN_WORKLOAD(.name = "drill", .summary = "what GPUs add to the API", .params = params,
                 .run = run);
