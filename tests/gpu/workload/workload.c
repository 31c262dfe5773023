/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU workload. It tests what GPUs add to the API: order by streams, several GPUs per process,
 * messages between GPUs, memory of the group, buffers on a GPU on backends for host memory, groups
 * with a backend per kind of memory, and failures during operations. The parameter `case` selects
 * a case. A rank prints "FAIL ..." for each error, and "gpu_test: CASE done" at the end.
 */
#include "workload.h"

static const struct {
    const char *name;
    void (*run)(struct gpu_test *t);
} cases[] = {{"streams", gpu_streams},
             {"devices", gpu_devices},
             {"messages", gpu_messages},
             {"memory", gpu_memory},
             {"cross", gpu_cross},
             {"deadlock", gpu_deadlock},
             {"unmatched", gpu_unmatched},
             {"overtake", gpu_overtake},
             {"late_sender", gpu_late_sender},
             {"groups", gpu_groups},
             {"threads", gpu_threads},
             {"inverse", gpu_inverse},
             {"chains", gpu_chains},
             {"forming", gpu_forming},
             {"staged", gpu_staged},
             {"mixed", gpu_mixed},
             {"late", gpu_late},
             {"peer", gpu_peer},
             {"mismatch", gpu_mismatch},
             {"fault", gpu_fault},
             {"self", gpu_self},
             {"batches", gpu_batches},
             {"held_up", gpu_held_up},
             {"late_scan", gpu_late_scan},
             {"lean", gpu_lean},
             {"first_use", gpu_first_use},
             {"left", gpu_left},
             {"broken", gpu_broken},
             {"capture", gpu_capture},
             {"posted", gpu_posted},
             {"direct_flight", gpu_direct_flight},
             {"direct_behind", gpu_direct_behind},
             {"direct_pipeline", gpu_direct_pipeline},
             {"direct_exchange", gpu_direct_exchange},
             {"direct_stopped", gpu_direct_stopped},
             {"direct_count", gpu_direct_count},
             {"direct_type", gpu_direct_type},
             {"direct_cancel", gpu_direct_cancel},
             {"direct_refused", gpu_direct_refused},
             {"direct_killed", gpu_direct_killed},
             {"direct_unmatched", gpu_direct_unmatched},
             {"direct_unformed", gpu_direct_unformed}};

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    const char *name = collrun_param_string(ctx, "case");
    struct gpu_test t = {.ctx = ctx};
    if (cuda_load() != 0)
        return collrun_fail(ctx, "libcudart.so.13 (or .12) does not load");
    int rc = collrun_group_get(ctx, collrun_param_string(ctx, "group"), &t.g);
    if (rc != COLLRUN_OK)
        return rc;
    t.rank = collrun_rank(t.g);
    t.size = collrun_size(t.g);
    t.devices = collrun_devices(t.g);
    t.comm_size = t.size * (t.devices ? t.devices : 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, name) == 0) {
            cases[i].run(&t);
            printf("gpu_test: %s done\n", name);
            fflush(stdout);
            return t.failures ? 1 : 0;
        }
    return collrun_fail(ctx, "there is no case \"%s\"", name);
}

static const struct collrun_param params[] = {
    {.name = "case", .type = COLLRUN_PARAM_STRING, .help = "the case to run"},
    {.name = "communicators",
     .type = COLLRUN_PARAM_INT,
     .def = "1",
     .help = "how many each GPU has at the start"},
    {.name = "group", .type = COLLRUN_PARAM_STRING, .def = "world", .help = "the group to use"},
    {0},
};

COLLRUN_WORKLOAD(.name = "gpu_test", .summary = "what GPUs add to the API", .params = params,
                 .run = run);
