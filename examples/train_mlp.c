/* SPDX-License-Identifier: Apache-2.0
 *
 * Data-parallel training: every rank has the whole model and a share of the images, and an
 * allreduce per step sums the gradients. mlp.h has the model and the data.
 *
 * - Any number of processes computes the same loss: the gradient is a sum over all images,
 * whichever rank adds them.
 * - Rank 0 saves the parameters into the run directory every few steps. After a restart
 *   (on_failure: restart) it reads them and broadcasts them, and the training continues there.
 * - `fail_at` makes the first attempt crash.
 */
#include "mlp.h"

#include <collrun/workload.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct collrun_param params[] = {
    {.name = "images",
     .type = COLLRUN_PARAM_INT,
     .def = "500",
     .min = "10",
     .help = "number of images, over all ranks"},
    {.name = "steps",
     .type = COLLRUN_PARAM_INT,
     .def = "100",
     .min = "1",
     .help = "number of steps; each uses all images"},
    {.name = "rate",
     .type = COLLRUN_PARAM_FLOAT,
     .def = "0.8",
     .min = "0",
     .help = "learning rate"},
    {.name = "accuracy",
     .type = COLLRUN_PARAM_FLOAT,
     .def = "0.95",
     .min = "0",
     .max = "1",
     .help = "share of the images that the trained model must recognize"},
    {.name = "every",
     .type = COLLRUN_PARAM_INT,
     .def = "20",
     .min = "1",
     .help = "number of steps between two checkpoints"},
    {.name = "fail_at",
     .type = COLLRUN_PARAM_INT,
     .def = "-1",
     .help = "step in which the last rank crashes in the first attempt; -1: none"},
    {0},
};

struct state {
    double params[MLP_PARAMS];
    double step; /* number of steps done; a double, so that one broadcast sends the struct */
};

/* What a step sums over the ranks, in one allreduce. */
struct sums {
    double grad[MLP_PARAMS];
    double loss;
    double right; /* number of images recognized */
};

_Static_assert(sizeof(struct state) == (MLP_PARAMS + 1) * sizeof(double), "an array of double");
_Static_assert(sizeof(struct sums) == (MLP_PARAMS + 2) * sizeof(double), "an array of double");

/* ---- checkpoints ---- */

/* Renames a complete file: a crash while it is written leaves the previous checkpoint intact. */
static int save(struct collrun_ctx *ctx, const struct state *s)
{
    char path[4096], temporary[sizeof path + 4];
    snprintf(path, sizeof path, "%s/model", collrun_run_dir(ctx));
    snprintf(temporary, sizeof temporary, "%s.new", path);
    FILE *f = fopen(temporary, "wb");
    bool good = f && fwrite(s, sizeof *s, 1, f) == 1;
    if (f && fclose(f) != 0)
        good = false;
    if (!good || rename(temporary, path) != 0)
        return collrun_fail(ctx, "cannot save %s: %s", path, strerror(errno));
    return 0;
}

/* The state of the checkpoint; without one, that of the first step. */
static void load(struct collrun_ctx *ctx, struct state *s)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model", collrun_run_dir(ctx));
    FILE *f = collrun_attempt(ctx) > 0 ? fopen(path, "rb") : NULL;
    if (!f || fread(s, sizeof *s, 1, f) != 1) {
        s->step = 0;
        mlp_init(s->params);
    }
    if (f)
        fclose(f);
}

/* ---- training ---- */

/* One step of gradient descent on all images; *sums: its results over all ranks. */
static int train_step(struct collrun_ctx *ctx, struct collrun_group *world, struct state *s,
                      struct sums *sums)
{
    int64_t images = collrun_param_int(ctx, "images");
    double rate = collrun_param_float(ctx, "rate") / (double)images;
    memset(sums, 0, sizeof *sums);
    for (int64_t i = collrun_rank(world); i < images; i += collrun_size(world))
        sums->loss += mlp_train_image(s->params, sums->grad, i, &sums->right);
    int rc = collrun_allreduce(world, sums, sums, sizeof *sums / sizeof(double), COLLRUN_FLOAT64,
                               COLLRUN_SUM);
    for (int i = 0; i < MLP_PARAMS; i++)
        s->params[i] -= rate * sums->grad[i];
    sums->loss /= (double)images;
    sums->right /= (double)images;
    s->step++;
    return rc;
}

static int train(struct collrun_ctx *ctx, struct collrun_group *world, struct state *s)
{
    int64_t steps = collrun_param_int(ctx, "steps"), every = collrun_param_int(ctx, "every");
    int64_t fail_at = collrun_param_int(ctx, "fail_at");
    bool first = collrun_rank(world) == 0, last = collrun_rank(world) == collrun_size(world) - 1;
    bool saves = first && collrun_run_dir(ctx)[0];
    struct sums sums = {0};
    while ((int64_t)s->step < steps) {
        if ((int64_t)s->step == fail_at && last && collrun_attempt(ctx) == 0)
            abort();
        int rc = train_step(ctx, world, s, &sums);
        int64_t step = (int64_t)s->step;
        if (rc == COLLRUN_OK && saves && step % every == 0)
            rc = save(ctx, s);
        if (rc != COLLRUN_OK)
            return rc;
        collrun_progress(ctx, (uint64_t)step, (uint64_t)steps, "steps");
        if (first && (step % 20 == 0 || step == steps))
            printf("step %3lld: loss %.6f, accuracy %.3f\n", (long long)step, sums.loss,
                   sums.right);
    }
    if (sums.right < collrun_param_float(ctx, "accuracy"))
        return collrun_fail(ctx, "not converged: accuracy %.3f after %lld steps", sums.right,
                            (long long)steps);
    collrun_metric(ctx, "loss", sums.loss);
    if (first)
        printf("converged: loss %.6f, accuracy %.3f\n", sums.loss, sums.right);
    return 0;
}

static int run(struct collrun_ctx *ctx, void *unused)
{
    struct collrun_group *world;
    struct state s;
    (void)unused;
    int rc = collrun_group_get(ctx, "world", &world);
    if (rc != COLLRUN_OK)
        return rc;
    if (collrun_rank(world) == 0)
        load(ctx, &s);
    rc = collrun_broadcast(world, &s, sizeof s / sizeof(double), COLLRUN_FLOAT64, 0);
    if (rc != COLLRUN_OK)
        return rc;
    if (collrun_rank(world) == 0)
        printf("attempt %d: %d processes from step %d\n", collrun_attempt(ctx), collrun_size(world),
               (int)s.step);
    return train(ctx, world, &s);
}

COLLRUN_WORKLOAD(.name = "train_mlp",
                 .summary = "data-parallel training of a small MLP, with checkpoints",
                 .params = params, .run = run);
