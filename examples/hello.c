/* SPDX-License-Identifier: Apache-2.0
 *
 * Hello: every rank says who it is, where it runs and which groups it is in. The smallest workload
 * there is:
 *
 *   cc -shared -fPIC $(pkg-config --cflags --libs collrun) hello.c -o libhello.so
 */
#include <collrun/workload.h>

#include <stdio.h>
#include <string.h>

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    char groups[1024] = "";
    struct collrun_group *group;
    for (int i = 0; (group = collrun_group_at(ctx, i)) != NULL; i++) {
        size_t used = strlen(groups);
        snprintf(groups + used, sizeof groups - used, "%s%s (rank %d of %d, %s)", i ? ", " : "",
                 collrun_group_name(group), collrun_rank(group), collrun_size(group),
                 collrun_group_backend(group));
    }
    printf("hello from rank %d of %d on %s; groups: %s\n", collrun_world_rank(ctx),
           collrun_world_size(ctx), collrun_host(ctx), groups[0] ? groups : "none");
    return 0;
}

COLLRUN_WORKLOAD(.name = "hello", .summary = "every rank says who it is and which groups it is in",
                 .run = run);
