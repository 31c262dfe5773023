/* SPDX-License-Identifier: Apache-2.0
 *
 * Hello: every rank says who it is, where it runs and which groups it is in. A first workload to
 * copy:
 *
 *   cc -shared -fPIC $(pkg-config --cflags --libs collrun) hello.c -o libhello.so
 */
#define _POSIX_C_SOURCE 200809L /* strtok_r */
#include <collrun/workload.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct collrun_param params[] = {
    {"greeting", COLLRUN_PARAM_STRING, "hello", NULL, NULL, "what to say"},
    {"show", COLLRUN_PARAM_STRING, "", NULL, NULL, "names of environment variables to print"},
    {0},
};

/* Appends to a line; what does not fit is left out. */
static void append(char *line, size_t len, const char *format, ...)
{
    size_t used = strlen(line);
    va_list args;
    va_start(args, format);
    vsnprintf(line + used, len - used, format, args);
    va_end(args);
}

static int run(struct collrun_ctx *ctx, void *state)
{
    (void)state;
    char line[4096] = "", names[1024] = "";
    append(line, sizeof line, "%s from rank %d of %d on %s", collrun_param_string(ctx, "greeting"),
           collrun_world_rank(ctx), collrun_world_size(ctx), collrun_host(ctx));

    struct collrun_group *group;
    for (int i = 0; (group = collrun_group_at(ctx, i)) != NULL; i++)
        append(line, sizeof line, "; %s: %d of %d (%s)", collrun_group_name(group),
               collrun_rank(group), collrun_size(group), collrun_group_backend(group));

    append(names, sizeof names, "%s", collrun_param_string(ctx, "show"));
    for (char *rest, *name = strtok_r(names, " ,", &rest); name;
         name = strtok_r(NULL, " ,", &rest)) {
        const char *value = getenv(name);
        append(line, sizeof line, "; %s=%s", name, value ? value : "(not set)");
    }
    puts(line);
    return 0;
}

COLLRUN_WORKLOAD(.name = "hello", .summary = "every rank says who it is and which groups it is in",
                 .params = params, .run = run);
