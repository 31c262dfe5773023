/* SPDX-License-Identifier: Apache-2.0
 *
 * Hello: every rank says who it is, where it runs and which groups it is in. A first workload to
 * copy:
 *
 *   cc -shared -fPIC $(pkg-config --cflags --libs collrun) hello.c -o libhello.so
 */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct collrun_param params[] = {
    {"greeting", COLLRUN_PARAM_STRING, "hello", NULL, NULL, "what to say"},
    {"show", COLLRUN_PARAM_STRING, "", NULL, NULL, "names of environment variables to print"},
    {0},
};

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    char *line = NULL;
    size_t len;
    FILE *out = open_memstream(&line, &len);
    if (!out)
        return collrun_fail(ctx, "out of memory");
    fprintf(out, "%s from rank %d of %d on %s", collrun_param_string(ctx, "greeting"),
            collrun_world_rank(ctx), collrun_world_size(ctx), collrun_host(ctx));

    struct collrun_group *group;
    for (int i = 0; (group = collrun_group_at(ctx, i)) != NULL; i++)
        fprintf(out, "; %s: %d of %d (%s)", collrun_group_name(group), collrun_rank(group),
                collrun_size(group), collrun_group_backend(group));

    for (const char *show = collrun_param_string(ctx, "show"); *show; show += strspn(show, " ,")) {
        char name[128];
        int n = (int)strcspn(show, " ,");
        snprintf(name, sizeof name, "%.*s", n, show);
        const char *value = getenv(name);
        if (n > 0)
            fprintf(out, "; %s=%s", name, value ? value : "(not set)");
        show += n;
    }
    if (fclose(out) == 0)
        puts(line); /* at once, so that the lines of several workloads do not mix */
    free(line);
    return 0;
}

COLLRUN_WORKLOAD(.name = "hello", .summary = "every rank says who it is and which groups it is in",
                 .params = params, .run = run);
