/* SPDX-License-Identifier: Apache-2.0
 *
 * Hello: every rank prints its number, its host and its groups. A first workload to copy:
 *
 *   cc -shared -fPIC $(pkg-config --cflags --libs collrun) hello.c -o libhello.so
 */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct collrun_param params[] = {
    {.name = "greeting", .type = COLLRUN_PARAM_STRING, .def = "hello", .help = "the greeting"},
    {.name = "show",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "environment variables to print, separated by spaces or commas"},
    {0},
};

static void print_groups(struct collrun_ctx *ctx, FILE *out)
{
    struct collrun_group *group;
    for (int i = 0; (group = collrun_group_at(ctx, i)) != NULL; i++)
        fprintf(out, "; %s: %d of %d (%s)", collrun_group_name(group), collrun_rank(group),
                collrun_size(group), collrun_group_backend(group));
}

static void print_environment(const char *show, FILE *out)
{
    for (; *show; show += strspn(show, " ,")) {
        char name[128];
        int n = (int)strcspn(show, " ,");
        snprintf(name, sizeof name, "%.*s", n, show);
        const char *value = getenv(name);
        if (n > 0)
            fprintf(out, "; %s=%s", name, value ? value : "(not set)");
        show += n;
    }
}

/* The line is printed by one call, so that the output of several workloads does not mix. */
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
    print_groups(ctx, out);
    print_environment(collrun_param_string(ctx, "show"), out);
    if (fclose(out) == 0)
        puts(line);
    free(line);
    return 0;
}

COLLRUN_WORKLOAD(.name = "hello", .summary = "every rank prints its number, host and groups",
                 .params = params, .run = run);
