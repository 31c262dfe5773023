/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawing the live line. Its parts are put together from left to right, most useful first, and what
 * does not fit the terminal's width is cut.
 */
#include "tell/live.h"

#include "base/quote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull
#define REDRAW_NS (SECOND_NS / 5)
#define RATE_NS (SECOND_NS * 4 / 5)

static void on_timer(struct loop_timer *t);

int live_init(struct live *l, struct loop *loop, const struct desc *desc, struct console *console,
              bool quiet)
{
    const char *term = getenv("TERM");
    *l = (struct live){.loop = loop, .desc = desc, .console = console};
    l->on = !quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    l->begin_ns = now_ns();
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

static void put(struct live *l, const char *text)
{
    console_put(l->console, STDERR_FILENO, text, strlen(text));
    console_push(l->console);
}

void live_wipe(struct live *l)
{
    if (!l->drawn)
        return;
    l->drawn = false;
    put(l, "\r\033[K");
}

void live_fini(struct live *l)
{
    if (l->loop && l->on)
        loop_timer_clear(l->loop, &l->timer);
    live_wipe(l);
    arena_fini(&l->arena);
}

static double sum(const struct live *l, const uint64_t *of_rank)
{
    double all = 0;
    for (uint32_t r = 0; r < l->desc->nranks; r++)
        all += (double)of_rank[r];
    return all;
}

/* A rank's words, on one line of a terminal. */
static void take_words(char *to, size_t size, const char *what)
{
    size_t n = 0;
    for (size_t step; *what && n + 4 < size; what += step) {
        size_t len = utf8_len(what, strlen(what));
        step = len ? len : 1;
        if (len > 1 || (len == 1 && (unsigned char)*what >= 0x20 && *what != 0x7f)) {
            memcpy(to + n, what, len);
            n += len;
        } else {
            to[n++] = '?';
        }
    }
    to[n] = '\0';
}

void live_progress(struct live *l, uint64_t now, uint32_t rank, uint32_t workload, uint64_t done,
                   uint64_t total, const char *what)
{
    if (workload >= l->desc->nworkloads || rank >= l->desc->nranks)
        return;
    struct live_work *w = &l->works[workload];
    bool first = !w->total[rank];
    w->done[rank] = done < total ? done : total;
    w->total[rank] = total;
    take_words(w->what, sizeof w->what, what);
    if (first) {
        w->at_first = sum(l, w->done);
        w->first_ns = now;
    }
}

/* Over at least so long: shorter ones only flicker. */
static void take_rates(struct live_group *g, uint64_t now)
{
    double seconds = (double)(now - g->then_ns) / 1e9;
    if (g->then_ns && now - g->then_ns < RATE_NS)
        return;
    if (g->then_ns) {
        g->operations_per_s = (double)(g->operations - g->then_operations) / seconds;
        g->bytes_per_s = (double)(g->bytes - g->then_bytes) / seconds;
        g->rated = true;
    }
    g->then_operations = g->operations;
    g->then_bytes = g->bytes;
    g->then_ns = now;
}

void live_seen(struct live *l, uint64_t now, const struct seen *seen)
{
    for (uint32_t i = 0; i < l->desc->ngroups; i++) {
        struct live_group *g = &l->groups[i];
        uint64_t bytes = 0, operations = seen_total(seen, l->desc->groups[i].name, &bytes);
        g->operations = operations > g->operations ? operations : g->operations;
        g->bytes = bytes > g->bytes ? bytes : g->bytes;
        if (seen_member(seen, l->desc->groups[i].name))
            take_rates(g, now);
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

/* 200 -> "3m20s" */
static void rough_time(char *out, size_t size, double seconds)
{
    unsigned long t = seconds < 1e9 ? (unsigned long)(seconds + 0.5) : 1000000000u;
    if (t < 60)
        snprintf(out, size, "%lus", t);
    else if (t < 3600)
        snprintf(out, size, "%lum%02lus", t / 60, t % 60);
    else
        snprintf(out, size, "%luh%02lum", t / 3600, t % 3600 / 60);
}

static void add_work(struct live *l, uint32_t i, uint64_t now, char *out, size_t size)
{
    struct live_work *w = &l->works[i];
    double done = sum(l, w->done), total = sum(l, w->total);
    char part[256], left[32], eta[48] = "";
    if (total <= 0)
        return;
    double seconds = (double)(now - w->first_ns) / 1e9, since = done - w->at_first;
    if (since > 0 && done < total && seconds > 1) {
        rough_time(left, sizeof left, seconds / since * (total - done));
        snprintf(eta, sizeof eta, ", %s left", left);
    }
    snprintf(part, sizeof part, "%s %.0f%%%s%s%s", l->desc->workloads[i].name, 100 * done / total,
             w->what[0] ? " " : "", w->what, eta);
    add(out, size, part);
}

static void add_group(const struct live *l, uint32_t i, char *out, size_t size)
{
    const struct live_group *g = &l->groups[i];
    char operations[32], bytes[32], part[160];
    if (!g->operations || !g->rated)
        return;
    scaled(operations, sizeof operations, g->operations_per_s);
    scaled(bytes, sizeof bytes, g->bytes_per_s);
    snprintf(part, sizeof part, "%s %s op/s", l->desc->groups[i].name, operations);
    add(out, size, part);
    if (!g->bytes) /* barriers alone */
        return;
    size_t len = strlen(out);
    snprintf(out + len, size - len, " %sB/s", bytes);
}

/* To so many characters; the last one says that there would be more. */
static void cut(char *line, size_t width)
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
    rough_time(time, sizeof time, (double)(now - l->begin_ns) / 1e9);
    snprintf(part, sizeof part, "%s | %u/%u ranks up", time, l->up, l->desc->nranks);
    add(out, size, part);
    for (uint32_t i = 0; i < l->desc->nworkloads; i++)
        add_work(l, i, now, out, size);
    for (uint32_t i = 0; i < l->desc->ngroups; i++)
        add_group(l, i, out, size);
    cut(out, width);
}

static void on_timer(struct loop_timer *t)
{
    struct live *l = t->owner;
    struct winsize w = {0};
    char line[1024], text[1040];
    loop_timer_set(l->loop, t, REDRAW_NS);
    if (!console_ready(l->console))
        return;
    size_t width = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79;
    live_format(l, now_ns(), width, line, sizeof line);
    snprintf(text, sizeof text, "\r%s\033[K", line);
    l->drawn = false; /* nothing is to be wiped for this */
    put(l, text);
    l->drawn = true;
}
