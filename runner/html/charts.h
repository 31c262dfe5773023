/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawings as SVG inside the page. They need no script; page.css gives them their colours.
 */
#ifndef RUNNER_HTML_CHARTS_H
#define RUNNER_HTML_CHARTS_H

#include "html/ops.h"

#include <stdio.h>

/* How often which duration, over a logarithmic axis. */
void charts_histogram(FILE *out, const struct ops_latency *l);

/* Bytes per second over time. */
void charts_bandwidth(FILE *out, const struct ops_view *v);

struct charts_point {
    double x, y; /* > 0; others are left out */
};
struct charts_series {
    const char *name; /* escaped here */
    bool other;       /* of the run that is compared with: dashed */
    uint32_t colour;  /* equal for one thing in two runs */
    struct charts_point *points;
    uint32_t n;
};
struct charts_axes {
    const char *title, *x, *y; /* constants */
    void (*x_value)(FILE *out, double value);
    void (*y_value)(FILE *out, double value);
};
/* Lines over logarithmic axes; at most 64 series. */
void charts_log_log(FILE *out, const struct charts_axes *axes, const struct charts_series *series,
                    uint32_t n);

#endif
