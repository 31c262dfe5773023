/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of paired measurements: the median of ratios, and a confidence interval of the true
 * median for any distribution (order statistics: the inverse of the sign test). It needs at least 9
 * values. Each further look after more rounds is another chance to err, so there are few looks,
 * PAIRED_LOOKS, each at 99.5 %: together they err in less than 4 of 100 rows.
 */
#ifndef TESTS_BENCH_PAIRED_H
#define TESTS_BENCH_PAIRED_H

#include <math.h>
#include <stdlib.h>

/* Rounds after which to look; fewer than 9 cannot give 99.5 %. */
static const unsigned paired_looks[] = {9, 15, 25, 43, 75, 131, 227, 395};
#define PAIRED_LOOKS (sizeof(paired_looks) / sizeof(paired_looks[0]))
#define PAIRED_MOST 395

struct interval {
    double low, median, high;
};

static inline int paired_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many of `n` values to leave out at either end. The normal distribution is close to the
 * binomial one from 1,000 on, where 2^n is too large. */
static inline unsigned paired_outside(unsigned n)
{
    if (n > 1000)
        return (unsigned)((n - 2.81 * sqrt(n)) / 2);
    double term = 1; /* of the binomial distribution B(n, 1/2), times 2^n */
    double all = 1;
    for (unsigned i = 0; i < n; i++)
        all *= 2;
    unsigned outside = 0;
    for (double sum = term; 2 * sum <= 0.005 * all; sum += term) {
        outside++;
        term = term * (n - outside + 1) / outside;
    }
    return outside;
}

/* Sorts `v`. */
static inline struct interval paired_interval(double *v, unsigned n)
{
    qsort(v, n, sizeof(*v), paired_by_value);
    const unsigned outside = paired_outside(n);
    const double median = (v[(n - 1) / 2] + v[n / 2]) / 2;
    if (outside == 0)
        return (struct interval){-INFINITY, median, INFINITY};
    return (struct interval){v[outside - 1], median, v[n - outside]};
}

#endif
