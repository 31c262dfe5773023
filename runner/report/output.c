/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects the output of the ranks into lines, labels them, and queues them on the console.
 */
#include "report/output.h"

#include "base/template.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct source_stream {
    struct buf line; /* the unfinished line */
};

struct tail { /* the last OUTPUT_TAIL bytes of a rank's stderr */
    char *ring;
    uint64_t len;   /* ever written */
    uint64_t lines; /* ever shown */
};

struct latest { /* the last lines that were shown, if they are of one rank's stderr */
    uint32_t rank;
    uint64_t lines, end; /* how many; console_lines after them */
};

struct output {
    struct console *console;
    const struct desc *desc;
    struct output_hooks hooks;
    struct source_stream *streams; /* two per rank */
    struct tail *tails;            /* one per rank */
    struct latest latest;
    const char **labels; /* per rank; NULL: not shown */
    bool timestamps, given_up, last;
    bool in_line;         /* the rank that has the terminal has not ended its line */
    uint32_t nomitted;    /* messages that were dropped */
    uint32_t *credit_due; /* per host: bytes that its agent may send again */
    struct arena arena;
};

/* ---- credit ---- */

void output_refund(struct output *o)
{
    bool full = console_full(o->console) || (o->hooks.full && o->hooks.full(o->hooks.ctx));
    if (full && !o->last)
        return;
    for (uint32_t h = 0; h < o->desc->nhosts; h++) {
        if (!o->credit_due[h])
            continue;
        uint32_t bytes = o->credit_due[h];
        o->credit_due[h] = 0;
        o->hooks.credit(o->hooks.ctx, h, bytes);
    }
}

/* ---- lines ---- */

/* A line of the rank's stderr has been shown, and before it, `before` lines. */
static void output_note_line(struct output *o, uint32_t rank, uint64_t before)
{
    struct latest *l = &o->latest;
    bool follows = l->rank == rank && l->end == before;
    *l = (struct latest){rank, follows ? l->lines + 1 : 1, console_lines(o->console)};
    o->tails[rank].lines++;
}

static void output_put_line(struct output *o, uint32_t rank, uint8_t stream, uint64_t realtime_ns,
                            const void *text, size_t len)
{
    struct console *c = o->console;
    uint64_t before = console_lines(c);
    if (o->given_up)
        return;
    if (o->timestamps) {
        char stamp[32];
        struct tm tm;
        time_t seconds = (time_t)(realtime_ns / 1000000000u);
        localtime_r(&seconds, &tm);
        size_t n = strftime(stamp, sizeof stamp, "%H:%M:%S", &tm);
        snprintf(stamp + n, sizeof stamp - n, ".%03u ", (unsigned)(realtime_ns / 1000000u % 1000u));
        console_put(c, stream, stamp, strlen(stamp));
    }
    console_put(c, stream, o->labels[rank], strlen(o->labels[rank]));
    console_put(c, stream, text, len);
    console_put(c, stream, "\n", 1);
    if (stream == 2)
        output_note_line(o, rank, before);
}

static void output_keep_tail(struct tail *t, const char *bytes, size_t len)
{
    if (!t->ring)
        t->ring = malloc(OUTPUT_TAIL);
    for (size_t i = len > OUTPUT_TAIL ? len - OUTPUT_TAIL : 0; t->ring && i < len; i++)
        t->ring[(t->len + i) % OUTPUT_TAIL] = bytes[i];
    t->len += len;
}

/* Prints a line as a terminal finally shows it: the text after the last carriage return, without
 * control characters. */
static void output_print_line(const char *line, size_t len, const char *prefix, FILE *to)
{
    while (len && line[len - 1] == '\r')
        len--;
    const char *again = memrchr(line, '\r', len);
    size_t from = again ? (size_t)(again - line) + 1 : 0;
    fputs(prefix, to);
    for (size_t i = from; i < len; i++) {
        unsigned char c = (unsigned char)line[i];
        fputc((c < 0x20 && c != '\t') || c == 0x7f ? '?' : c, to);
    }
    fputc('\n', to);
}

bool output_tail_is_shown(const struct output *o, uint32_t rank, unsigned lines)
{
    const struct latest *l = &o->latest;
    return l->lines && l->rank == rank && l->end == console_lines(o->console) &&
           (l->lines >= lines || l->lines == o->tails[rank].lines);
}

bool output_stderr_tail(const struct output *o, uint32_t rank, unsigned lines, const char *prefix,
                        FILE *to)
{
    const struct tail *t = &o->tails[rank];
    char text[OUTPUT_TAIL];
    size_t len = t->len < OUTPUT_TAIL ? (size_t)t->len : OUTPUT_TAIL, at;
    if (!t->ring || !len)
        return false;
    for (size_t i = 0; i < len; i++)
        text[i] = t->ring[(t->len - len + i) % OUTPUT_TAIL];
    len -= text[len - 1] == '\n';
    for (at = len; at > 0; at--) {
        if (text[at - 1] == '\n' && --lines == 0)
            break;
    }
    while (at <= len) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        output_print_line(text + at, n, prefix, to);
        at += n + 1;
    }
    return true;
}

/* What a rank writes to collrun's terminal is shown as it is. */
static void output_put_terminal(struct output *o, const char *bytes, size_t len)
{
    if (o->given_up || !len)
        return;
    console_put_as_is(o->console, 1, bytes, len);
    o->in_line = bytes[len - 1] != '\n';
}

void output_add(struct output *o, uint32_t rank, uint8_t stream, uint64_t realtime_ns,
                const void *bytes, size_t len)
{
    struct buf *line = &o->streams[rank * 2 + stream - 1].line;
    const char *p = bytes, *end = p + len;
    o->credit_due[o->desc->ranks[rank].host] += (uint32_t)len;
    if (stream == 2)
        output_keep_tail(&o->tails[rank], bytes, len);
    if (desc_has_terminal(o->desc, rank)) {
        output_put_terminal(o, p, len);
        p = end;
    }
    while (o->labels[rank] && p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((newline ? newline : end) - p), pending = buf_pending(line);
        bool cut = pending + n > OUTPUT_LINE_MAX;
        if (cut)
            n = OUTPUT_LINE_MAX - pending;
        if (pending || (!newline && !cut))
            buf_put(line, p, n);
        if (newline || cut) {
            output_put_line(o, rank, stream, realtime_ns,
                            pending ? (const char *)line->data + line->start : p,
                            pending ? buf_pending(line) : n);
            buf_clear(line);
        }
        p += n + (newline && !cut);
    }
    console_push(o->console);
    output_refund(o);
}

void output_message(struct output *o, const char *format, ...)
{
    FILE *to = console_stderr(o->console);
    va_list args;
    if (console_full(o->console)) {
        o->nomitted++;
        return;
    }
    if (o->nomitted)
        fprintf(to, "collrun: %u messages dropped: stderr was not read\n", o->nomitted);
    o->nomitted = 0;
    va_start(args, format);
    char *text = NULL;
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0)
        fputs("collrun: a message is lost: out of memory\n", to);
    for (int at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', (size_t)(len - at));
        size_t n = end ? (size_t)(end - (text + at)) : (size_t)(len - at);
        output_print_line(text + at, n, at ? "  | " : "", to);
        at += (int)n + 1;
    }
    if (len >= 0)
        free(text);
}

void output_end_rank(struct output *o, uint32_t rank)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    for (uint8_t stream = 1; stream <= 2; stream++) {
        struct buf *line = &o->streams[rank * 2 + stream - 1u].line;
        if (!buf_pending(line))
            continue;
        output_put_line(o, rank, stream, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec,
                        line->data + line->start, buf_pending(line));
        buf_clear(line);
    }
    if (o->in_line && desc_has_terminal(o->desc, rank))
        output_put_terminal(o, "\r\n", 2);
    console_push(o->console);
}

void output_flush_lines(struct output *o)
{
    o->last = true;
    output_refund(o);
}

void output_give_up(struct output *o)
{
    if (!console_pending(o->console))
        return;
    o->given_up = true;
    console_forget(o->console);
    output_refund(o);
}

/* ---- making it ---- */

static int output_make_label(struct output *o, const struct job_console *console, uint32_t rank)
{
    const struct desc_rank *r = &o->desc->ranks[rank];
    struct template_values values = {.rank = rank,
                                     .local_rank = r->local_rank,
                                     .attempt = o->desc->attempt,
                                     .host = o->desc->hosts[r->host].name,
                                     .run_id = o->desc->run_id};
    const char *label;
    if (!job_ranks_has(&console->ranks, rank))
        return COLLRUN_OK;
    int rc = template_expand(console->label.v, &values, &o->arena, &label, NULL);
    if (rc == COLLRUN_OK)
        o->labels[rank] = label[0] ? arena_printf(&o->arena, "%s ", label) : "";
    return rc;
}

struct output *output_new(struct console *console, const struct job *job, const struct desc *desc,
                          struct output_hooks hooks)
{
    struct output *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    arena_init(&o->arena);
    o->console = console;
    o->desc = desc;
    o->hooks = hooks;
    o->timestamps = job->logging.console.timestamps.v;
    o->streams = arena_calloc(&o->arena, desc->nranks * 2, sizeof *o->streams);
    o->tails = arena_calloc(&o->arena, desc->nranks, sizeof *o->tails);
    o->labels = arena_calloc(&o->arena, desc->nranks, sizeof *o->labels);
    o->credit_due = arena_calloc(&o->arena, desc->nhosts, sizeof *o->credit_due);
    int rc = arena_failed(&o->arena) ? COLLRUN_ERR_NO_MEMORY : COLLRUN_OK;
    for (uint32_t r = 0; rc == COLLRUN_OK && r < desc->nranks; r++)
        rc = output_make_label(o, &job->logging.console, r);
    if (rc != COLLRUN_OK) {
        output_free(o);
        return NULL;
    }
    return o;
}

void output_free(struct output *o)
{
    if (!o)
        return;
    for (uint32_t i = 0; o->streams && i < o->desc->nranks * 2; i++)
        buf_fini(&o->streams[i].line);
    for (uint32_t i = 0; o->tails && i < o->desc->nranks; i++)
        free(o->tails[i].ring);
    arena_fini(&o->arena);
    free(o);
}
