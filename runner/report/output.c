/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects the output of the ranks into lines, folds equal ones if job.yaml says so, labels them,
 * and queues them on the console.
 */
#include "report/output.h"

#include "base/quote.h"

#include "report/fold.h"
#include "report/report.h"
#include "xalloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct source_stream {
    struct buf line; /* the unfinished line */
};

struct tail_ring { /* of a rank that has written to its stderr */
    char bytes[OUTPUT_TAIL];
    uint64_t places[OUTPUT_TAIL_LINES]; /* of its last lines on the console: console_lines */
};

struct tail { /* the last OUTPUT_TAIL bytes of a rank's stderr */
    struct tail_ring *ring;
    uint64_t len;   /* ever written */
    uint64_t lines; /* ever shown */
};

enum { STAMP_MAX = 32 };

struct output {
    struct console *console;
    const struct desc *desc;
    struct output_hooks hooks;
    struct source_stream *streams; /* two per rank */
    struct tail *tails;            /* one per rank */
    const char *label;             /* the template */
    const char **labels;           /* per rank; NULL: not shown */
    struct fold *fold;             /* NULL: lines are not folded */
    struct loop *loop;
    struct loop_timer fold_timer;
    struct loop_timer part_timer; /* lines that are not complete are shown */
    uint32_t open; /* the stream of which the console has a part of a line; console_part_is_open */
    struct buf label_bytes; /* of the lines that are being shown; has room for that of any rank */
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
        if (o->credit_due[h] < (o->last ? 1 : OUTPUT_CREDIT / 4))
            continue; /* the agent still has the most of it */
        uint32_t bytes = o->credit_due[h];
        o->credit_due[h] = 0;
        o->hooks.credit(o->hooks.ctx, h, bytes);
    }
}

/* ---- lines ---- */

/* `n` lines of the rank's stderr have been shown; console_lines was `before` them. */
static void output_note_lines(struct output *o, uint32_t rank, uint64_t before, uint64_t n)
{
    struct tail *t = &o->tails[rank];
    for (uint64_t i = n > OUTPUT_TAIL_LINES ? n - OUTPUT_TAIL_LINES : 0; t->ring && i < n; i++)
        t->ring->places[(t->lines + i) % OUTPUT_TAIL_LINES] = before + i;
    t->lines += n;
}

static void output_add_stamp(struct output *o, const struct fold_line *line)
{
    char stamp[STAMP_MAX];
    struct tm tm;
    time_t seconds = (time_t)(line->realtime_ns / 1000000000u);
    localtime_r(&seconds, &tm);
    size_t n = strftime(stamp, sizeof stamp, "%H:%M:%S", &tm);
    snprintf(stamp + n, sizeof stamp - n, ".%03u ",
             (unsigned)(line->realtime_ns / 1000000u % 1000u));
    buf_put(&o->label_bytes, stamp, strlen(stamp));
}

/* Writes the label of a line; the label of one rank always fits. */
static void output_set_label(struct output *o, const struct fold_line *line, const char *label)
{
    buf_clear(&o->label_bytes);
    if (o->timestamps)
        output_add_stamp(o, line);
    buf_put(&o->label_bytes, label, strlen(label));
}

/* Queues a line of one rank, or of several; or whole lines of one rank. */
static void output_put_line(void *ctx, const struct fold_line *line, const uint32_t *ranks,
                            uint32_t n)
{
    struct output *o = ctx;
    uint64_t before = console_lines(o->console);
    const char *label = o->labels[ranks[0]];
    struct arena arena;
    if (o->given_up)
        return;
    arena_init(&arena);
    if (n > 1)
        label_make(o->desc, o->label, ranks, n, &arena, &label);
    output_set_label(o, line, label);
    const uint64_t lines =
        console_put_lines(o->console, line->stream, (const char *)o->label_bytes.data,
                          o->label_bytes.len, line->text, line->len);
    for (uint32_t i = 0; line->stream == 2 && i < n; i++)
        output_note_lines(o, ranks[i], before, lines);
    arena_fini(&arena);
}

static void output_set_fold_timer(struct output *o)
{
    const uint64_t due_ns = fold_due_ns(o->fold), now = now_ns();
    if (due_ns)
        loop_timer_set(o->loop, &o->fold_timer, due_ns > now ? due_ns - now : 1);
    else
        loop_timer_clear(o->loop, &o->fold_timer);
}

static void output_on_fold_timer(struct loop_timer *t)
{
    struct output *o = t->owner;
    fold_expire(o->fold, now_ns());
    output_set_fold_timer(o);
    console_push(o->console);
}

static void output_add_line(struct output *o, uint32_t rank, const struct fold_line *line)
{
    if (o->given_up)
        return;
    if (!o->fold) {
        output_put_line(o, line, &rank, 1);
        return;
    }
    fold_add(o->fold, rank, line, now_ns());
    output_set_fold_timer(o);
}

void output_show_rank(struct output *o, uint32_t rank)
{
    if (!o->fold)
        return;
    fold_flush_rank(o->fold, rank);
    output_set_fold_timer(o);
    console_push(o->console);
}

void output_show_all(struct output *o)
{
    if (!o->fold)
        return;
    fold_flush(o->fold);
    output_set_fold_timer(o);
    console_push(o->console);
}

static void output_keep_tail(struct tail *t, const char *bytes, size_t len)
{
    if (!t->ring)
        t->ring = xmalloc(sizeof *t->ring);
    for (size_t i = len > OUTPUT_TAIL ? len - OUTPUT_TAIL : 0; i < len; i++)
        t->ring->bytes[(t->len + i) % OUTPUT_TAIL] = bytes[i];
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
    report_put_text(to, line + from, len - from);
    fputc('\n', to);
}

bool output_tail_is_shown(const struct output *o, uint32_t rank)
{
    const struct tail *t = &o->tails[rank];
    if (!t->lines || !t->ring)
        return false;
    uint64_t first = t->lines > OUTPUT_TAIL_LINES ? t->lines - OUTPUT_TAIL_LINES : 0;
    uint64_t place = t->ring->places[first % OUTPUT_TAIL_LINES];
    return console_lines(o->console) - place <= OUTPUT_SHOWN_ABOVE;
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
        text[i] = t->ring->bytes[(t->len - len + i) % OUTPUT_TAIL];
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

void output_stderr_last(const struct output *o, uint32_t rank, char *out, size_t size)
{
    const struct tail *t = &o->tails[rank];
    const uint64_t kept = t->len < OUTPUT_TAIL ? t->len : OUTPUT_TAIL;
    uint64_t end = t->len, at;
    size_t n = 0;
    out[0] = '\0';
    if (!t->ring)
        return;
    while (end > t->len - kept && strchr("\r\n", t->ring->bytes[(end - 1) % OUTPUT_TAIL]))
        end--;
    for (at = end; at > t->len - kept; at--)
        if (strchr("\r\n", t->ring->bytes[(at - 1) % OUTPUT_TAIL]))
            break;
    for (; at < end && n + 1 < size; at++) {
        const char c = t->ring->bytes[at % OUTPUT_TAIL];
        out[n++] = (unsigned char)c < ' ' || c == 127 ? ' ' : c;
    }
    out[n] = '\0';
    if (at < end)
        utf8_mark_cut(out, size);
}

/* What a rank writes to collrun's terminal is shown as it is. */
static void output_put_terminal(struct output *o, const char *bytes, size_t len)
{
    if (o->given_up || !len)
        return;
    console_put_as_is(o->console, 1, bytes, len);
    o->in_line = bytes[len - 1] != '\n';
}

/* ---- parts of lines ---- */

static bool output_is_open(const struct output *o, uint32_t rank, uint8_t stream)
{
    return o->open == rank * 2 + stream - 1u && console_part_is_open(o->console, stream);
}

static void output_put_part(struct output *o, uint32_t rank, const struct fold_line *part)
{
    if (o->given_up)
        return;
    if (!output_is_open(o, rank, part->stream)) {
        console_end_part(o->console, part->stream);
        output_set_label(o, part, o->labels[rank]);
    }
    o->open = rank * 2 + part->stream - 1u;
    console_put_part(o->console, part->stream, (const char *)o->label_bytes.data,
                     o->label_bytes.len, part->text, part->len);
}

static void output_end_part(struct output *o, uint32_t rank, uint8_t stream)
{
    const uint64_t before = console_lines(o->console);
    if (o->given_up || !output_is_open(o, rank, stream))
        return;
    console_end_part(o->console, stream);
    if (stream == 2)
        output_note_lines(o, rank, before, 1);
}

/* Writes what waits for the rest of its line, and then `text`. */
static void output_put_pending(struct output *o, uint32_t rank, const struct fold_line *text)
{
    struct buf *line = &o->streams[rank * 2 + text->stream - 1u].line;
    struct fold_line begin = *text;
    begin.len = buf_pending(line);
    if (begin.len) { /* otherwise the line may have no memory */
        begin.text = (const char *)line->data + line->start;
        output_put_part(o, rank, &begin);
    }
    buf_clear(line);
    if (text->len)
        output_put_part(o, rank, text);
}

static bool output_has_stdin(const struct output *o, uint32_t rank)
{
    for (uint32_t i = 0; i < o->desc->with_stdin.n; i++)
        if (o->desc->with_stdin.items[i] == rank)
            return true;
    return false;
}

static bool output_shows_parts(const struct output *o, uint32_t rank, uint8_t stream)
{
    return o->loop && !o->fold &&
           (console_is_terminal(o->console, stream) || output_has_stdin(o, rank));
}

/* Progress bars of several ranks would end each other's line all the time: one of them is shown as
 * it grows. A rank that may wait for an answer is always shown. */
static void output_on_part_timer(struct loop_timer *t)
{
    struct output *o = t->owner;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    for (uint32_t i = 0; i < o->desc->nranks * 2; i++) {
        const uint32_t rank = i / 2;
        const uint8_t stream = (uint8_t)(i % 2 + 1);
        const struct fold_line none = {.stream = stream,
                                       .realtime_ns = (uint64_t)now.tv_sec * 1000000000u +
                                                      (uint64_t)now.tv_nsec};
        const bool may = !console_part_is_open(o->console, stream) ||
                         output_is_open(o, rank, stream) || output_has_stdin(o, rank);
        if (buf_pending(&o->streams[i].line) && may && output_shows_parts(o, rank, stream))
            output_put_pending(o, rank, &none);
    }
    console_push(o->console);
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
        const size_t pending = buf_pending(line), room = OUTPUT_LINE_MAX - pending,
                     window = (size_t)(end - p) <= room ? (size_t)(end - p) : room + 1;
        /* All whole lines at once, but one by one if they are folded; or the end of a line. */
        const bool open = !o->fold && output_is_open(o, rank, stream);
        const char *newline =
            pending || o->fold || open ? memchr(p, '\n', window) : memrchr(p, '\n', window);
        const bool cut = !newline && window > room;
        const size_t n = newline ? (size_t)(newline - p) : cut ? room : window;
        if (!o->fold && (cut || (open && newline))) {
            output_put_pending(o, rank, &(const struct fold_line){stream, realtime_ns, p, n});
            if (newline)
                output_end_part(o, rank, stream);
            p += n + (newline != NULL);
            continue;
        }
        if (pending || (!newline && !cut))
            buf_put(line, p, n);
        if (newline || cut) {
            const char *text = pending ? (const char *)line->data + line->start : p;
            const struct fold_line whole = {stream, realtime_ns, text,
                                            pending ? buf_pending(line) : n};
            output_add_line(o, rank, &whole);
            buf_clear(line);
        }
        p += n + (newline != NULL);
    }
    if (buf_pending(line) && !o->part_timer.at_ns && output_shows_parts(o, rank, stream))
        loop_timer_set(o->loop, &o->part_timer, OUTPUT_PART_NS);
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
    char *text = xvasprintf(format, args);
    va_end(args);
    const size_t len = strlen(text);
    for (size_t at = 0, n; at < len; at += n + 1) {
        n = strcspn(text + at, "\n");
        output_print_line(text + at, n, at ? "  | " : "", to);
    }
    free(text);
}

void output_end_rank(struct output *o, uint32_t rank)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    for (uint8_t stream = 1; stream <= 2; stream++) {
        struct buf *line = &o->streams[rank * 2 + stream - 1u].line;
        if (!buf_pending(line)) {
            output_end_part(o, rank, stream);
            continue;
        }
        const struct fold_line rest = {stream,
                                       (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec,
                                       (const char *)line->data + line->start, buf_pending(line)};
        if (output_is_open(o, rank, stream)) {
            output_put_part(o, rank, &rest);
            output_end_part(o, rank, stream);
        } else {
            output_add_line(o, rank, &rest);
        }
        buf_clear(line);
    }
    if (o->fold) {
        fold_leave(o->fold, rank);
        output_set_fold_timer(o);
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
    if (o->fold) {
        fold_forget(o->fold);
        output_set_fold_timer(o);
    }
    console_forget(o->console);
    output_refund(o);
}

/* ---- making it ---- */

static int output_make_labels(struct output *o, const struct job_console *console)
{
    int rc = COLLRUN_OK;
    o->label = console->label.v;
    for (uint32_t r = 0; rc == COLLRUN_OK && r < o->desc->nranks; r++)
        if (job_ranks_has(&console->ranks, r))
            rc = label_make(o->desc, o->label, &r, 1, &o->arena, &o->labels[r]);
    return rc;
}

/* No line waits for ranks whose lines are not shown. */
static void output_start_fold(struct output *o)
{
    o->fold = fold_new(o->desc->nranks, output_put_line, o);
    o->fold_timer = (struct loop_timer){.fired = output_on_fold_timer, .owner = o};
    for (uint32_t r = 0; r < o->desc->nranks; r++) {
        if (!o->labels[r] || desc_has_terminal(o->desc, r))
            fold_leave(o->fold, r);
    }
}

struct output *output_new(struct console *console, struct loop *loop, const struct job *job,
                          const struct desc *desc, struct output_hooks hooks)
{
    struct output *o = xcalloc(1, sizeof *o);
    arena_init(&o->arena);
    o->console = console;
    o->loop = loop;
    o->desc = desc;
    o->hooks = hooks;
    o->part_timer = (struct loop_timer){.fired = output_on_part_timer, .owner = o};
    o->timestamps = job->logging.console.timestamps.v;
    o->streams = arena_calloc(&o->arena, desc->nranks * 2, sizeof *o->streams);
    o->tails = arena_calloc(&o->arena, desc->nranks, sizeof *o->tails);
    o->labels = arena_calloc(&o->arena, desc->nranks, sizeof *o->labels);
    o->credit_due = arena_calloc(&o->arena, desc->nhosts, sizeof *o->credit_due);
    int rc = output_make_labels(o, &job->logging.console);
    if (rc == COLLRUN_OK && job->logging.console.fold.v)
        output_start_fold(o);
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
    if (o->fold)
        loop_timer_clear(o->loop, &o->fold_timer);
    if (o->loop)
        loop_timer_clear(o->loop, &o->part_timer);
    fold_free(o->fold);
    for (uint32_t i = 0; o->streams && i < o->desc->nranks * 2; i++)
        buf_fini(&o->streams[i].line);
    for (uint32_t i = 0; o->tails && i < o->desc->nranks; i++)
        free(o->tails[i].ring);
    buf_fini(&o->label_bytes);
    arena_fini(&o->arena);
    free(o);
}
