/* SPDX-License-Identifier: Apache-2.0
 *
 * What paired measurements say: the median of ratios, and between which ends the true median lies,
 * whatever the distribution (order statistics: the sign test turned round); fewer than 9 values
 * leave it open. Looking again after more rounds gives chance another go, so there are few looks,
 * PAIRED_LOOKS, each at 99.5 %: all of them together err in less than 4 of 100 rows.
 */
#ifndef TESTS_BENCH_PAIRED_H
#define TESTS_BENCH_PAIRED_H

#include <math.h>
#include <stdlib.h>

/* Rounds after which to look; before the first, 99.5 % cannot be had. */
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

/* Sorts `v`. */
static inline struct interval paired_interval(double *v, unsigned n)
{
    qsort(v, n, sizeof(*v), paired_by_value);
    double term = 1; /* of the binomial distribution B(n, 1/2), times 2^n */
    double all = 1;
    for (unsigned i = 0; i < n; i++)
        all *= 2;
    unsigned outside = 0; /* values to leave out at either end */
    for (double sum = term; 2 * sum <= 0.005 * all; sum += term) {
        outside++;
        term = term * (n - outside + 1) / outside;
    }
    const double median = (v[(n - 1) / 2] + v[n / 2]) / 2;
    if (outside == 0)
        return (struct interval){-INFINITY, median, INFINITY};
    return (struct interval){v[outside - 1], median, v[n - outside]};
}

#endif
