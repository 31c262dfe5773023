/* SPDX-License-Identifier: Apache-2.0
 *
 * A workload that does what its parameter says: `do` is a list of steps separated by ";", each a
 * verb and its words; "@2 verb" is for world rank 2 alone, "@!2 verb" for all others. `init` and
 * `fini` are the same for those functions. What must survive the death of the rank is written with
 * "note" to DIR/notes.RANK rather than printed. The verbs are the tables at the ends
 * of the other files.
 */
#include "actor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void note(const struct actor *a, const char *format, ...)
{
    char path[600], text[2000];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (len > (int)sizeof text - 2)
        len = (int)sizeof text - 2;
    text[len++] = '\n';
    snprintf(path, sizeof path, "%s/notes.%d", a->dir, collrun_world_rank(a->ctx));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, (size_t)len) != len)
        fprintf(stderr, "actor: %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR && !terminated)
        continue;
}

static const struct verb *find_verb(const char *name, size_t len)
{
    const struct verb *const tables[] = {verbs_of_ends, verbs_of_waits, verbs_of_output,
                                         verbs_of_groups};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct verb *v = tables[i]; v->name != NULL; v++)
            if (strlen(v->name) == len && strncmp(name, v->name, len) == 0)
                return v;
    return NULL;
}

static int act(struct actor *a, char *step)
{
    char *verb = step + strspn(step, " ");
    int rank = collrun_world_rank(a->ctx);
    if (*verb == '@') {
        bool others = verb[1] == '!';
        long who = strtol(verb + (others ? 2 : 1), &verb, 10);
        if ((who == rank) == others)
            return GO_ON;
        verb += strspn(verb, " ");
    }
    size_t len = strcspn(verb, " ");
    char *words = verb + len + strspn(verb + len, " ");
    const struct verb *known = find_verb(verb, len);
    if (known != NULL)
        return known->run(a, words);
    fprintf(stderr, "actor: no verb \"%s\"\n", verb);
    return 97;
}

static int act_all(struct actor *a, const char *steps)
{
    char *copy = strdup(steps), *rest = NULL;
    int result = GO_ON;
    for (char *step = strtok_r(copy, ";", &rest); step != NULL && result == GO_ON;
         step = strtok_r(NULL, ";", &rest))
        result = act(a, step);
    free(copy);
    return result == GO_ON ? 0 : result;
}

static int init(struct collrun_ctx *ctx, void **state)
{
    struct actor *a = calloc(1, sizeof *a);
    if (a == NULL)
        return COLLRUN_ERR_NO_MEMORY;
    *a = (struct actor){.ctx = ctx, .dir = collrun_param_string(ctx, "dir")};
    *state = a;
    return act_all(a, collrun_param_string(ctx, "init"));
}

static int run(struct collrun_ctx *ctx, void *state)
{
    return act_all(state, collrun_param_string(ctx, "do"));
}

static void fini(struct collrun_ctx *ctx, void *state)
{
    act_all(state, collrun_param_string(ctx, "fini"));
    free(state);
}

static const struct collrun_param params[] = {
    {.name = "do", .type = COLLRUN_PARAM_STRING, .def = "", .help = "the steps"},
    {.name = "init", .type = COLLRUN_PARAM_STRING, .def = "", .help = "steps of the init function"},
    {.name = "fini", .type = COLLRUN_PARAM_STRING, .def = "", .help = "steps of the fini function"},
    {.name = "dir", .type = COLLRUN_PARAM_STRING, .def = ".", .help = "where notes go"},
    {0},
};

COLLRUN_WORKLOAD(.name = "actor", .summary = "does what it is told", .params = params, .init = init,
                 .run = run, .fini = fini);
