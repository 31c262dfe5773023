/* SPDX-License-Identifier: Apache-2.0
 *
 * Replay: makes the calls of a recorded program, on any backend, and compares their times with the
 * recorded ones. It reads execution traces of PyTorch (pytorch.c), Chakra traces (chakra.c) and MPI
 * calls of liballprof (mpi.c).
 *
 * - init reads the traces, compares those of all ranks (match.c), and makes their groups: what
 *   cannot be replayed is refused, with its place in the trace, before any call.
 * - run makes the calls (play.c), and reports (report.c).
 */
#include "match.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct collrun_param params[] = {
    {.name = "trace",
     .type = COLLRUN_PARAM_STRING,
     .help = "a folder or pattern with a file per rank, a file with {rank}, or one file for all"},
    {.name = "format",
     .type = COLLRUN_PARAM_ENUM,
     .def = "auto",
     .help = "of the files",
     .choices = "auto|mpi|pytorch|chakra"},
    {.name = "times",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "of PyTorch: a folder or pattern with Kineto's timeline of each rank"},
    {.name = "speed",
     .type = COLLRUN_PARAM_STRING,
     .def = "recorded",
     .help = "of the computation between the calls: recorded, 2x, 0.5x"},
    {.name = "gaps",
     .type = COLLRUN_PARAM_ENUM,
     .def = "keep",
     .help = "the computation between the calls",
     .choices = "keep|drop"},
    {.name = "iterations",
     .type = COLLRUN_PARAM_INT,
     .def = "1",
     .min = "1",
     .max = "1000000",
     .help = "replays"},
    {.name = "verify",
     .type = COLLRUN_PARAM_BOOL,
     .def = "false",
     .help = "fill the buffers and check all results"},
    {.name = "json",
     .type = COLLRUN_PARAM_STRING,
     .def = "",
     .help = "file of the results; default: replay.json of the run directory"},
    {0},
};

struct replay {
    struct cast cast;
    struct player *player;
};

/* 2 for "2x"; 0: not valid. */
static double replay_speed(const char *text)
{
    char *end;
    if (strcmp(text, "recorded") == 0)
        return 1;
    double speed = strtod(text, &end);
    return end != text && strcmp(end, "x") == 0 && speed >= 1e-3 && speed <= 1e6 ? speed : 0;
}

static int check(struct collrun_ctx *ctx)
{
    if (!collrun_param_string(ctx, "trace")[0])
        return collrun_refuse(ctx, "trace", "the name of a file, a folder or a pattern is missing");
    if (replay_speed(collrun_param_string(ctx, "speed")) == 0)
        return collrun_refuse(ctx, "speed", "\"%s\" is neither \"recorded\" nor a factor as in 2x",
                              collrun_param_string(ctx, "speed"));
    return 0;
}

static void fini(struct collrun_ctx *ctx, void *state)
{
    struct replay *r = state;
    (void)ctx;
    play_free(r->player);
    cast_fini(&r->cast);
    free(r);
}

static int init(struct collrun_ctx *ctx, void **state)
{
    struct replay *r = calloc(1, sizeof *r);
    if (!r)
        return collrun_fail(ctx, "out of memory");
    bool keep = collrun_param_enum(ctx, "gaps") == 0;
    double speed = keep ? replay_speed(collrun_param_string(ctx, "speed")) : 0;
    int rc = cast_read(&r->cast, ctx);
    if (!rc)
        rc = cast_find_groups(&r->cast);
    if (!rc)
        rc = match_traces(&r->cast);
    if (!rc)
        rc = cast_make_groups(&r->cast);
    if (!rc)
        rc = play_new(&r->player, &r->cast, speed, collrun_param_bool(ctx, "verify"));
    *state = r;
    if (rc)
        fini(ctx, r);
    return rc;
}

static uint64_t replay_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int run(struct collrun_ctx *ctx, void *state)
{
    struct replay *r = state;
    bool keep = collrun_param_enum(ctx, "gaps") == 0;
    uint64_t n = (uint64_t)collrun_param_int(ctx, "iterations"), begin;
    int rc = collrun_barrier(r->cast.group);
    begin = replay_now();
    for (uint64_t i = 0; !rc && i < n; i++) {
        rc = play_once(r->player);
        collrun_progress(ctx, i + 1, n, "iterations");
    }
    uint64_t ns = replay_now() - begin;
    return rc ? rc
              : report(&r->cast, r->player,
                       keep ? collrun_param_string(ctx, "speed") : "without computation", ns);
}

COLLRUN_WORKLOAD(.name = "replay",
                 .summary = "makes the calls of a recorded program: PyTorch, Chakra and MPI traces",
                 .params = params, .init = init, .run = run, .fini = fini, .check = check);
