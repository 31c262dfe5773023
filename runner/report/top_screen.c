/* SPDX-License-Identifier: Apache-2.0 */
#include "report/top_screen.h"

#include "base/quote.h"
#include "report/units.h"

#include <string.h>

enum top_style { TOP_PLAIN, TOP_BOLD, TOP_WARNING, TOP_ERROR };

struct top_screen {
    const struct top_view *view;
    FILE *out;
    size_t lines, columns; /* that were written; columns of this line */
};

/* ---- lines and cells ---- */

/* Writes a text as far as the line has room. */
static void top_put(struct top_screen *s, enum top_style style, const char *text)
{
    static const char *const codes[] = {"", "\033[1m", "\033[33m", "\033[31m"};
    char harmless[512];
    size_t at = 0, width = s->view->width;
    utf8_clean(harmless, sizeof harmless, text, strlen(text));
    while (harmless[at] && (!width || s->columns < width)) {
        size_t len = utf8_len(harmless + at, strlen(harmless + at));
        size_t columns = len > 2 ? 2 : 1; /* at most */
        if (width && s->columns + columns > width)
            break;
        s->columns += columns;
        at += len ? len : 1;
    }
    bool colored = s->view->color && style != TOP_PLAIN;
    fprintf(s->out, "%s%.*s%s", colored ? codes[style] : "", (int)at, harmless,
            colored ? "\033[0m" : "");
}

/* A cell of a table; a negative width: at the right end. Two spaces follow. */
static void top_put_cell(struct top_screen *s, enum top_style style, int width, const char *text)
{
    char cell[160];
    snprintf(cell, sizeof cell, width < 0 ? "%*.*s  " : "%-*.*s  ", width < 0 ? -width : width,
             width < 0 ? -width : width, text);
    top_put(s, style, cell);
}

static bool top_has_room(const struct top_screen *s)
{
    return !s->view->height || s->lines < s->view->height;
}

static void top_end_line(struct top_screen *s)
{
    fputc('\n', s->out);
    s->lines++;
    s->columns = 0;
}

static void top_put_line(struct top_screen *s, enum top_style style, const char *text)
{
    if (!top_has_room(s))
        return;
    top_put(s, style, text);
    top_end_line(s);
}

/* ---- members of the state ---- */

static const char *top_text(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text ? text : "";
}

static double top_number(const json_t *o, const char *name)
{
    return json_number_value(json_object_get(o, name));
}

static bool top_is_known(const json_t *o, const char *name)
{
    return json_is_number(json_object_get(o, name));
}

/* "12 us", "3.4 ms", "-" if it is not known. */
static void top_latency(const json_t *o, const char *name, char *out, size_t size)
{
    double us = top_number(o, name);
    if (!top_is_known(o, name))
        snprintf(out, size, "-");
    else if (us < 1e3)
        snprintf(out, size, us < 9.95 ? "%.1f us" : "%.0f us", us);
    else if (us < 1e6)
        snprintf(out, size, us < 9.95e3 ? "%.1f ms" : "%.0f ms", us / 1e3);
    else
        snprintf(out, size, "%.1f s", us / 1e6);
}

static void top_scaled(const json_t *o, const char *name, const char *unit, char out[48])
{
    char number[32];
    units_scaled(number, sizeof number, top_number(o, name));
    if (!top_is_known(o, name))
        snprintf(out, 48, "-");
    else
        snprintf(out, 48, "%s%s%s", number, *unit && !strchr(number, ' ') ? " " : "", unit);
}

/* ---- the head ---- */

static void top_put_workloads(struct top_screen *s, const json_t *state)
{
    const json_t *list = json_object_get(state, "workloads");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *w = json_array_get(list, i);
        char line[512];
        double total = top_number(w, "total");
        if (total <= 0)
            continue;
        snprintf(line, sizeof line, "%.128s %.0f%% %.128s", top_text(w, "name"),
                 100 * top_number(w, "done") / total, top_text(w, "what"));
        top_put_line(s, TOP_PLAIN, line);
    }
}

static void top_put_head(struct top_screen *s, const json_t *state)
{
    char line[512], time[32], attempt[48] = "";
    units_duration(time, sizeof time, top_number(state, "seconds"));
    if (top_number(state, "attempt") > 0)
        snprintf(attempt, sizeof attempt, "  attempt %.0f", top_number(state, "attempt"));
    snprintf(line, sizeof line, "%.128s  %.128s  %s%s  %.0f/%zu ranks up", top_text(state, "job"),
             top_text(state, "run_id"), time, attempt, top_number(state, "up"),
             json_array_size(json_object_get(state, "ranks")));
    top_put_line(s, TOP_BOLD, line);
    if (top_text(state, "waits")[0])
        top_put_line(s, TOP_WARNING, top_text(state, "waits"));
    top_put_workloads(s, state);
}

/* ---- the tables ---- */

/* As wide as the widest text of the column, at most `most`. */
static int top_width(const json_t *list, const char *name, size_t least, size_t most)
{
    size_t width = least;
    for (size_t i = 0; i < json_array_size(list); i++) {
        size_t len = strlen(top_text(json_array_get(list, i), name));
        width = len > width ? len : width;
    }
    return (int)(width < most ? width : most);
}

static void top_put_last(struct top_screen *s, const json_t *last)
{
    char text[128];
    if (!json_is_object(last)) {
        top_put(s, TOP_PLAIN, "-");
        return;
    }
    double share = top_number(last, "share"), late_ms = top_number(last, "late_ms");
    snprintf(text, sizeof text, "rank %.0f, %.0f%% of calls, %.*f ms late",
             top_number(last, "rank"), 100 * share, late_ms < 9.95 ? 1 : 0, late_ms);
    top_put(s, share > 0.5 && late_ms >= 1 ? TOP_WARNING : TOP_PLAIN, text);
}

static void top_put_group(struct top_screen *s, const json_t *g, int name, int backend)
{
    char text[48];
    top_put_cell(s, TOP_PLAIN, name, top_text(g, "name"));
    snprintf(text, sizeof text, "%.0f", top_number(g, "ranks"));
    top_put_cell(s, TOP_PLAIN, -5, text);
    top_put_cell(s, TOP_PLAIN, backend, top_text(g, "backend"));
    top_scaled(g, "operations_per_s", "", text);
    top_put_cell(s, TOP_PLAIN, -6, text);
    top_scaled(g, "bytes_per_s", "B", text);
    top_put_cell(s, TOP_PLAIN, -7, text);
    top_latency(g, "latency_us", text, sizeof text);
    top_put_cell(s, TOP_PLAIN, -7, text);
    top_latency(g, "longest_us", text, sizeof text);
    top_put_cell(s, TOP_PLAIN, -7, text);
    top_put_last(s, json_object_get(g, "last"));
    top_end_line(s);
}

/* At most half of the screen. */
static void top_put_groups(struct top_screen *s, const json_t *list)
{
    size_t n = json_array_size(list), most = s->view->height ? s->view->height / 2 : n;
    int name = top_width(list, "name", 5, 32), backend = top_width(list, "backend", 7, 16);
    char line[200];
    top_put_line(s, TOP_PLAIN, "");
    snprintf(line, sizeof line, "%-*s  %5s  %-*s  %6s  %7s  %7s  %7s  %s", name, "GROUP", "RANKS",
             backend, "BACKEND", "OP/S", "B/S", "LATENCY", "LONGEST", "LAST TO ARRIVE");
    top_put_line(s, TOP_BOLD, line);
    for (size_t i = 0; i < n && top_has_room(s); i++) {
        if (i + 1 >= most && n > most) {
            snprintf(line, sizeof line, "%zu more groups", n - i);
            top_put_line(s, TOP_PLAIN, line);
            return;
        }
        top_put_group(s, json_array_get(list, i), name, backend);
    }
}

static enum top_style top_style_of(const json_t *r)
{
    const char *state = top_text(r, "state");
    bool failed = strcmp(state, "exited") == 0 && strcmp(top_text(r, "doing"), "with code 0") != 0;
    return failed || strcmp(state, "killed") == 0 || strcmp(state, "stopped") == 0 ? TOP_ERROR
                                                                                   : TOP_PLAIN;
}

static void top_put_rank(struct top_screen *s, const json_t *r, int host, int state)
{
    char text[48], for_s[48] = "";
    snprintf(text, sizeof text, "%.0f", top_number(r, "rank"));
    top_put_cell(s, TOP_PLAIN, -4, text);
    top_put_cell(s, TOP_PLAIN, host, top_text(r, "host"));
    snprintf(text, sizeof text, "%.0f", top_number(r, "pid"));
    top_put_cell(s, TOP_PLAIN, -7, text);
    top_put_cell(s, top_style_of(r), state, top_text(r, "state"));
    snprintf(text, sizeof text, top_is_known(r, "cpu") ? "%.0f%%" : "-",
             100 * top_number(r, "cpu"));
    top_put_cell(s, TOP_PLAIN, -5, text);
    top_scaled(r, "memory", "B", text);
    top_put_cell(s, TOP_PLAIN, -6, text);
    if (top_number(r, "seconds") >= 0.95)
        snprintf(for_s, sizeof for_s, ", for %.0f s", top_number(r, "seconds"));
    top_put(s, TOP_PLAIN, top_text(r, "doing"));
    top_put(s, TOP_PLAIN, for_s);
    top_end_line(s);
}

/* Returns how many. If some have no room, the last line says so. */
static size_t top_put_ranks(struct top_screen *s, const json_t *list)
{
    size_t n = json_array_size(list), first = s->view->first < n ? s->view->first : 0, i = first;
    int host = top_width(list, "host", 4, 24), state = top_width(list, "state", 5, 20);
    char line[200];
    top_put_line(s, TOP_PLAIN, "");
    snprintf(line, sizeof line, "%4s  %-*s  %7s  %-*s  %5s  %6s  %s", "RANK", host, "HOST", "PID",
             state, "STATE", "CPU", "MEMORY", "DOING");
    top_put_line(s, TOP_BOLD, line);
    bool all = !s->view->height || (!first && s->lines + n <= s->view->height);
    for (; i < n && top_has_room(s) && (all || s->lines + 1 < s->view->height); i++)
        top_put_rank(s, json_array_get(list, i), host, state);
    snprintf(line, sizeof line, "ranks %zu-%zu of %zu: up and down scroll, q quits", first,
             i > first ? i - 1 : first, n);
    if (!all)
        top_put_line(s, TOP_PLAIN, line);
    return i - first;
}

size_t top_screen_draw(const json_t *state, const struct top_view *view, FILE *out)
{
    struct top_screen s = {.view = view, .out = out};
    top_put_head(&s, state);
    top_put_groups(&s, json_object_get(state, "groups"));
    return top_put_ranks(&s, json_object_get(state, "ranks"));
}
