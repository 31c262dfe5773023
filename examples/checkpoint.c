/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint: a computation that resumes after a failure. Every rank saves its state into the run
 * directory every few steps and, after a restart (on_failure: restart), continues from there.
 *
 * - The state is a running sum of allreduce results. At the end it is compared with the closed
 *   form, which detects a step that was lost or done twice.
 * - A checkpoint is used only if all ranks have it: an allreduce with MIN finds the newest step
 *   from which all ranks can resume.
 * - `fail_at` makes the first attempt crash.
 */
#include <collrun/workload.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct collrun_param params[] = {
    {.name = "steps",
     .type = COLLRUN_PARAM_INT,
     .def = "100",
     .min = "1",
     .help = "number of steps"},
    {.name = "every",
     .type = COLLRUN_PARAM_INT,
     .def = "10",
     .min = "1",
     .help = "number of steps between two checkpoints"},
    {.name = "fail_at",
     .type = COLLRUN_PARAM_INT,
     .def = "-1",
     .help = "step in which the first attempt crashes; -1: none"},
    {0},
};

struct state {
    int64_t step; /* steps done */
    int64_t sum;
};

static void path_of(struct collrun_ctx *ctx, int64_t step, const char *suffix, char *out,
                    size_t size)
{
    snprintf(out, size, "%s/checkpoint-%lld-rank-%d%s", collrun_run_dir(ctx), (long long)step,
             collrun_world_rank(ctx), suffix);
}

/* Writes a temporary file and renames it: a crash in between leaves the previous checkpoint intact.
 */
static int save(struct collrun_ctx *ctx, const struct state *s)
{
    char path[4096], temporary[4096];
    path_of(ctx, s->step, "", path, sizeof path);
    path_of(ctx, s->step, ".new", temporary, sizeof temporary);
    FILE *f = fopen(temporary, "wb");
    bool good = f && fwrite(s, sizeof *s, 1, f) == 1;
    if (f && fclose(f) != 0)
        good = false;
    if (!good || rename(temporary, path) != 0)
        return collrun_fail(ctx, "cannot save %s: %s", path, strerror(errno));
    return 0;
}

static bool load(struct collrun_ctx *ctx, int64_t step, struct state *s)
{
    char path[4096];
    path_of(ctx, step, "", path, sizeof path);
    FILE *f = fopen(path, "rb");
    bool good = f && fread(s, sizeof *s, 1, f) == 1 && s->step == step;
    if (f)
        fclose(f);
    return good;
}

/* Loads the newest checkpoint that every rank has. */
static int resume(struct collrun_ctx *ctx, struct collrun_group *world, struct state *s)
{
    int64_t every = collrun_param_int(ctx, "every"), newest = 0, common;
    for (int64_t step = every; step <= collrun_param_int(ctx, "steps"); step += every)
        newest = load(ctx, step, s) ? step : newest;
    int rc = collrun_allreduce(world, &newest, &common, 1, COLLRUN_INT64, COLLRUN_MIN);
    *s = (struct state){0};
    if (rc == COLLRUN_OK && common > 0 && !load(ctx, common, s))
        return collrun_fail(ctx, "the checkpoint of step %lld cannot be read", (long long)common);
    return rc;
}

static int run(struct collrun_ctx *ctx, void *unused)
{
    int64_t steps = collrun_param_int(ctx, "steps"), every = collrun_param_int(ctx, "every");
    int64_t fail_at = collrun_param_int(ctx, "fail_at"), size = collrun_world_size(ctx);
    struct collrun_group *world;
    struct state s;
    (void)unused;
    if (!collrun_run_dir(ctx)[0])
        return collrun_fail(ctx,
                            "no run directory for checkpoints: set logging.dir in the job file");
    int rc = collrun_group_get(ctx, "world", &world);
    if (rc != COLLRUN_OK || (rc = resume(ctx, world, &s)) != COLLRUN_OK)
        return rc;
    if (collrun_rank(world) == 0)
        printf("attempt %d starts at step %lld\n", collrun_attempt(ctx), (long long)s.step);
    while (s.step < steps) {
        int64_t mine = s.step + collrun_world_rank(ctx), all;
        if (s.step == fail_at && collrun_attempt(ctx) == 0 && collrun_rank(world) == size - 1)
            abort();
        rc = collrun_allreduce(world, &mine, &all, 1, COLLRUN_INT64, COLLRUN_SUM);
        if (rc != COLLRUN_OK)
            return rc;
        s.sum += all;
        s.step++;
        collrun_progress(ctx, (uint64_t)s.step, (uint64_t)steps, "steps");
        if (s.step % every == 0 && (rc = save(ctx, &s)) != 0)
            return rc;
    }
    /* Every step k adds size * k + (0 + 1 + ... + size - 1). */
    int64_t expected = size * (steps * (steps - 1) / 2) + steps * (size * (size - 1) / 2);
    if (s.sum != expected)
        return collrun_fail(ctx, "the sum is %lld, expected %lld", (long long)s.sum,
                            (long long)expected);
    if (collrun_rank(world) == 0)
        printf("%lld steps, sum %lld: right\n", (long long)steps, (long long)s.sum);
    return 0;
}

COLLRUN_WORKLOAD(.name = "checkpoint",
                 .summary = "a computation that resumes from its checkpoints after a restart",
                 .params = params, .run = run);
