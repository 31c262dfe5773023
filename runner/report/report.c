/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints diags. The excerpt is one line. A long line is cut to a window around the place; tabs and
 * unprintable bytes become single characters, so that the caret is below its place.
 */
#include "report/report.h"

#include "base/quote.h"
#include "spec/secrets.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 100 }; /* characters of a line that are shown */

#define RED "\033[1;31m"
#define CYAN "\033[1;36m"
#define YELLOW "\033[1;33m"
#define GREEN "\033[1;32m"
#define BOLD "\033[1m"
#define PLAIN "\033[0m"

void report_init(struct report *report, FILE *out, bool no_color, const struct source *sources)
{
    const char *asked = getenv("NO_COLOR"), *term = getenv("TERM");
    bool dumb = !term || strcmp(term, "dumb") == 0;
    bool color = !no_color && !(asked && *asked) && !dumb && isatty(fileno(out));
    *report = (struct report){.out = out, .color = color, .sources = sources};
}

static const char *report_paint(const struct report *report, const char *color)
{
    return report->color ? color : "";
}

/* A line cut into characters, each of them one column wide. */
struct excerpt {
    const char *at[WINDOW];
    size_t len[WINDOW]; /* 0: not printable, shown as "?" */
    uint32_t n, first;  /* how many, and the column of the first */
    bool cut_left, cut_right;
};

static void excerpt_init(struct excerpt *e, const char *line, size_t len, uint32_t column)
{
    *e = (struct excerpt){.first = column > WINDOW * 3 / 4 ? column - WINDOW / 2 : 1};
    e->cut_left = e->first > 1;
    uint32_t at = 1;
    for (size_t pos = 0; pos < len; at++) {
        size_t n = utf8_len(line + pos, len - pos);
        size_t shown = utf8_shown_len(line + pos, len - pos);
        if (at >= e->first && e->n == WINDOW) {
            e->cut_right = true;
            return;
        }
        if (at >= e->first) {
            e->at[e->n] = n == 1 && line[pos] == '\t' ? " " : line + pos;
            e->len[e->n++] = n == 1 && line[pos] == '\t' ? 1 : shown;
        }
        pos += n ? n : 1;
    }
}

static void report_print_excerpt(const struct report *report, const struct diag_loc *loc,
                                 const char *color)
{
    const struct source *source = source_find(report->sources, loc->file);
    size_t len = 0;
    const char *line = source ? source_line(source, loc->line, &len) : NULL;
    if (!line)
        return;
    struct excerpt e;
    excerpt_init(&e, line, len, loc->column);
    fprintf(report->out, "%5u | %s", loc->line, e.cut_left ? "..." : "");
    for (uint32_t i = 0; i < e.n; i++)
        fwrite(e.len[i] ? e.at[i] : "?", 1, e.len[i] ? e.len[i] : 1, report->out);
    fprintf(report->out, "%s\n      | %*s%s^", e.cut_right ? "..." : "",
            (int)(loc->column - e.first) + (e.cut_left ? 3 : 0), "", report_paint(report, color));
    uint32_t end = e.first + e.n, most = end > loc->column ? end - loc->column : 0;
    for (uint32_t i = 1; i < loc->width && i < most; i++)
        fputc('~', report->out);
    fprintf(report->out, "%s\n", report_paint(report, PLAIN));
}

void report_put_text(FILE *out, const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n ? n : 1) {
        n = utf8_len(text + i, len - i);
        if (utf8_shown_len(text + i, len - i) || text[i] == '\n' || text[i] == '\t')
            fwrite(text + i, 1, n, out);
        else
            fputc('?', out);
    }
}

/* "job.yaml:14:14: ", or what there is of it. */
static void report_print_place(const struct report *report, const struct diag_loc *loc)
{
    const char *file = loc->file ? loc->file : report->sources ? report->sources->name : "job file";
    fputs(report_paint(report, BOLD), report->out);
    file = loc->line || loc->file ? file : "collrun";
    report_put_text(report->out, file, strlen(file));
    if (loc->line)
        fprintf(report->out, ":%u:%u", loc->line, loc->column);
    fputs(": ", report->out);
    fputs(report_paint(report, PLAIN), report->out);
}

/* "rank 3 on gpu02: ", for errors that showed up while running. */
static void report_print_culprit(const struct report *report, const struct diag *d)
{
    if (d->rank >= 0)
        fprintf(report->out, "rank %d%s%s: ", d->rank, d->host[0] ? " on " : "", d->host);
    else if (d->host[0])
        fprintf(report->out, "host %s: ", d->host);
}

/* The files that include the one of a place, up to the job file. */
static void report_print_includes(const struct report *report, const struct diag_loc *loc)
{
    const struct source *source = loc->file ? source_find(report->sources, loc->file) : NULL;
    while (source && source->included.line) {
        fputs("      | included from ", report->out);
        const char *file = source->included.file ? source->included.file : report->sources->name;
        report_put_text(report->out, file, strlen(file));
        fprintf(report->out, ":%u:%u\n", source->included.line, source->included.column);
        source = source_find(report->sources, source->included.file);
    }
}

static void report_put_line(const struct report *report, const char *text)
{
    report_put_text(report->out, text, strlen(text));
    fputc('\n', report->out);
}

void report_line(const struct report *report, const char *text)
{
    struct diag d;
    diag_set(&d, 0, "%s", text);
    if (report->secrets)
        secrets_mask_diag(&d, report->secrets);
    fputs("collrun: ", report->out);
    report_put_line(report, d.text);
}

/* Names what the reader of a refused value cannot see. */
static void report_put_lookalike(const struct report *report, const struct diag_loc *loc)
{
    const struct source *source = source_find(report->sources, loc->file);
    size_t left = 0, len = 0;
    const char *text = source ? source_at(source, loc->line, loc->column, &left) : NULL;
    char name[SOURCE_NAME];
    uint32_t at;
    for (uint32_t i = 0; text && i < loc->width && len < left; i++) {
        size_t n = utf8_len(text + len, left - len);
        len += n ? n : 1;
    }
    if (text && source_find_lookalike(text, len, &at, name))
        fprintf(report->out, "%shint:%s column %u has %s\n", report_paint(report, GREEN),
                report_paint(report, PLAIN), loc->column + at, name);
}

void report_diag(const struct report *report, const struct diag *written)
{
    struct diag masked = *written, *d = &masked;
    if (report->secrets)
        secrets_mask_diag(d, report->secrets);
    report_print_place(report, &d->loc);
    const char *color = d->warning ? YELLOW : RED;
    fprintf(report->out, "%s%s:%s ", report_paint(report, color), d->warning ? "warning" : "error",
            report_paint(report, PLAIN));
    report_print_culprit(report, d);
    report_put_line(report, d->text);
    if (d->loc.line)
        report_print_excerpt(report, &d->loc, color);
    report_print_includes(report, &d->loc);
    if (d->loc2.line) {
        report_print_place(report, &d->loc2);
        fprintf(report->out, "%snote:%s ", report_paint(report, CYAN), report_paint(report, PLAIN));
        report_put_line(report, d->note2);
        report_print_excerpt(report, &d->loc2, CYAN);
    }
    if (d->loc.line && !d->warning && !strstr(d->text, "U+"))
        report_put_lookalike(report, &d->loc);
    if (d->hint[0]) {
        fprintf(report->out, "%shint:%s ", report_paint(report, GREEN),
                report_paint(report, PLAIN));
        report_put_line(report, d->hint);
    }
}

void report_diags(const struct report *report, struct diag_list *diags)
{
    diag_list_sort(diags);
    uint32_t shown = diags->n < REPORT_MAX ? diags->n : REPORT_MAX;
    uint32_t more = diag_list_count(diags);
    for (uint32_t i = 0; i < shown; i++) {
        report_diag(report, &diags->items[i]);
        more -= !diags->items[i].warning;
    }
    if (more)
        fprintf(report->out, "... and %u more error%s\n", more, more == 1 ? "" : "s");
}
