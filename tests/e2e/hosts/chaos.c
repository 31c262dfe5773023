/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that can be held still at any moment of its life, on rank 4: while its plugins load (a
 * constructor of this file), while a group forms (the backend that this file is, built with
 * -DBACKEND), while it runs, and while it ends (a destructor). Each note is a file DIR/at.MOMENT
 * that says that the moment has come; it lasts until DIR/MOMENT.go exists.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELD_RANK = 4 };

static int may_go(const char *dir, const char *moment)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s.go", dir, moment);
    return access(path, F_OK) == 0;
}

static void come_to(const char *moment)
{
    char path[600];
    const char *dir = getenv("CHAOS_DIR"), *rank = getenv("CHAOS_RANK");
    if (!dir || !rank || atoi(rank) != HELD_RANK)
        return;
    snprintf(path, sizeof path, "%s/at.%s", dir, moment);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        close(fd);
}

static void hold(const char *moment)
{
    const char *dir = getenv("CHAOS_DIR"), *rank = getenv("CHAOS_RANK");
    come_to(moment);
    while (dir && rank && atoi(rank) == HELD_RANK && !may_go(dir, moment))
        usleep(5000);
}

#ifdef BACKEND
#include <collrun/backend.h>

static int group_open(void *backend, const struct collrun_group_desc *d, void **group)
{
    (void)backend;
    *group = malloc(1);
    hold("rendezvous");
    return d->rendezvous->fence(d->rendezvous->ctx);
}

static void group_abort(void *group)
{
    (void)group;
}

static void group_close(void *group)
{
    free(group);
}

static int exec(void *group, const struct collrun_call *calls, uint32_t n)
{
    (void)group;
    (void)calls;
    (void)n;
    return 0;
}

static const struct collrun_capability native[] = {
    {.kind = COLLRUN_BARRIER, .memory = COLLRUN_MEMORY_HOST}, {0}};
const struct collrun_backend collrun_backend_v1 = {COLLRUN_BACKEND_HEAD,
                                                   .name = "chaos",
                                                   .version = "1",
                                                   .native = native,
                                                   .group_open = group_open,
                                                   .group_abort = group_abort,
                                                   .group_close = group_close,
                                                   .exec = exec};
#else
#include <collrun/workload.h>

__attribute__((constructor)) static void load(void)
{
    hold("launch");
}

__attribute__((destructor)) static void leave(void)
{
    hold("shutdown");
}

/* Allreduces until all ranks know that rank 4 may leave. */
static int run(struct collrun_ctx *ctx, void *state)
{
    struct collrun_group *g;
    int32_t mine = 0, all = 0;
    (void)state;
    int status = collrun_group_get(ctx, "world", &g);
    for (int i = 0; status == COLLRUN_OK && !all; i++) {
        status = collrun_allreduce(g, &mine, &all, 1, COLLRUN_INT32, COLLRUN_MAX);
        if (i == 10)
            come_to("run");
        mine = collrun_world_rank(ctx) == HELD_RANK && may_go(getenv("CHAOS_DIR"), "run");
    }
    return status;
}

COLLRUN_WORKLOAD(.name = "chaos", .run = run);
#endif
