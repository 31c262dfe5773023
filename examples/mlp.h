/* SPDX-License-Identifier: Apache-2.0
 *
 * What train_mlp.c, pipeline.c and parameter_server.c train: a data set and a multilayer
 * perceptron (MLP) with one hidden layer, in plain C without a library.
 *
 * - The data set is generated: 8x8 images of the ten digits, shifted by up to a pixel and noisy.
 *   An image depends on its index alone, so that every rank generates the images of its share.
 * - All values are double, and the loss of a run is printed with 6 decimals: sums over ranks are
 *   rounded differently from those of one process, in the 15th digit or so.
 * - A layer borrows its parameters and their gradient, which makes all layers one contiguous array
 *   for allreduce.
 */
#ifndef COLLRUN_EXAMPLES_MLP_H
#define COLLRUN_EXAMPLES_MLP_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MLP_SIDE = 8,
    MLP_PIXELS = MLP_SIDE * MLP_SIDE,
    MLP_HIDDEN = 24,
    MLP_CLASSES = 10,
    MLP_LAYER1 = MLP_HIDDEN * (MLP_PIXELS + 1), /* number of parameters */
    MLP_LAYER2 = MLP_CLASSES * (MLP_HIDDEN + 1),
    MLP_PARAMS = MLP_LAYER1 + MLP_LAYER2,
};

/* ---- data ---- */

/* A random number in [0, 1) that depends on the key alone (splitmix64 by Steele, Lea, Flood). */
static inline double mlp_random(uint64_t key)
{
    uint64_t z = (key + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Writes image `index` to x[MLP_PIXELS], and returns the digit that it shows. */
static inline int mlp_image(int64_t index, double *x)
{
    /* A byte is a row, the first one in the highest byte. */
    static const uint64_t glyphs[MLP_CLASSES] = {
        UINT64_C(0x003c464a52623c00), UINT64_C(0x0018280808083e00), UINT64_C(0x003c42023c407e00),
        UINT64_C(0x003c420c02423c00), UINT64_C(0x00081828487e0800), UINT64_C(0x007e407c02423c00),
        UINT64_C(0x003c407c42423c00), UINT64_C(0x007e020408101000), UINT64_C(0x003c423c42423c00),
        UINT64_C(0x003c42423e023c00),
    };
    uint64_t key = (uint64_t)index * (MLP_PIXELS + 2);
    int digit = (int)(index % MLP_CLASSES);
    int down = (int)(3 * mlp_random(key)) - 1, right = (int)(3 * mlp_random(key + 1)) - 1;
    for (int i = 0; i < MLP_PIXELS; i++) {
        int row = i / MLP_SIDE - down, column = i % MLP_SIDE - right;
        int inside = row >= 0 && row < MLP_SIDE && column >= 0 && column < MLP_SIDE;
        int bit =
            inside ? (int)(glyphs[digit] >> (MLP_PIXELS - 1 - row * MLP_SIDE - column)) & 1 : 0;
        x[i] = bit + 0.6 * (mlp_random(key + 2 + (uint64_t)i) - 0.5);
    }
    return digit;
}

/* ---- a fully connected layer ---- */

/* w and grad: `out` rows of in weights and a bias. */
struct mlp_layer {
    int in, out;
    double *w, *grad;
};

/* The layers of the whole MLP; params and grad have MLP_PARAMS elements. */
static inline struct mlp_layer mlp_layer1(double *params, double *grad)
{
    return (struct mlp_layer){MLP_PIXELS, MLP_HIDDEN, params, grad};
}
static inline struct mlp_layer mlp_layer2(double *params, double *grad)
{
    return (struct mlp_layer){MLP_HIDDEN, MLP_CLASSES, params + MLP_LAYER1, grad + MLP_LAYER1};
}

/* The same initial parameters in every process. */
static inline void mlp_init(double *params)
{
    for (int i = 0; i < MLP_PARAMS; i++)
        params[i] = 0.4 * (mlp_random(UINT64_C(1) << 40 | (uint64_t)i) - 0.5);
}

/* y = w x + bias */
static inline void mlp_forward(const struct mlp_layer *l, const double *x, double *y)
{
    for (int o = 0; o < l->out; o++) {
        const double *row = l->w + (ptrdiff_t)o * (l->in + 1);
        double sum = row[l->in];
        for (int i = 0; i < l->in; i++)
            sum += row[i] * x[i];
        y[o] = sum;
    }
}

/* Adds the gradient of the loss to l->grad; dy: its derivative by y. dx: that by x, or NULL. */
static inline void mlp_backward(const struct mlp_layer *l, const double *x, const double *dy,
                                double *dx)
{
    for (int i = 0; dx && i < l->in; i++)
        dx[i] = 0;
    for (int o = 0; o < l->out; o++) {
        ptrdiff_t row = (ptrdiff_t)o * (l->in + 1);
        for (int i = 0; i < l->in; i++) {
            l->grad[row + i] += dy[o] * x[i];
            if (dx)
                dx[i] += dy[o] * l->w[row + i];
        }
        l->grad[row + l->in] += dy[o];
    }
}

static inline void mlp_relu(double *y, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
}

/* The derivative before the ReLU, in place; y: what it returned. */
static inline void mlp_relu_backward(const double *y, double *dy, int n)
{
    for (int i = 0; i < n; i++)
        dy[i] = y[i] > 0 ? dy[i] : 0;
}

/* The cross entropy of softmax(y), whose derivative replaces y. Adds 1 to *right if the largest
 * element of y is that of the label. */
static inline double mlp_loss(double *y, int label, double *right)
{
    int best = 0;
    double sum = 0;
    for (int c = 1; c < MLP_CLASSES; c++)
        best = y[c] > y[best] ? c : best;
    double highest = y[best];
    for (int c = 0; c < MLP_CLASSES; c++)
        sum += exp(y[c] - highest);
    double loss = log(sum) - (y[label] - highest);
    for (int c = 0; c < MLP_CLASSES; c++)
        y[c] = exp(y[c] - highest) / sum - (c == label);
    *right += best == label;
    return loss;
}

/* ---- the whole MLP on one image ---- */

/* Adds the gradient to grad and 1 to *right if the answer is right; returns the loss. */
static inline double mlp_train_image(double *params, double *grad, int64_t index, double *right)
{
    struct mlp_layer first = mlp_layer1(params, grad), second = mlp_layer2(params, grad);
    double x[MLP_PIXELS], hidden[MLP_HIDDEN], y[MLP_CLASSES], dhidden[MLP_HIDDEN];
    int label = mlp_image(index, x);
    mlp_forward(&first, x, hidden);
    mlp_relu(hidden, MLP_HIDDEN);
    mlp_forward(&second, hidden, y);
    double loss = mlp_loss(y, label, right);
    mlp_backward(&second, hidden, y, dhidden);
    mlp_relu_backward(hidden, dhidden, MLP_HIDDEN);
    mlp_backward(&first, x, dhidden, NULL);
    return loss;
}

#endif
