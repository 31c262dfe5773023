/* SPDX-License-Identifier: Apache-2.0 */
#include "html/charts.h"

#include "html/markup.h"

#include <math.h>

#define LEFT 76
#define TOP 16
#define WIDTH 640
#define HEIGHT 220
#define RIGHT 28
#define BOTTOM 40

/* ---- histogram ---- */

void charts_histogram(FILE *out, const struct ops_latency *l)
{
    uint32_t first = OPS_BUCKETS, last = 0, most = 1;
    for (uint32_t i = 0; i < OPS_BUCKETS; i++) {
        if (!l->buckets[i])
            continue;
        first = i < first ? i : first;
        last = i;
        most = l->buckets[i] > most ? l->buckets[i] : most;
    }
    if (first > last)
        return;
    double width = fmin(200.0 / (last - first + 1), 12);
    fputs("<svg class=\"histogram\" viewBox=\"0 0 200 36\" role=\"img\" aria-label=\"histogram of "
          "durations, from ",
          out);
    markup_duration(out, l->least_us);
    fputs(" to ", out);
    markup_duration(out, l->most_us);
    fputs(", logarithmic\">", out);
    for (uint32_t i = first; i <= last; i++) {
        if (!l->buckets[i])
            continue;
        double height = 2 + 32.0 * l->buckets[i] / most;
        fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
                (i - first) * width, 35 - height, fmax(width - 0.5, 0.5), height);
        markup_count(out, l->buckets[i]);
        fputs(" from ", out);
        markup_duration(out, ops_bucket_us(i));
        fputs("</title></rect>", out);
    }
    fputs("<line x1=\"0\" x2=\"200\" y1=\"35.5\" y2=\"35.5\"/></svg>", out);
}

/* ---- frames of larger drawings ---- */

static void charts_open(FILE *out, const char *label)
{
    fprintf(out,
            "<div class=\"scroll\"><svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"%s\">",
            LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM, label);
}

static void charts_line_y(FILE *out, double y)
{
    fprintf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
            LEFT + WIDTH, y, y);
    fprintf(out, "<text class=\"left\" x=\"%d\" y=\"%.1f\">", LEFT - 8, y + 4);
}

static void charts_line_x(FILE *out, double x)
{
    fprintf(out, "<line class=\"grid\" y1=\"%d\" y2=\"%d\" x1=\"%.1f\" x2=\"%.1f\"/>", TOP,
            TOP + HEIGHT, x, x);
    fprintf(out, "<text class=\"below\" x=\"%.1f\" y=\"%d\">", x, TOP + HEIGHT + 18);
}

/* The next of 1, 2, 5, 10, ... */
static double charts_round_up(double value)
{
    double unit = pow(10, floor(log10(value)));
    double part = value / unit;
    return unit * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

void charts_bandwidth(FILE *out, const struct ops_view *v)
{
    double most = 0, seconds = v->slice_us / 1e6;
    uint32_t n = 1;
    for (uint32_t i = 0; i < OPS_SLICES; i++) {
        most = fmax(most, v->slices[i] / seconds);
        n = v->slices[i] > 0 ? i + 1 : n;
    }
    if (most <= 0)
        return;
    double top = charts_round_up(most);
    int steps =
        top / pow(10, floor(log10(top))) > 1.5 && top / pow(10, floor(log10(top))) < 2.5 ? 4 : 5;
    charts_open(out, "bytes per second over time");
    for (int i = 0; i <= steps; i++) {
        charts_line_y(out, TOP + HEIGHT * (1 - (double)i / steps));
        markup_rate(out, top * i / steps);
        fputs("</text>", out);
    }
    for (int i = 0; i <= 5; i++) {
        charts_line_x(out, LEFT + WIDTH * (i / 5.0));
        markup_duration(out, i * (n * v->slice_us) / 5);
        fputs("</text>", out);
    }
    fprintf(out, "<path class=\"area\" d=\"M%d %d", LEFT, TOP + HEIGHT);
    for (uint32_t i = 0; i < n; i++) {
        double y = TOP + HEIGHT * (1 - v->slices[i] / seconds / top);
        fprintf(out, "L%.1f %.1fL%.1f %.1f", LEFT + (double)WIDTH * i / n, y,
                LEFT + (double)WIDTH * (i + 1) / n, y);
    }
    fprintf(out, "L%d %dZ\"/></svg></div>", LEFT + WIDTH, TOP + HEIGHT);
}

/* ---- log-log ---- */

struct charts_range {
    double low, high; /* exponents */
};

static void charts_range_add(struct charts_range *r, double value)
{
    r->low = fmin(r->low, log10(value));
    r->high = fmax(r->high, log10(value));
}

static bool charts_is_drawn(const struct charts_point *p)
{
    return p->x > 0 && p->y > 0 && isfinite(p->x) && isfinite(p->y);
}

static double charts_x(const struct charts_range *r, double value)
{
    return LEFT + WIDTH * (log10(value) - r->low) / (r->high - r->low);
}

static double charts_y(const struct charts_range *r, double value)
{
    return TOP + HEIGHT * (1 - (log10(value) - r->low) / (r->high - r->low));
}

static void charts_grid(FILE *out, const struct charts_axes *axes, const struct charts_range *x,
                        const struct charts_range *y)
{
    int step = (int)ceil((y->high - y->low) / 6);
    for (int e = (int)y->low; e <= (int)y->high; e += step) {
        charts_line_y(out, charts_y(y, pow(10, e)));
        axes->y_value(out, pow(10, e));
        fputs("</text>", out);
    }
    int power = (int)floor(x->low * log2(10) + 0.5), last = (int)(x->high * log2(10) + 0.5);
    int stride = (last - power + 7) / 8;
    for (; power <= last; power += stride > 0 ? stride : 1) {
        charts_line_x(out, charts_x(x, exp2(power)));
        axes->x_value(out, exp2(power));
        fputs("</text>", out);
    }
    fprintf(out, "<text class=\"axis\" x=\"%d\" y=\"%d\">%s</text>", LEFT + WIDTH / 2,
            TOP + HEIGHT + 36, axes->x);
}

static void charts_draw(FILE *out, const struct charts_series *s, const struct charts_range *x,
                        const struct charts_range *y)
{
    const char *command = "M";
    fprintf(out, "<path class=\"line s%u d%u%s\" d=\"", s->colour % 8, s->colour / 8 % 3,
            s->other ? " other" : "");
    for (uint32_t i = 0; i < s->n; i++) {
        if (!charts_is_drawn(&s->points[i]))
            continue;
        fprintf(out, "%s%.1f %.1f", command, charts_x(x, s->points[i].x),
                charts_y(y, s->points[i].y));
        command = "L";
    }
    fputs("\"><title>", out);
    markup_text(out, s->name);
    fputs("</title></path>", out);
}

static void charts_legend(FILE *out, const struct charts_series *series, uint32_t n)
{
    fputs("<ul class=\"legend\">", out);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(out,
                "<li><svg class=\"sample\" viewBox=\"0 0 22 8\" aria-hidden=\"true\">"
                "<path class=\"line s%u d%u%s\" d=\"M0 4H22\"/></svg>",
                series[i].colour % 8, series[i].colour / 8 % 3, series[i].other ? " other" : "");
        markup_text(out, series[i].name);
        fputs("</li>", out);
    }
    fputs("</ul>", out);
}

void charts_log_log(FILE *out, const struct charts_axes *axes, const struct charts_series *series,
                    uint32_t n)
{
    struct charts_range x = {HUGE_VAL, -HUGE_VAL}, y = x;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < series[i].n; k++) {
            if (!charts_is_drawn(&series[i].points[k]))
                continue;
            charts_range_add(&x, series[i].points[k].x);
            charts_range_add(&y, series[i].points[k].y);
        }
    }
    if (x.low > x.high)
        return;
    y.low = floor(y.low);
    y.high = fmax(ceil(y.high), y.low + 1);
    x.high = fmax(x.high, x.low + 0.1);
    fprintf(out, "<h4>%s</h4>", axes->title);
    charts_open(out, axes->title);
    charts_grid(out, axes, &x, &y);
    for (uint32_t i = 0; i < n; i++)
        charts_draw(out, &series[i], &x, &y);
    fputs("</svg></div>", out);
    charts_legend(out, series, n);
}
