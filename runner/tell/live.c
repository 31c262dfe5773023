/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawing the live line. Its parts are put together from left to right, most useful first, and what
 * does not fit the terminal's width is cut.
 */
#include "tell/live.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull
#define REDRAW_NS (SECOND_NS / 5)

static void on_timer(struct loop_timer *t);

int live_init(struct live *l, struct loop *loop, const struct desc *desc, FILE *out, bool quiet)
{
    const char *term = getenv("TERM");
    *l = (struct live){.loop = loop, .desc = desc, .out = out};
    l->on = !quiet && isatty(fileno(out)) && term && strcmp(term, "dumb") != 0;
    l->begin_ns = l->shown_ns = now_ns();
    arena_init(&l->arena);
    l->groups = arena_calloc(&l->arena, desc->ngroups, sizeof *l->groups);
    l->works = arena_calloc(&l->arena, desc->nworkloads, sizeof *l->works);
    for (uint32_t i = 0; l->works && i < desc->nworkloads; i++) {
        l->works[i].done = arena_calloc(&l->arena, desc->nranks, sizeof(uint64_t));
        l->works[i].total = arena_calloc(&l->arena, desc->nranks, sizeof(uint64_t));
    }
    if (arena_failed(&l->arena))
        return COLLRUN_ERR_NO_MEMORY;
    l->timer = (struct loop_timer){.fired = on_timer, .owner = l};
    if (l->on)
        loop_timer_set(loop, &l->timer, SECOND_NS);
    return COLLRUN_OK;
}

void live_wipe(struct live *l)
{
    if (!l->drawn)
        return;
    fputs("\r\033[K", l->out);
    fflush(l->out);
    l->drawn = false;
}

void live_fini(struct live *l)
{
    if (l->loop && l->on)
        loop_timer_clear(l->loop, &l->timer);
    live_wipe(l);
    arena_fini(&l->arena);
}

void live_progress(struct live *l, uint32_t rank, uint32_t workload, uint64_t done, uint64_t total,
                   const char *what)
{
    if (workload >= l->desc->nworkloads || rank >= l->desc->nranks)
        return;
    struct live_work *w = &l->works[workload];
    if (!w->first_ns)
        w->first_ns = now_ns();
    w->done[rank] = done < total ? done : total;
    w->total[rank] = total;
    snprintf(w->what, sizeof w->what, "%s", what);
}

void live_seen(struct live *l, const char *group, uint64_t operations, uint64_t bytes)
{
    for (uint32_t i = 0; i < l->desc->ngroups; i++) {
        struct live_group *g = &l->groups[i];
        if (strcmp(l->desc->groups[i].name, group) != 0)
            continue;
        g->operations = operations > g->operations ? operations : g->operations;
        g->bytes = bytes > g->bytes ? bytes : g->bytes;
        return;
    }
}

/* ---- the parts ---- */

static void add(char *out, size_t size, const char *part)
{
    size_t len = strlen(out);
    snprintf(out + len, size - len, "%s%s", len ? " | " : "", part);
}

/* 1234567 -> "1.2 M" */
static void scaled(char *out, size_t size, double v)
{
    static const char *const units[] = {"", " k", " M", " G", " T"};
    size_t unit = 0;
    while (v >= 999.5 && unit < 4) {
        v /= 1000;
        unit++;
    }
    snprintf(out, size, v < 9.95 && unit ? "%.1f%s" : "%.0f%s", v, units[unit]);
}

static void add_work(struct live *l, uint32_t i, uint64_t now, char *out, size_t size)
{
    struct live_work *w = &l->works[i];
    double done = 0, total = 0;
    char part[160], eta[48] = "";
    for (uint32_t r = 0; r < l->desc->nranks; r++) {
        done += (double)w->done[r];
        total += (double)w->total[r];
    }
    if (total <= 0)
        return;
    double seconds = (double)(now - w->first_ns) / 1e9;
    if (done > 0 && done < total && seconds > 1)
        snprintf(eta, sizeof eta, ", %.0f s left", seconds / done * (total - done));
    snprintf(part, sizeof part, "%s %.0f%%%s%s%s", l->desc->workloads[i].name, 100 * done / total,
             w->what[0] ? " " : "", w->what, eta);
    add(out, size, part);
}

static void add_group(struct live *l, uint32_t i, double seconds, char *out, size_t size)
{
    struct live_group *g = &l->groups[i];
    char operations[32], bytes[32], part[160];
    if (seconds > 0) {
        g->operations_per_s = (double)(g->operations - g->shown_operations) / seconds;
        g->bytes_per_s = (double)(g->bytes - g->shown_bytes) / seconds;
        g->shown_operations = g->operations;
        g->shown_bytes = g->bytes;
    }
    if (g->operations_per_s <= 0)
        return;
    scaled(operations, sizeof operations, g->operations_per_s);
    scaled(bytes, sizeof bytes, g->bytes_per_s);
    snprintf(part, sizeof part, "%s %s op/s %sB/s", l->desc->groups[i].name, operations, bytes);
    add(out, size, part);
}

void live_format(struct live *l, uint64_t now, size_t width, char *out, size_t size)
{
    char part[96];
    double seconds = (double)(now - l->shown_ns) / 1e9;
    out[0] = '\0';
    snprintf(part, sizeof part, "%.0f s | %u/%u ranks up", (double)(now - l->begin_ns) / 1e9, l->up,
             l->desc->nranks);
    add(out, size, part);
    for (uint32_t i = 0; i < l->desc->nworkloads; i++)
        add_work(l, i, now, out, size);
    /* Rates over at least a second: shorter ones only flicker. */
    for (uint32_t i = 0; i < l->desc->ngroups; i++)
        add_group(l, i, seconds >= 1 ? seconds : 0, out, size);
    if (seconds >= 1)
        l->shown_ns = now;
    if (strlen(out) > width)
        out[width] = '\0';
}

static void on_timer(struct loop_timer *t)
{
    struct live *l = t->owner;
    struct winsize w = {0};
    char line[1024];
    size_t width = ioctl(fileno(l->out), TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79;
    live_format(l, now_ns(), width, line, sizeof line);
    fprintf(l->out, "\r%s\033[K", line);
    fflush(l->out);
    l->drawn = true;
    loop_timer_set(l->loop, t, REDRAW_NS);
}
