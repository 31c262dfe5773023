/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the live line. Its parts are ordered by importance; the line is cut at the width of the
 * terminal.
 */
#include "report/live.h"

#include "base/debug.h"
#include "base/quote.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull
#define REDRAW_NS (SECOND_NS / 5)
#define RATE_NS (SECOND_NS * 4 / 5)

static void live_on_timer(struct loop_timer *t);

void live_init(struct live *l, struct loop *loop, const struct desc *desc,
               const struct rank_state *ranks, struct console *console, bool quiet)
{
    const char *term = getenv("TERM");
    *l = (struct live){.loop = loop, .desc = desc, .ranks = ranks, .console = console};
    l->on = !quiet && !desc->terminal.used && isatty(STDERR_FILENO) && term &&
            strcmp(term, "dumb") != 0 && !debug_areas();
    l->begin_ns = now_ns();
    arena_init(&l->arena);
    l->groups = arena_calloc(&l->arena, desc->ngroups, sizeof *l->groups);
    l->workloads = arena_calloc(&l->arena, desc->nworkloads, sizeof *l->workloads);
    for (uint32_t i = 0; i < desc->nworkloads; i++) {
        l->workloads[i].done = arena_calloc(&l->arena, desc->nranks, sizeof(uint64_t));
        l->workloads[i].total = arena_calloc(&l->arena, desc->nranks, sizeof(uint64_t));
    }
    l->timer = (struct loop_timer){.fired = live_on_timer, .owner = l};
    if (l->on)
        loop_timer_set(loop, &l->timer, SECOND_NS);
}

static void live_put(struct live *l, const char *text)
{
    console_put(l->console, STDERR_FILENO, text, strlen(text));
    console_push(l->console);
}

void live_wipe(struct live *l)
{
    if (!l->drawn)
        return;
    l->drawn = false;
    live_put(l, "\r\033[K");
}

void live_fini(struct live *l)
{
    if (l->loop && l->on)
        loop_timer_clear(l->loop, &l->timer);
    live_wipe(l);
    arena_fini(&l->arena);
}

static double live_sum(const struct live *l, const uint64_t *of_rank)
{
    double all = 0;
    for (uint32_t r = 0; r < l->desc->nranks; r++)
        all += (double)of_rank[r];
    return all;
}

void live_progress(struct live *l, uint64_t now, const struct live_step *step)
{
    if (step->workload >= l->desc->nworkloads || step->rank >= l->desc->nranks)
        return;
    struct live_workload *w = &l->workloads[step->workload];
    bool first = !w->total[step->rank];
    w->done[step->rank] = step->done < step->total ? step->done : step->total;
    w->total[step->rank] = step->total;
    utf8_clean(w->what, sizeof w->what, step->what, strlen(step->what));
    if (first) {
        w->at_first = live_sum(l, w->done);
        w->first_ns = now;
    }
}

/* Rates are updated at most every RATE_NS, so that they do not flicker. */
static void live_update_rates(struct live_group *g, uint64_t now)
{
    double seconds = (double)(now - g->then_ns) / 1e9;
    if (g->then_ns && now - g->then_ns < RATE_NS)
        return;
    if (g->then_ns) {
        g->operations_per_s = (double)(g->operations - g->then_operations) / seconds;
        g->bytes_per_s = (double)(g->bytes - g->then_bytes) / seconds;
        g->has_rates = true;
    }
    g->then_operations = g->operations;
    g->then_bytes = g->bytes;
    g->then_ns = now;
}

void live_snapshot(struct live *l, uint64_t now, const struct rank_snapshot *snapshot)
{
    for (uint32_t i = 0; i < l->desc->ngroups; i++) {
        struct live_group *g = &l->groups[i];
        uint64_t bytes = 0, operations = snapshot_total(snapshot, l->desc->groups[i].name, &bytes);
        g->operations = operations > g->operations ? operations : g->operations;
        g->bytes = bytes > g->bytes ? bytes : g->bytes;
        if (snapshot_has_group(snapshot, l->desc->groups[i].name))
            live_update_rates(g, now);
    }
}

void live_waits(struct live *l, const char *text)
{
    snprintf(l->waits, sizeof l->waits, "%s", text);
}

/* ---- the parts ---- */

static void live_add(char *out, size_t size, const char *part)
{
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s%s", len ? " | " : "", part);
}

static void live_add_workload(struct live *l, uint32_t i, uint64_t now, char *out, size_t size)
{
    struct live_workload *w = &l->workloads[i];
    double done = live_sum(l, w->done), total = live_sum(l, w->total);
    char part[256], left[32], eta[48] = "";
    if (total <= 0)
        return;
    double seconds = (double)(now - w->first_ns) / 1e9, since = done - w->at_first;
    if (since > 0 && done < total && seconds > 1) {
        units_duration(left, sizeof left, seconds / since * (total - done));
        snprintf(eta, sizeof eta, ", %s left", left);
    }
    snprintf(part, sizeof part, "%s %.0f%%%s%s%s", l->desc->workloads[i].name, 100 * done / total,
             w->what[0] ? " " : "", w->what, eta);
    live_add(out, size, part);
}

static void live_add_group(const struct live *l, uint32_t i, char *out, size_t size)
{
    const struct live_group *g = &l->groups[i];
    char operations[32], bytes[32], part[160];
    if (!g->operations || !g->has_rates)
        return;
    units_scaled(operations, sizeof operations, g->operations_per_s);
    units_scaled(bytes, sizeof bytes, g->bytes_per_s);
    snprintf(part, sizeof part, "%s %s op/s", l->desc->groups[i].name, operations);
    live_add(out, size, part);
    if (!g->bytes) /* barriers alone */
        return;
    size_t len = strlen(out);
    snprintf(out + len, size - len, " %sB/s", bytes);
}

uint32_t live_up(const struct live *l)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < l->desc->nranks; r++)
        n += l->ranks[r].pid && l->ranks[r].end == RANK_LIVES;
    return n;
}

/* Cuts the line at `width` columns; ">" marks the cut. */
static void live_cut(char *line, size_t width)
{
    size_t at = 0, last = 0, columns = 0;
    while (line[at] && columns < width) {
        size_t len = utf8_len(line + at, strlen(line + at));
        last = at;
        at += len ? len : 1;
        columns += len > 2 ? 2 : 1; /* at most */
    }
    if (line[at])
        snprintf(line + last, 2, "%s", columns > 1 ? ">" : "");
}

void live_format(struct live *l, uint64_t now, size_t width, char *out, size_t size)
{
    char part[96];
    char time[32];
    out[0] = '\0';
    units_duration(time, sizeof time, (double)(now - l->begin_ns) / 1e9);
    snprintf(part, sizeof part, "%s | %u/%u ranks up", time, live_up(l), l->desc->nranks);
    live_add(out, size, part);
    if (l->waits[0])
        live_add(out, size, l->waits);
    for (uint32_t i = 0; i < l->desc->nworkloads; i++)
        live_add_workload(l, i, now, out, size);
    for (uint32_t i = 0; i < l->desc->ngroups; i++)
        live_add_group(l, i, out, size);
    live_cut(out, width);
}

static void live_on_timer(struct loop_timer *t)
{
    struct live *l = t->owner;
    struct winsize w = {0};
    char line[1024], text[1040];
    loop_timer_set(l->loop, t, REDRAW_NS);
    if (!console_ready(l->console) || console_part_is_open(l->console, STDERR_FILENO))
        return;
    size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79;
    live_format(l, now_ns(), width, line, sizeof line);
    snprintf(text, sizeof text, "\r%s\033[K", line);
    l->drawn = false; /* live_put must not wipe the old line: this text replaces it */
    live_put(l, text);
    l->drawn = true;
}

/* ---- units ---- */

void units_scaled(char *out, size_t size, double v)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t unit = 0;
    while (v >= 999.5 && unit < 4) {
        v /= 1000;
        unit++;
    }
    snprintf(out, size, v < 9.95 && unit ? "%.1f%s" : "%.0f%s", v, units[unit]);
}

void units_duration(char *out, size_t size, double seconds)
{
    unsigned long t = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 1000000000u;
    if (t < 60)
        snprintf(out, size, "%lus", t);
    else if (t < 3600)
        snprintf(out, size, "%lum%02lus", t / 60, t % 60);
    else
        snprintf(out, size, "%luh%02lum", t / 3600, t % 3600 / 60);
}
