/* SPDX-License-Identifier: Apache-2.0
 *
 * The scripted workload: it executes the commands in its parameters, so that a test states in its
 * job file what each rank does.
 *
 * - `do` is a list of commands separated by ";", each a name and its arguments. `init` and `fini`
 *   are the same for the workload's init and fini functions.
 * - "@2 COMMAND" is executed by world rank 2 only, "@!2 COMMAND" by all others.
 * - "note TEXT" appends a line to DIR/notes.RANK, which outlives the rank; "print" may not.
 * - The commands are listed in the tables at the end of the other files of this folder.
 */
#include "scripted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void note(const struct script *s, const char *format, ...)
{
    char path[600], text[2000];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (len > (int)sizeof text - 2)
        len = (int)sizeof text - 2;
    text[len++] = '\n';
    snprintf(path, sizeof path, "%s/notes.%d", s->dir, collrun_world_rank(s->ctx));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, text, (size_t)len) != len)
        fprintf(stderr, "scripted: %s: %s\n", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR && !terminated)
        continue;
}

static const struct command *find_command(const char *name, size_t len)
{
    const struct command *const tables[] = {end_commands, wait_commands, output_commands,
                                            group_commands};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct command *c = tables[i]; c->name != NULL; c++)
            if (strlen(c->name) == len && strncmp(name, c->name, len) == 0)
                return c;
    return NULL;
}

static int execute(struct script *s, char *line)
{
    char *name = line + strspn(line, " ");
    int rank = collrun_world_rank(s->ctx);
    if (*name == '@') {
        bool others = name[1] == '!';
        long chosen = strtol(name + (others ? 2 : 1), &name, 10);
        if ((chosen == rank) == others)
            return GO_ON;
        name += strspn(name, " ");
    }
    size_t len = strcspn(name, " ");
    char *args = name + len + strspn(name + len, " ");
    const struct command *known = find_command(name, len);
    if (known != NULL)
        return known->run(s, args);
    fprintf(stderr, "scripted: no command \"%s\"\n", name);
    return 97;
}

static int execute_all(struct script *s, const char *lines)
{
    char *copy = strdup(lines), *rest = NULL;
    int result = GO_ON;
    for (char *line = strtok_r(copy, ";", &rest); line != NULL && result == GO_ON;
         line = strtok_r(NULL, ";", &rest))
        result = execute(s, line);
    free(copy);
    return result == GO_ON ? 0 : result;
}

static int init(struct collrun_ctx *ctx, void **state)
{
    struct script *s = calloc(1, sizeof *s);
    if (s == NULL)
        return COLLRUN_ERR_NO_MEMORY;
    *s = (struct script){.ctx = ctx, .dir = collrun_param_string(ctx, "dir")};
    *state = s;
    return execute_all(s, collrun_param_string(ctx, "init"));
}

static int run(struct collrun_ctx *ctx, void *state)
{
    return execute_all(state, collrun_param_string(ctx, "do"));
}

static void fini(struct collrun_ctx *ctx, void *state)
{
    execute_all(state, collrun_param_string(ctx, "fini"));
    free(state);
}

static const struct collrun_param params[] = {
    {.name = "do", .type = COLLRUN_PARAM_STRING, .def = "", .help = "the commands of run"},
    {.name = "init", .type = COLLRUN_PARAM_STRING, .def = "", .help = "the commands of init"},
    {.name = "fini", .type = COLLRUN_PARAM_STRING, .def = "", .help = "the commands of fini"},
    {.name = "dir", .type = COLLRUN_PARAM_STRING, .def = ".", .help = "the folder of the notes"},
    {0},
};

COLLRUN_WORKLOAD(.name = "scripted", .summary = "executes a script", .params = params, .init = init,
                 .run = run, .fini = fini);
