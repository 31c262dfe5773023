/* SPDX-License-Identifier: Apache-2.0
 *
 * Data and pipeline parallelism: a stage of the pipeline is one layer of the network, and every
 * stage has a copy in each column. mlp.h has the network and the data.
 *
 *            pp=0          pp=1
 *     dp=0   rank 0  --->  rank 1      pp: send and receive activations, and gradients back
 *     dp=1   rank 2  --->  rank 3      dp: allreduce of the gradients of one layer
 *
 * - A column has every second image, in micro-batches. All run forward, then all run backward. A
 *   rank starts the send of a micro-batch and computes the next one meanwhile.
 * - The loss is the one that train_mlp.c computes with any number of processes: the network, the
 *   images and the sums are the same.
 */
#include "mlp.h"

#include <collrun/workload.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct collrun_param params[] = {
    {.name = "images",
     .type = COLLRUN_PARAM_INT,
     .def = "500",
     .min = "10",
     .help = "number of images, over all columns"},
    {.name = "steps",
     .type = COLLRUN_PARAM_INT,
     .def = "100",
     .min = "1",
     .help = "number of steps; each uses all images"},
    {.name = "micro",
     .type = COLLRUN_PARAM_INT,
     .def = "5",
     .min = "1",
     .max = "64",
     .help = "number of micro-batches of a step"},
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
    {0},
};

/* What a step sums over the columns, in one allreduce: the gradient is that of the rank's layer. */
struct sums {
    double grad[MLP_PARAMS];
    double loss, right;
};

struct pipeline {
    struct collrun_ctx *ctx;
    struct collrun_group *pipe;  /* the ranks of this column: ranks 0 and 1 are the stages */
    struct collrun_group *stage; /* the ranks of this stage: one per column */
    int micro;
    size_t images; /* of a micro-batch; the last one may have fewer */
    size_t total;  /* of this column */
    struct mlp_layer layer;
    struct sums sums;
    double params[MLP_PARAMS];
    /* For every image: what stage 0 hands to stage 1, and the derivative by it. */
    double (*hidden)[MLP_HIDDEN], (*dhidden)[MLP_HIDDEN];
    struct collrun_request *sends[64];
};

static bool is_first(const struct pipeline *p)
{
    return collrun_rank(p->pipe) == 0;
}

/* The images of a micro-batch: `begin` to `end` of this column. */
static size_t micro_begin(const struct pipeline *p, int micro)
{
    size_t begin = (size_t)micro * p->images;
    return begin < p->total ? begin : p->total;
}

/* The image at index i of this column. */
static int image(const struct pipeline *p, size_t i, double *x)
{
    return mlp_image((int64_t)i * collrun_size(p->stage) + collrun_rank(p->stage), x);
}

/* ---- messages between the stages ---- */

static int send_micro(struct pipeline *p, int micro, double (*rows)[MLP_HIDDEN], int peer)
{
    struct collrun_call call = COLLRUN_CALL(COLLRUN_SEND);
    size_t begin = micro_begin(p, micro);
    call.send = rows[begin];
    call.count = (micro_begin(p, micro + 1) - begin) * MLP_HIDDEN;
    call.dtype = COLLRUN_FLOAT64;
    call.peer = peer;
    return collrun_start(p->pipe, &call, &p->sends[micro]);
}

static int recv_micro(struct pipeline *p, int micro, double (*rows)[MLP_HIDDEN], int peer)
{
    size_t begin = micro_begin(p, micro);
    return collrun_recv(p->pipe, rows[begin], (micro_begin(p, micro + 1) - begin) * MLP_HIDDEN,
                        COLLRUN_FLOAT64, peer);
}

/* ---- the stages ---- */

/* Pixels to hidden values. */
static void first_forward(struct pipeline *p, int micro)
{
    for (size_t i = micro_begin(p, micro); i < micro_begin(p, micro + 1); i++) {
        double x[MLP_PIXELS];
        image(p, i, x);
        mlp_forward(&p->layer, x, p->hidden[i]);
        mlp_relu(p->hidden[i], MLP_HIDDEN);
    }
}

static void first_backward(struct pipeline *p, int micro)
{
    for (size_t i = micro_begin(p, micro); i < micro_begin(p, micro + 1); i++) {
        double x[MLP_PIXELS];
        image(p, i, x);
        mlp_relu_backward(p->hidden[i], p->dhidden[i], MLP_HIDDEN);
        mlp_backward(&p->layer, x, p->dhidden[i], NULL);
    }
}

/* Hidden values to the loss, and back. */
static void last_both(struct pipeline *p, int micro)
{
    for (size_t i = micro_begin(p, micro); i < micro_begin(p, micro + 1); i++) {
        double x[MLP_PIXELS], y[MLP_CLASSES];
        int label = image(p, i, x);
        mlp_forward(&p->layer, p->hidden[i], y);
        p->sums.loss += mlp_loss(y, label, &p->sums.right);
        mlp_backward(&p->layer, p->hidden[i], y, p->dhidden[i]);
    }
}

static int first_step(struct pipeline *p)
{
    int rc = COLLRUN_OK;
    for (int m = 0; m < p->micro && rc == COLLRUN_OK; m++) {
        first_forward(p, m);
        rc = send_micro(p, m, p->hidden, 1);
    }
    for (int m = 0; m < p->micro && rc == COLLRUN_OK; m++) {
        rc = recv_micro(p, m, p->dhidden, 1);
        if (rc == COLLRUN_OK)
            first_backward(p, m);
    }
    return rc;
}

static int last_step(struct pipeline *p)
{
    int rc = COLLRUN_OK;
    for (int m = 0; m < p->micro && rc == COLLRUN_OK; m++) {
        rc = recv_micro(p, m, p->hidden, 0);
        if (rc != COLLRUN_OK)
            break;
        last_both(p, m);
        rc = send_micro(p, m, p->dhidden, 0);
    }
    return rc;
}

/* ---- training ---- */

/* One step of gradient descent on all images; p->sums: its results over the columns. */
static int train_step(struct pipeline *p)
{
    int64_t images = collrun_param_int(p->ctx, "images");
    double rate = collrun_param_float(p->ctx, "rate") / (double)images;
    memset(&p->sums, 0, sizeof p->sums);
    int rc = is_first(p) ? first_step(p) : last_step(p);
    int sent = collrun_wait_all(p->sends, p->micro);
    rc = rc == COLLRUN_OK ? sent : rc;
    if (rc == COLLRUN_OK)
        rc = collrun_allreduce(p->stage, &p->sums, &p->sums, sizeof p->sums / sizeof(double),
                               COLLRUN_FLOAT64, COLLRUN_SUM);
    for (int i = 0; i < p->layer.out * (p->layer.in + 1); i++)
        p->layer.w[i] -= rate * p->layer.grad[i];
    p->sums.loss /= (double)images;
    p->sums.right /= (double)images;
    return rc;
}

static int train(struct pipeline *p)
{
    int64_t steps = collrun_param_int(p->ctx, "steps");
    bool prints = !is_first(p) && collrun_rank(p->stage) == 0;
    for (int64_t step = 1; step <= steps; step++) {
        int rc = train_step(p);
        if (rc != COLLRUN_OK)
            return rc;
        if (prints && (step % 20 == 0 || step == steps))
            printf("step %3lld: loss %.6f, accuracy %.3f\n", (long long)step, p->sums.loss,
                   p->sums.right);
    }
    if (!is_first(p) && p->sums.right < collrun_param_float(p->ctx, "accuracy"))
        return collrun_fail(p->ctx, "not converged: accuracy %.3f", p->sums.right);
    if (prints)
        printf("converged: loss %.6f, accuracy %.3f\n", p->sums.loss, p->sums.right);
    return 0;
}

static int run(struct collrun_ctx *ctx, void *unused)
{
    struct pipeline p = {.ctx = ctx, .micro = (int)collrun_param_int(ctx, "micro")};
    (void)unused;
    int rc = collrun_group_get(ctx, "pp", &p.pipe);
    if (rc == COLLRUN_OK)
        rc = collrun_group_get(ctx, "dp", &p.stage);
    if (rc != COLLRUN_OK)
        return rc;
    size_t all = (size_t)collrun_param_int(ctx, "images"), n = (size_t)collrun_size(p.stage);
    p.total = (all - (size_t)collrun_rank(p.stage) + n - 1) / n;
    p.images = (p.total + (size_t)p.micro - 1) / (size_t)p.micro;
    mlp_init(p.params);
    p.layer = is_first(&p) ? mlp_layer1(p.params, p.sums.grad) : mlp_layer2(p.params, p.sums.grad);
    p.hidden = calloc(2 * p.total, sizeof *p.hidden);
    if (!p.hidden)
        return collrun_fail(ctx, "out of memory for %zu images", p.total);
    p.dhidden = p.hidden + p.total;
    rc = train(&p);
    free(p.hidden);
    return rc;
}

COLLRUN_WORKLOAD(.name = "pipeline",
                 .summary = "training of a small MLP, its layers on two stages of a pipeline",
                 .params = params, .run = run);
