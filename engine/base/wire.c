/* SPDX-License-Identifier: Apache-2.0
 *
 * Framing, payloads by the fields of wire_fields.h, and the payload parts that several frames
 * share: a diag, a failure.
 */
#include "base/wire_fields.h"

#include "base/debug.h"
#include "base/quote.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t wire_begin(struct buf *out, uint16_t type, uint32_t rank, uint32_t attempt)
{
    size_t mark = buf_pending(out);
    buf_put_u32(out, 0);
    buf_put_u16(out, type);
    buf_put_u16(out, 0);
    buf_put_u32(out, rank);
    buf_put_u32(out, attempt);
    return mark;
}

void wire_end(struct buf *out, size_t mark)
{
    if (out->failed)
        return;
    size_t len = buf_pending(out) - mark - WIRE_HEAD_LEN;
    if (len > WIRE_MAX_PAYLOAD) {
        out->failed = true;
        return;
    }
    unsigned char *head = out->data + out->start + mark;
    for (int i = 0; i < 4; i++)
        head[i] = (unsigned char)(len >> (8 * i));
}

void wire_put(struct buf *out, uint16_t type, uint32_t rank, uint32_t attempt, const void *payload,
              size_t len)
{
    size_t mark = wire_begin(out, type, rank, attempt);
    buf_put(out, payload, len);
    wire_end(out, mark);
}

int wire_next(const struct buf *in, struct wire_frame *frame, struct diag *d)
{
    if (buf_pending(in) < WIRE_HEAD_LEN)
        return 0;
    struct reader r;
    reader_init(&r, in->data + in->start, WIRE_HEAD_LEN);
    uint32_t len = read_u32(&r);
    frame->type = read_u16(&r);
    uint16_t zero = read_u16(&r);
    frame->rank = read_u32(&r);
    frame->attempt = read_u32(&r);
    if (len > WIRE_MAX_PAYLOAD || zero)
        return diag_set(d, COLLRUN_ERR_INVALID,
                        "the control stream carries bytes that are not a collrun frame");
    if (buf_pending(in) - WIRE_HEAD_LEN < len)
        return 0;
    frame->payload = in->data + in->start + WIRE_HEAD_LEN;
    frame->len = len;
    return 1;
}

void wire_next_done(struct buf *in, const struct wire_frame *frame)
{
    buf_consume(in, WIRE_HEAD_LEN + frame->len);
}

static void wire_put_loc(struct buf *out, struct diag_loc loc)
{
    buf_put_u32(out, loc.line);
    buf_put_u32(out, loc.column);
    buf_put_u32(out, loc.width);
    buf_put_str(out, loc.file);
}

static struct diag_loc wire_read_loc(struct reader *r, struct arena *arena)
{
    size_t len;
    struct diag_loc loc = {0};
    loc.line = read_u32(r);
    loc.column = read_u32(r);
    loc.width = read_u32(r);
    const char *file = read_blob(r, &len);
    loc.file = file && len && arena ? arena_strndup(arena, file, len) : NULL;
    return loc;
}

static void wire_read_text(struct reader *r, char *to, size_t size)
{
    size_t len;
    const void *text = read_blob(r, &len);
    if (len >= size)
        len = size - 1;
    if (text)
        memcpy(to, text, len);
    to[len] = '\0';
}

void wire_put_diag(struct buf *out, const struct diag *d)
{
    buf_put_u32(out, (uint32_t)d->code);
    buf_put_u32(out, (uint32_t)d->sys_errno);
    buf_put_u32(out, (uint32_t)d->rank);
    wire_put_loc(out, d->loc);
    wire_put_loc(out, d->loc2);
    buf_put_str(out, d->host);
    buf_put_str(out, d->text);
    buf_put_str(out, d->note2);
    buf_put_str(out, d->hint);
}

void wire_read_diag(struct reader *r, struct arena *arena, struct diag *d)
{
    diag_init(d);
    d->code = (int)read_u32(r);
    d->sys_errno = (int)read_u32(r);
    d->rank = (int)read_u32(r);
    d->loc = wire_read_loc(r, arena);
    d->loc2 = wire_read_loc(r, arena);
    wire_read_text(r, d->host, sizeof d->host);
    wire_read_text(r, d->text, sizeof d->text);
    wire_read_text(r, d->note2, sizeof d->note2);
    wire_read_text(r, d->hint, sizeof d->hint);
    if (r->bad)
        wire_malformed(d, "error report");
}

void wire_put_failure(struct buf *out, const struct record_view_failure *f)
{
    static const struct record_view_failure none;
    f = f ? f : &none;
    buf_put_u32(out, (uint32_t)f->status);
    buf_put_u64(out, f->number);
    buf_put_str(out, f->group);
    buf_put_str(out, f->text);
}

void wire_read_failure(struct reader *r, struct record_view_failure *f)
{
    f->status = (int)read_u32(r);
    f->number = read_u64(r);
    wire_read_text(r, f->group, sizeof f->group);
    wire_read_text(r, f->text, sizeof f->text);
}

int wire_malformed(struct diag *d, const char *format, ...)
{
    const bool no_memory = errno == ENOMEM;
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return no_memory ? diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the %s", what)
                     : diag_set(d, COLLRUN_ERR_INVALID, "malformed %s", what);
}

/* ---- the frames of wire_fields.h: put and read, by the types of their fields ---- */

static void wire_put_i32(struct buf *out, int32_t v)
{
    buf_put_u32(out, (uint32_t)v);
}

static void wire_put_f64(struct buf *out, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    buf_put_u64(out, bits);
}

static double wire_read_f64(struct reader *r)
{
    const uint64_t bits = read_u64(r);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void wire_put_ranks(struct buf *out, const struct wire_ranks *ranks)
{
    buf_put_u32(out, ranks->n);
    for (uint32_t i = 0; i < ranks->n; i++)
        buf_put_u32(out, ranks->items[i]);
}

static void wire_read_ranks(struct reader *r, struct arena *arena, struct wire_ranks *ranks)
{
    ranks->n = read_count(r, sizeof(uint32_t));
    uint32_t *items = arena_calloc(arena, ranks->n, sizeof *items);
    for (uint32_t i = 0; items && i < ranks->n; i++)
        items[i] = read_u32(r);
    ranks->items = items;
    r->bad = r->bad || !items;
}

static void wire_read_blob(struct reader *r, struct wire_blob *blob)
{
    blob->data = read_blob(r, &blob->len);
}

/* To the end of the payload. */
static void wire_read_bytes(struct reader *r, struct wire_blob *bytes)
{
    *bytes = (struct wire_blob){"", 0}; /* an empty payload may be NULL */
    if (r->bad || r->pos == r->len)
        return;
    *bytes = (struct wire_blob){r->data + r->pos, r->len - r->pos};
    r->pos = r->len;
}

static void wire_put_answer(struct buf *out, const struct wire_answer *answer)
{
    buf_put_u32(out, (uint32_t)answer->failure.code);
    if (answer->failure.code)
        wire_put_diag(out, &answer->failure);
    else
        buf_put(out, answer->bytes.data, answer->bytes.len);
}

/* The code of the failure is the status, whatever follows. */
static void wire_read_answer(struct reader *r, struct arena *arena, struct wire_answer *answer)
{
    const int status = (int)read_u32(r);
    diag_init(&answer->failure);
    answer->bytes = (struct wire_blob){0};
    if (!status) {
        wire_read_bytes(r, &answer->bytes);
        return;
    }
    wire_read_diag(r, arena, &answer->failure);
    answer->failure.code = status;
}

#define WIRE_PUT_u8(v) buf_put_u8(out, v)
#define WIRE_PUT_u16(v) buf_put_u16(out, v)
#define WIRE_PUT_u32(v) buf_put_u32(out, v)
#define WIRE_PUT_u64(v) buf_put_u64(out, v)
#define WIRE_PUT_i32(v) wire_put_i32(out, v)
#define WIRE_PUT_f64(v) wire_put_f64(out, v)
#define WIRE_PUT_str(v) buf_put_str(out, v)
#define WIRE_PUT_failure(v) wire_put_failure(out, &(v))
#define WIRE_PUT_diag(v) wire_put_diag(out, &(v))
#define WIRE_PUT_ranks(v) wire_put_ranks(out, &(v))
#define WIRE_PUT_blob(v) buf_put_blob(out, (v).data, (v).len)
#define WIRE_PUT_bytes(v) buf_put(out, (v).data, (v).len)
#define WIRE_PUT_answer(v) wire_put_answer(out, &(v))

#define WIRE_READ_u8(v) v = read_u8(r)
#define WIRE_READ_u16(v) v = read_u16(r)
#define WIRE_READ_u32(v) v = read_u32(r)
#define WIRE_READ_u64(v) v = read_u64(r)
#define WIRE_READ_i32(v) v = (int32_t)read_u32(r)
#define WIRE_READ_f64(v) v = wire_read_f64(r)
#define WIRE_READ_str(v) v = read_str(r, arena)
#define WIRE_READ_failure(v) wire_read_failure(r, &(v))
#define WIRE_READ_diag(v) wire_read_diag(r, arena, &(v))
#define WIRE_READ_ranks(v) wire_read_ranks(r, arena, &(v))
#define WIRE_READ_blob(v) wire_read_blob(r, &(v))
#define WIRE_READ_bytes(v) wire_read_bytes(r, &(v))
#define WIRE_READ_answer(v) wire_read_answer(r, arena, &(v))

/* The least length of a field: that of numbers, and of the lengths and counts that others begin
 * with.
 */
#define WIRE_LEAST_u8 1
#define WIRE_LEAST_u16 2
#define WIRE_LEAST_u32 4
#define WIRE_LEAST_u64 8
#define WIRE_LEAST_str 4
#define WIRE_LEAST_blob 4
#define WIRE_LEAST(type, name) +WIRE_LEAST_##type
#define WIRE_LEAST_LIST(item, name) +4

#define WIRE_PUT(type, name) WIRE_PUT_##type(fields->name);
#define WIRE_PUT_LIST(item, name) wire_put_list_##item(out, &fields->name);
#define WIRE_READ(type, name) WIRE_READ_##type(fields->name);
#define WIRE_READ_LIST(item, name) wire_read_list_##item(r, arena, &fields->name);
#define WIRE_DEFINE_ITEM(item)                                                                     \
    static void wire_put_list_##item(struct buf *out, const struct wire_list_##item *list)         \
    {                                                                                              \
        buf_put_u32(out, list->n);                                                                 \
        for (uint32_t i = 0; i < list->n; i++) {                                                   \
            const struct wire_item_##item *fields = &list->items[i];                               \
            WIRE_ITEM_##item(WIRE_PUT, WIRE_PUT_LIST)                                              \
        }                                                                                          \
    }                                                                                              \
    static void wire_read_list_##item(struct reader *r, struct arena *arena,                       \
                                      struct wire_list_##item *list)                               \
    {                                                                                              \
        list->n = read_count(r, 0 WIRE_ITEM_##item(WIRE_LEAST, WIRE_LEAST_LIST));                  \
        struct wire_item_##item *items = arena_calloc(arena, list->n, sizeof *items);              \
        for (uint32_t i = 0; items && i < list->n; i++) {                                          \
            struct wire_item_##item *fields = &items[i];                                           \
            WIRE_ITEM_##item(WIRE_READ, WIRE_READ_LIST)                                            \
        }                                                                                          \
        list->items = items;                                                                       \
        r->bad = r->bad || !items;                                                                 \
    }
WIRE_ITEMS(WIRE_DEFINE_ITEM)

#define WIRE_DEFINE(TYPE, frame)                                                                   \
    void wire_put_##frame(struct buf *out, const struct wire_##frame *fields)                      \
    {                                                                                              \
        WIRE_FIELDS_##TYPE(WIRE_PUT, WIRE_PUT_LIST)                                                \
    }                                                                                              \
    bool wire_read_##frame(const struct wire_frame *f, struct arena *arena,                        \
                           struct wire_##frame *fields)                                            \
    {                                                                                              \
        struct reader reader, *r = &reader;                                                        \
        (void)arena;                                                                               \
        reader_init(r, f->payload, f->len);                                                        \
        WIRE_FIELDS_##TYPE(WIRE_READ, WIRE_READ_LIST) return reader_done(r);                       \
    }
WIRE_FIELDS(WIRE_DEFINE)

/* ---- names ---- */

static const char *const wire_type_names[] = {
    [WIRE_HELLO] = "HELLO",
    [WIRE_SPAWNED] = "SPAWNED",
    [WIRE_EXITED] = "EXITED",
    [WIRE_OUTPUT] = "OUTPUT",
    [WIRE_HEARTBEAT] = "HEARTBEAT",
    [WIRE_HOST_ERROR] = "HOST_ERROR",
    [WIRE_STATUS] = "STATUS",
    [WIRE_KEEPALIVE] = "KEEPALIVE",
    [WIRE_QUERY] = "QUERY",
    [WIRE_EXAMINE] = "EXAMINE",
    [WIRE_PROBE] = "PROBE",
    [WIRE_EXAMINED] = "EXAMINED",
    [WIRE_PROBED] = "PROBED",
    [WIRE_STACKS] = "STACKS",
    [WIRE_RECORDS] = "RECORDS",
    [WIRE_STARTED] = "STARTED",
    [WIRE_MASTER] = "MASTER",
    [WIRE_USAGE] = "USAGE",
    [WIRE_STDIN_TAKEN] = "STDIN_TAKEN",
    [WIRE_MPI] = "MPI",
    [WIRE_STDIN] = "STDIN",
    [WIRE_WINDOW] = "WINDOW",
    [WIRE_PLACE] = "PLACE",
    [WIRE_PLACED] = "PLACED",
    [WIRE_DETACHED] = "DETACHED",
    [WIRE_NETWORK] = "NETWORK",
    [WIRE_SNAPSHOT] = "SNAPSHOT",
    [WIRE_LOOK] = "LOOK",
    [WIRE_TRACE] = "TRACE",
    [WIRE_DEBUG_LINES] = "DEBUG_LINES",
    [WIRE_DEBUG] = "DEBUG",
    [WIRE_READ_RECORDS] = "READ_RECORDS",
    [WIRE_READ_STACKS] = "READ_STACKS",
    [WIRE_MEASURE] = "MEASURE",
    [WIRE_AUDIT] = "AUDIT",
    [WIRE_BYE] = "BYE",
    [WIRE_JOB] = "JOB",
    [WIRE_SIGNAL] = "SIGNAL",
    [WIRE_CREDIT] = "CREDIT",
    [WIRE_MULTICAST] = "MULTICAST",
    [WIRE_QUIT] = "QUIT",
    [WIRE_ATTACHED] = "ATTACHED",
    [WIRE_READY] = "READY",
    [WIRE_DONE] = "DONE",
    [WIRE_IDLE] = "IDLE",
    [WIRE_FAILED] = "FAILED",
    [WIRE_LOG] = "LOG",
    [WIRE_PROGRESS] = "PROGRESS",
    [WIRE_METRIC] = "METRIC",
    [WIRE_JOIN] = "JOIN",
    [WIRE_AGREE] = "AGREE",
    [WIRE_PUT] = "PUT",
    [WIRE_GET] = "GET",
    [WIRE_FENCE] = "FENCE",
    [WIRE_LEAVE] = "LEAVE",
    [WIRE_WAIT_REPORT] = "WAIT_REPORT",
    [WIRE_FORMING] = "FORMING",
    [WIRE_EXCEPTION] = "EXCEPTION",
    [WIRE_REPLY] = "REPLY",
    [WIRE_FENCED] = "FENCED",
    [WIRE_GO] = "GO",
    [WIRE_STOP_BACKGROUND] = "STOP_BACKGROUND",
    [WIRE_FINISH] = "FINISH",
    [WIRE_RANK_LOST] = "RANK_LOST",
    [WIRE_ABORT] = "ABORT",
    [WIRE_WELCOME] = "WELCOME",
};

const char *wire_type_name(uint16_t type)
{
    const size_t n = sizeof wire_type_names / sizeof *wire_type_names;
    const char *name = type < n ? wire_type_names[type] : NULL;
    return name ? name : "unknown";
}

/* ---- printing, for the log ---- */

/* A text that grows in a caller's array; what does not fit is left out. */
struct wire_text {
    char *out;
    size_t size, used;
};

static void wire_text_add(struct wire_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void wire_text_add(struct wire_text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(t->out + t->used, t->size - t->used, format, args);
    va_end(args);
    t->used += n > 0 ? (size_t)n : 0;
    if (t->used >= t->size)
        t->used = t->size - 1;
}

static void wire_print_str(struct wire_text *t, const char *name, const char *text)
{
    char quoted[QUOTE_SIZE];
    wire_text_add(t, " %s=%s", name, quote(text, quoted));
}

static void wire_print_failure(struct wire_text *t, const char *name,
                               const struct record_view_failure *f)
{
    if (f->status)
        wire_text_add(t, " %s=%d group=\"%s\" operation=%" PRIu64, name, f->status, f->group,
                      f->number);
}

static void wire_print_diag(struct wire_text *t, const char *name, const struct diag *d)
{
    if (d->code) {
        wire_text_add(t, " %s=%d", name, d->code);
        wire_print_str(t, "text", d->text);
    }
}

static void wire_print_ranks(struct wire_text *t, const char *name, const struct wire_ranks *ranks)
{
    wire_text_add(t, " %s=", name);
    for (uint32_t i = 0; i < ranks->n && t->used + 1 < t->size; i++)
        wire_text_add(t, "%s%" PRIu32, i ? "," : "", ranks->items[i]);
}

static void wire_print_answer(struct wire_text *t, const char *name, const struct wire_answer *a)
{
    if (a->failure.code)
        wire_print_diag(t, name, &a->failure);
    else
        wire_text_add(t, " %s=(%zu bytes)", name, a->bytes.len);
}

#define WIRE_PRINT_u8(n, v) wire_text_add(t, " %s=%u", n, v)
#define WIRE_PRINT_u16(n, v) wire_text_add(t, " %s=%u", n, v)
#define WIRE_PRINT_u32(n, v) wire_text_add(t, " %s=%" PRIu32, n, v)
#define WIRE_PRINT_u64(n, v) wire_text_add(t, " %s=%" PRIu64, n, v)
#define WIRE_PRINT_i32(n, v) wire_text_add(t, " %s=%" PRId32, n, v)
#define WIRE_PRINT_f64(n, v) wire_text_add(t, " %s=%g", n, v)
#define WIRE_PRINT_str(n, v) wire_print_str(t, n, v)
#define WIRE_PRINT_failure(n, v) wire_print_failure(t, n, &(v))
#define WIRE_PRINT_diag(n, v) wire_print_diag(t, n, &(v))
#define WIRE_PRINT_ranks(n, v) wire_print_ranks(t, n, &(v))
#define WIRE_PRINT_blob(n, v) wire_text_add(t, " %s=(%zu bytes)", n, (v).len)
#define WIRE_PRINT_bytes(n, v) wire_text_add(t, " %s=(%zu bytes)", n, (v).len)
#define WIRE_PRINT_answer(n, v) wire_print_answer(t, n, &(v))
#define WIRE_PRINT(type, name) WIRE_PRINT_##type(#name, fields->name);
#define WIRE_PRINT_LIST(item, name) wire_print_list_##item(t, #name, &fields->name);
/* `peers=2 { address="a" port=1 } { address="b" port=2 }` */
#define WIRE_DEFINE_ITEM_PRINT(item)                                                               \
    static void wire_print_list_##item(struct wire_text *t, const char *list_name,                 \
                                       const struct wire_list_##item *list)                        \
    {                                                                                              \
        wire_text_add(t, " %s=%" PRIu32, list_name, list->n);                                      \
        for (uint32_t i = 0; i < list->n && t->used + 1 < t->size; i++) {                          \
            const struct wire_item_##item *fields = &list->items[i];                               \
            wire_text_add(t, " {");                                                                \
            WIRE_ITEM_##item(WIRE_PRINT, WIRE_PRINT_LIST) wire_text_add(t, " }");                  \
        }                                                                                          \
    }
WIRE_ITEMS(WIRE_DEFINE_ITEM_PRINT)

#define WIRE_DEFINE_PRINT(TYPE, frame)                                                             \
    static bool wire_print_##frame(const struct wire_frame *f, struct arena *arena,                \
                                   struct wire_text *t)                                            \
    {                                                                                              \
        struct wire_##frame read, *fields = &read;                                                 \
        if (!wire_read_##frame(f, arena, fields))                                                  \
            return false;                                                                          \
        WIRE_FIELDS_##TYPE(WIRE_PRINT, WIRE_PRINT_LIST) return true;                               \
    }
WIRE_FIELDS(WIRE_DEFINE_PRINT)

#define WIRE_PRINTER(TYPE, frame) {WIRE_##TYPE, wire_print_##frame},
static const struct {
    uint16_t type;
    bool (*print)(const struct wire_frame *f, struct arena *arena, struct wire_text *t);
} wire_printers[] = {WIRE_FIELDS(WIRE_PRINTER)};

void wire_print(const struct wire_frame *f, char *out, size_t size)
{
    struct wire_text t = {.out = out, .size = size};
    struct arena arena;
    wire_text_add(&t, "%s", wire_type_name(f->type));
    if (f->rank != WIRE_HOST)
        wire_text_add(&t, " (rank %" PRIu32 ")", f->rank);
    for (size_t i = 0; i < sizeof wire_printers / sizeof *wire_printers; i++) {
        if (wire_printers[i].type != f->type)
            continue;
        arena_init(&arena);
        const bool good = wire_printers[i].print(f, &arena, &t);
        arena_fini(&arena);
        if (good)
            return;
        wire_text_add(&t, " malformed");
    }
    wire_text_add(&t, " %zu bytes", f->len);
}

static void wire_debug(const char *way, const char *peer, const struct wire_frame *f)
{
    char text[DEBUG_LINE];
    /* Or each line, of an agent or on the stderr of a rank, would make two more. */
    if (f->type == WIRE_DEBUG_LINES || f->type == WIRE_OUTPUT)
        return;
    wire_print(f, text, sizeof text);
    debug_write(DEBUG_WIRE, "%s %s: %s", way, peer, text);
}

void wire_debug_received(const char *peer, const struct wire_frame *f)
{
    if (debug_on(DEBUG_WIRE))
        wire_debug("from", peer, f);
}

void wire_debug_sent(const char *peer, const struct buf *out, size_t mark)
{
    struct wire_frame f;
    struct diag d;
    if (!debug_on(DEBUG_WIRE) || out->failed)
        return;
    const struct buf at = buf_borrow(out->data + out->start + mark, buf_pending(out) - mark);
    if (wire_next(&at, &f, &d) > 0)
        wire_debug("to", peer, &f);
}
