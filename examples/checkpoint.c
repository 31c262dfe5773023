/* SPDX-License-Identifier: Apache-2.0
 *
 * A computation that survives its own failures: every rank saves its state into the run directory
 * from time to time, and after a restart (on_failure: restart) goes on from there. The state is a
 * running sum that an allreduce feeds; at the end it is compared with the closed form, so a step
 * that was lost, or done twice, shows.
 *
 * A checkpoint counts only when all ranks have it: they agree, by a MIN, on the newest step that
 * everybody can resume from. `fail_at` breaks the first attempt on purpose.
 */
#include <collrun/workload.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct collrun_param params[] = {
    {"steps", COLLRUN_PARAM_INT, "100", "1", NULL, "how many steps to compute"},
    {"every", COLLRUN_PARAM_INT, "10", "1", NULL, "save the state after so many steps"},
    {"fail_at", COLLRUN_PARAM_INT, "-1", NULL, NULL,
     "the first attempt crashes in this step; -1: never"},
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

/* Written beside its name and renamed: a crash in the middle leaves the one before. */
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
        return collrun_fail(ctx, "save %s: %s", path, strerror(errno));
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

/* The newest checkpoint that every rank has. */
static int resume(struct collrun_ctx *ctx, struct collrun_group *world, struct state *s)
{
    int64_t every = collrun_param_int(ctx, "every"), newest = 0, common;
    for (int64_t step = every; step <= collrun_param_int(ctx, "steps"); step += every)
        newest = load(ctx, step, s) ? step : newest;
    int rc = collrun_allreduce(world, &newest, &common, 1, COLLRUN_INT64, COLLRUN_MIN);
    *s = (struct state){0};
    if (rc == COLLRUN_OK && common > 0 && !load(ctx, common, s))
        return collrun_fail(ctx, "the checkpoint of step %lld is gone", (long long)common);
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
        return collrun_fail(ctx, "checkpoints need logging.dir in the job file");
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
        return collrun_fail(ctx, "the sum is %lld, not %lld", (long long)s.sum,
                            (long long)expected);
    if (collrun_rank(world) == 0)
        printf("%lld steps, sum %lld: right\n", (long long)steps, (long long)s.sum);
    return 0;
}

COLLRUN_WORKLOAD(.name = "checkpoint", .summary = "resumes from its checkpoints after a restart",
                 .params = params, .run = run);
