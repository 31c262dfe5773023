/* SPDX-License-Identifier: Apache-2.0
 *
 * Most operations of a rank have the same arguments as an earlier one, so the text of arguments is
 * kept in a small cache; what remains is numbers.
 */
#include "trace/writer.h"

#include "base/mpi_names.h"
#include "base/names.h"
#include "base/record.h"
#include "base/trace_op.h"
#include "base/wire.h"
#include "trace/groups.h"
#include "xalloc.h"

#include <collrun/types.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PUT TRACE_LINE_LITERAL

/* ---- tracks ---- */

enum { ROWS = 16 };

/* Rows of operations that do not overlap, each a thread of the trace. */
struct trace_track {
    uint32_t group, group_rank;
    uint32_t named; /* rows that have a name in the trace */
    uint64_t row_end[ROWS];
    /* The text that trace_track_put wrote last, and its tid. */
    char place[64];
    uint32_t place_tid, place_len;
};

/* The first row whose operations have all ended by `called`; the last one if there is none. */
static uint32_t trace_track_row(struct trace_track *t, uint64_t called, uint64_t ended)
{
    uint32_t row = 0;
    while (row < ROWS - 1 && t->row_end[row] > called)
        row++;
    if (ended > t->row_end[row])
        t->row_end[row] = ended;
    return row;
}

/* ,"pid":0,"tid":32 */
static char *trace_track_place(char *at, uint32_t pid, uint32_t tid)
{
    at = PUT(at, ",\"pid\":");
    at = trace_line_number(at, pid);
    at = PUT(at, ",\"tid\":");
    return trace_line_number(at, tid);
}

/* The same and ,"ts": for an operation of the track, which belongs to `rank`. */
static char *trace_track_put(char *at, struct trace_track *t, uint32_t rank, uint32_t tid)
{
    if (!t->place_len || t->place_tid != tid) {
        char *end = PUT(trace_track_place(t->place, rank, tid), ",\"ts\":");
        t->place_tid = tid;
        t->place_len = (uint32_t)(end - t->place);
    }
    return trace_line_put(at, t->place, t->place_len);
}

/* ---- elements of operations ---- */

/* How many elements an operation reads and writes on one rank, of a group of `size`. Of v-forms
 * only the number that is read is known: each rank counts as with op->count elements. */
static uint64_t trace_elements(const struct trace_op *op, uint32_t size, unsigned char extent,
                               bool used)
{
    if (op->kind == COLLRUN_BARRIER)
        return 0;
    if (extent != COLLRUN_ONE_BLOCK && extent != COLLRUN_BLOCK_EACH)
        return op->count;
    return !used ? 0 : extent == COLLRUN_BLOCK_EACH ? op->count * size : op->count;
}

/* "allreduce", or "MPI_Allreduce" */
static const char *trace_name(const struct trace_op *op)
{
    return op->function ? mpi_function_name(op->function) : kind_name((enum collrun_kind)op->kind);
}

static uint64_t trace_elements_in(const struct trace_op *op, uint32_t size, bool root)
{
    const enum collrun_kind kind = (enum collrun_kind)op->kind;
    return trace_elements(op, size, collrun_kind_row(kind).send, collrun_kind_sends(kind, root));
}

static uint64_t trace_elements_out(const struct trace_op *op, uint32_t size, bool root)
{
    const enum collrun_kind kind = (enum collrun_kind)op->kind;
    return trace_elements(op, size, collrun_kind_row(kind).recv,
                          collrun_kind_receives(kind, root, false));
}

enum { CACHE = 256, ARGUMENTS = 1536, LINE = 4096, TEXT = 500 };

struct trace_rank {
    struct trace_track *tracks[RECORD_GROUPS]; /* owned; by slot; two may have the same */
    struct trace_track forgotten;
    uint64_t in_flight; /* as last written */
};

struct trace_key { /* of the arguments of an operation; without padding */
    uint64_t count;
    uint32_t group, tag;
    int32_t root_or_peer;
    uint8_t kind, dtype, op, state;
    uint64_t function;
};

struct trace_arguments {
    struct trace_key key;
    uint32_t head, len;   /* len 0: not used */
    char text[ARGUMENTS]; /* the beginning of the line (`head` bytes), and its arguments */
};

struct trace_writer {
    const struct desc *desc;
    uint64_t begin_ns;
    struct buf out;
    struct arena arena; /* of one frame */
    struct trace_groups groups;
    struct trace_rank *ranks;
    struct trace_arguments *cache;
    struct trace_totals totals;
};

/* ---- the tracks of a rank ---- */

/* The collectives and the messages of a group have a slot each, and one track. */
static struct trace_track *trace_writer_track_of(const struct trace_rank *r, uint32_t group)
{
    for (uint32_t i = 0; group && i < RECORD_GROUPS; i++) {
        if (r->tracks[i] && r->tracks[i]->group == group)
            return r->tracks[i];
    }
    return NULL;
}

/* Frees the track before, unless another slot has it. */
static void trace_writer_set_track(struct trace_rank *r, uint32_t slot, struct trace_track *t)
{
    struct trace_track *before = r->tracks[slot];
    bool shared = false;
    r->tracks[slot] = t;
    for (uint32_t i = 0; i < RECORD_GROUPS; i++)
        shared = shared || r->tracks[i] == before;
    if (!shared)
        free(before);
}

/* ---- life ---- */

struct trace_writer *trace_writer_new(const struct desc *desc, uint64_t begin_ns)
{
    struct trace_writer *w = xcalloc(1, sizeof *w);
    *w = (struct trace_writer){.desc = desc, .begin_ns = begin_ns};
    buf_init(&w->out);
    arena_init(&w->arena);
    w->ranks = xcalloc(desc->nranks, sizeof *w->ranks);
    w->cache = xcalloc(CACHE, sizeof *w->cache);
    trace_groups_init(&w->groups);
    return w;
}

void trace_writer_free(struct trace_writer *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; w->ranks && i < w->desc->nranks; i++) {
        for (uint32_t k = 0; k < RECORD_GROUPS; k++)
            trace_writer_set_track(&w->ranks[i], k, NULL);
    }
    trace_groups_fini(&w->groups);
    arena_fini(&w->arena);
    buf_fini(&w->out);
    free(w->ranks);
    free(w->cache);
    free(w);
}

struct buf *trace_writer_out(struct trace_writer *w)
{
    return &w->out;
}

struct trace_totals trace_writer_totals(const struct trace_writer *w)
{
    return w->totals;
}

/* ---- lines ---- */

/* Room for a line; `at` goes to trace_writer_commit. */
static char *trace_writer_line(struct trace_writer *w)
{
    return buf_reserve(&w->out, LINE);
}

static void trace_writer_commit(struct trace_writer *w, const char *end)
{
    buf_commit(&w->out, (size_t)(end - (char *)(w->out.data + w->out.len)));
}

static char *trace_writer_metadata(char *at, const char *name, uint32_t pid, uint32_t tid)
{
    at = PUT(at, "{\"ph\":\"M\",\"name\":");
    at = trace_line_string(at, name);
    at = trace_track_place(at, pid, tid);
    return PUT(at, ",\"args\":{");
}

/* The time of the trace. */
static uint64_t trace_writer_time(const struct trace_writer *w, uint64_t ns, int64_t ahead_ns)
{
    int64_t t = (int64_t)(ns - w->begin_ns - (uint64_t)ahead_ns);
    return t > 0 ? (uint64_t)t : 0;
}

/* ---- begin and end ---- */

static char *trace_writer_cut(char *at, const char *text)
{
    char part[TEXT + 1];
    size_t len = strnlen(text, TEXT);
    memcpy(part, text, len);
    part[len] = '\0';
    return trace_line_string(at, part);
}

static char *trace_writer_start_time(char *at)
{
    char text[32];
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return trace_line_string(at, text);
}

static void trace_writer_process(struct trace_writer *w, uint32_t rank)
{
    char *at = trace_writer_line(w);
    at = trace_writer_metadata(at, "process_name", rank, 0);
    at = PUT(at, "\"name\":\"rank ");
    at = trace_line_number(at, rank);
    at = PUT(at, "\",\"rank\":");
    at = trace_line_number(at, rank);
    at = PUT(at, ",\"host\":");
    at = trace_writer_cut(at, w->desc->hosts[w->desc->ranks[rank].host].name);
    at = PUT(at, "}},\n");
    at = trace_writer_metadata(at, "process_sort_index", rank, 0);
    at = PUT(at, "\"sort_index\":");
    at = trace_line_number(at, rank);
    trace_writer_commit(w, PUT(at, "}},\n"));
}

void trace_writer_begin(struct trace_writer *w)
{
    char *at = trace_writer_line(w);
    at = PUT(at, "[\n");
    at = trace_writer_metadata(at, "trace_begin", w->desc->nranks, 0);
    at = PUT(at, "\"version\":1,\"job\":");
    at = trace_writer_cut(at, w->desc->job_name);
    at = PUT(at, ",\"run_id\":");
    at = trace_line_string(at, w->desc->run_id);
    at = PUT(at, ",\"ranks\":");
    at = trace_line_number(at, w->desc->nranks);
    at = PUT(at, ",\"start\":");
    at = trace_writer_start_time(at);
    at = PUT(at, ",\"clock\":\"runner-monotonic\"}},\n");
    at = trace_writer_metadata(at, "process_name", w->desc->nranks, 0);
    trace_writer_commit(w, PUT(at, "\"name\":\"groups\"}},\n"));
    for (uint32_t i = 0; i < w->desc->nranks; i++)
        trace_writer_process(w, i);
}

void trace_writer_end(struct trace_writer *w, int exit_code)
{
    char *at = trace_writer_line(w);
    at = trace_writer_metadata(at, "trace_end", w->desc->nranks, 0);
    at = PUT(at, "\"operations\":");
    at = trace_line_number(at, w->totals.operations);
    at = PUT(at, ",\"dropped\":");
    at = trace_line_number(at, w->totals.dropped);
    at = PUT(at, ",\"exit_code\":");
    at = trace_line_signed(at, exit_code);
    trace_writer_commit(w, PUT(at, "}}\n]\n"));
}

/* ---- instants and counters ---- */

void trace_writer_instant(struct trace_writer *w, const struct trace_instant *i)
{
    bool job = i->rank == WIRE_HOST;
    char *at = trace_writer_line(w);
    at = PUT(at, "{\"ph\":\"i\",\"s\":\"");
    *at++ = job ? 'g' : 'p';
    at = PUT(at, "\",\"cat\":\"event\",\"name\":");
    at = trace_line_string(at, i->name);
    at = trace_track_place(at, job ? w->desc->nranks : i->rank, 0);
    at = PUT(at, ",\"ts\":");
    at = trace_line_us(at, trace_writer_time(w, i->ns, 0));
    at = PUT(at, ",\"args\":{");
    if (i->key) {
        at = trace_line_string(at, i->key);
        *at++ = ':';
        at = trace_line_string(at, i->value);
        at = i->text ? PUT(at, ",") : at;
    }
    if (i->text) {
        at = PUT(at, "\"text\":");
        at = trace_writer_cut(at, i->text);
    }
    trace_writer_commit(w, PUT(at, "}},\n"));
}

void trace_writer_drop(struct trace_writer *w, uint32_t rank, uint64_t ns, uint64_t operations)
{
    char *at = operations ? trace_writer_line(w) : NULL;
    w->totals.dropped += operations;
    if (!at)
        return;
    at = PUT(at, "{\"ph\":\"i\",\"s\":\"p\",\"cat\":\"event\",\"name\":\"dropped\"");
    at = trace_track_place(at, rank, 0);
    at = PUT(at, ",\"ts\":");
    at = trace_line_us(at, trace_writer_time(w, ns, 0));
    at = PUT(at, ",\"args\":{\"operations\":");
    at = trace_line_number(at, operations);
    trace_writer_commit(w, PUT(at, "}},\n"));
}

static void trace_writer_in_flight(struct trace_writer *w, uint32_t rank, uint64_t t,
                                   uint64_t bytes)
{
    struct trace_rank *r = &w->ranks[rank];
    char *at = r->in_flight == bytes ? NULL : trace_writer_line(w);
    r->in_flight = bytes;
    if (!at)
        return;
    at = PUT(at, "{\"ph\":\"C\",\"name\":\"bytes in flight\"");
    at = trace_track_place(at, rank, 0);
    at = PUT(at, ",\"ts\":");
    at = trace_line_us(at, t);
    at = PUT(at, ",\"args\":{\"bytes\":");
    at = trace_line_number(at, bytes);
    trace_writer_commit(w, PUT(at, "}},\n"));
}

static void trace_writer_skew(struct trace_writer *w, uint32_t group, const struct trace_call *c)
{
    char name[80] = "skew ";
    char *at = trace_writer_line(w);
    strncat(name, w->groups.items[group].name, 64);
    at = PUT(at, "{\"ph\":\"C\",\"name\":");
    at = trace_line_string(at, name);
    at = trace_track_place(at, w->desc->nranks, ROWS * (1 + group));
    at = PUT(at, ",\"ts\":");
    at = trace_line_us(at, c->last_ns);
    at = PUT(at, ",\"args\":{\"us\":");
    at = trace_line_us(at, c->last_ns - c->first_ns);
    trace_writer_commit(w, PUT(at, "}},\n"));
}

/* ---- tracks ---- */

static void trace_writer_name_track(struct trace_writer *w, uint32_t rank, struct trace_track *t,
                                    uint32_t row)
{
    const struct trace_group *g = &w->groups.items[t->group];
    char name[80] = "";
    char *at = trace_writer_line(w);
    if (t->named & 1u << row)
        return;
    t->named |= 1u << row;
    strncat(name, g->name, 64);
    at = trace_writer_metadata(at, "thread_name", rank, ROWS * (1 + t->group) + row);
    at = PUT(at, "\"name\":");
    if (row) {
        char *end = name + strlen(name);
        *end++ = ' ';
        *end++ = '(';
        end = trace_line_number(end, row + 1);
        *end++ = ')';
        *end = '\0';
    }
    at = trace_line_string(at, name);
    at = PUT(at, ",\"group\":");
    at = trace_line_string(at, g->name);
    at = PUT(at, ",\"scope\":");
    at = trace_line_string(at, g->scope);
    at = PUT(at, ",\"group_rank\":");
    at = trace_line_number(at, t->group_rank);
    at = PUT(at, ",\"group_size\":");
    at = trace_line_number(at, g->size);
    trace_writer_commit(w, PUT(at, "}},\n"));
}

/* ---- operations ---- */

static char *trace_writer_elements(char *at, const struct trace_op *op, uint32_t size, bool root)
{
    enum collrun_kind kind = (enum collrun_kind)op->kind;
    at = PUT(at, ",\"In msg nelems\":");
    at = trace_line_number(at, trace_elements_in(op, size, root));
    if (!collrun_kind_is_vector(kind)) {
        at = PUT(at, ",\"Out msg nelems\":");
        at = trace_line_number(at, trace_elements_out(op, size, root));
    }
    at = PUT(at, ",\"bytes\":");
    const size_t size_of_one =
        op->function ? mpi_type_bytes(op->dtype) : dtype_size((enum collrun_dtype)op->dtype);
    return trace_line_number(at, op->count * size_of_one);
}

static char *trace_writer_ends(char *at, const struct trace_op *op)
{
    enum collrun_kind kind = (enum collrun_kind)op->kind;
    if (collrun_kind_reduces(kind)) {
        at = PUT(at, ",\"op\":");
        at = trace_line_string(at, op->function ? mpi_op_name(op->op)
                                                : op_name((enum collrun_op)op->op));
    }
    if (collrun_kind_has_root(kind)) {
        at = PUT(at, ",\"root\":");
        at = trace_line_signed(at, op->root_or_peer);
    }
    if (collrun_kind_is_message(kind)) {
        at = PUT(at, ",\"peer\":");
        at = trace_line_signed(at, op->root_or_peer);
        at = PUT(at, ",\"tag\":");
        at = op->tag == COLLRUN_ANY_TAG ? PUT(at, "-1") : trace_line_number(at, op->tag);
    }
    return at;
}

/* At most 1300 bytes: names have at most 64, of which each takes at most 6. */
static char *trace_writer_arguments(char *at, const struct trace_op *op,
                                    const struct trace_group *g, bool root)
{
    static const char *const states[] = {[RECORD_POSTED] = "posted",
                                         [RECORD_STARTED] = "started",
                                         [RECORD_FAILED] = "failed",
                                         [RECORD_ABORTED] = "aborted",
                                         [RECORD_CANCELED] = "canceled"};
    if (op->state != RECORD_DONE) {
        at = PUT(at, ",\"state\":");
        at = trace_line_string(at, states[op->state]);
    }
    at = PUT(at, ",\"Collective name\":");
    at = trace_line_string(at, trace_name(op));
    at = PUT(at, ",\"dtype\":");
    at = trace_line_string(at, op->function ? mpi_type_name(op->dtype)
                                            : dtype_name((enum collrun_dtype)op->dtype));
    at = trace_writer_ends(at, op);
    at = trace_writer_elements(at, op, g->size, root);
    at = PUT(at, ",\"Group size\":");
    at = trace_line_number(at, g->size);
    at = PUT(at, ",\"Process Group Name\":");
    at = trace_line_string(at, g->name);
    if (g->text) {
        at = PUT(at, ",\"Process Group Ranks\":");
        at = trace_line_string(at, g->text);
    }
    return PUT(at, "}},\n");
}

static char *trace_writer_head(char *at, const struct trace_op *op)
{
    const char *name = trace_name(op);
    at = collrun_kind_is_message((enum collrun_kind)op->kind)
             ? PUT(at, "{\"ph\":\"X\",\"cat\":\"p2p\",\"name\":\"")
             : PUT(at, "{\"ph\":\"X\",\"cat\":\"collective\",\"name\":\"");
    at = trace_line_put(at, name, strlen(name));
    return PUT(at, "\"");
}

static const struct trace_arguments *trace_writer_find_arguments(struct trace_writer *w,
                                                                 const struct trace_op *op,
                                                                 const struct trace_track *t)
{
    const struct trace_group *g = &w->groups.items[t->group];
    bool root = op->root_or_peer == (int32_t)t->group_rank;
    const struct trace_key key = {.count = op->count,
                                  .group = t->group << 2 | (g->text ? 2u : 0) | root,
                                  .tag = collrun_kind_is_message(op->kind) ? op->tag : 0,
                                  .root_or_peer = op->root_or_peer,
                                  .kind = op->kind,
                                  .dtype = op->dtype,
                                  .op = op->op,
                                  .state = op->state,
                                  .function = op->function};
    uint64_t hash = (key.count * 31 + key.group * 7919u + key.tag) * 0x9e3779b97f4a7c15u +
                    ((uint64_t)(uint32_t)key.root_or_peer << 8 | (key.kind ^ key.function)) *
                        0xc4ceb9fe1a85ec53u;
    struct trace_arguments *a = &w->cache[(hash >> 40) % CACHE];
    if (a->len && memcmp(&a->key, &key, sizeof key) == 0)
        return a;
    a->key = key;
    a->head = (uint32_t)(trace_writer_head(a->text, op) - a->text);
    a->len = (uint32_t)(trace_writer_arguments(a->text + a->head, op, g, root) - a->text);
    return a;
}

/* From the slice of the send to the slice of the receive. */
static void trace_writer_flow(struct trace_writer *w, const struct trace_op *op,
                              const struct trace_track *t, uint32_t rank, uint32_t tid)
{
    bool sends = op->kind == COLLRUN_SEND;
    uint32_t own = t->group_rank, peer = (uint32_t)op->root_or_peer;
    char *at = op->order == TRACE_OP_NO_ORDER ? NULL : trace_writer_line(w);
    if (!at)
        return;
    at = sends ? PUT(at, "{\"ph\":\"s\"") : PUT(at, "{\"ph\":\"f\",\"bp\":\"e\"");
    at = PUT(at, ",\"cat\":\"p2p\",\"name\":\"message\",\"id\":\"");
    at = trace_line_number(at, ROWS * (1 + t->group));
    *at++ = '/';
    at = trace_line_number(at, sends ? own : peer);
    *at++ = '>';
    at = trace_line_number(at, sends ? peer : own);
    *at++ = '/';
    at = trace_line_number(at, op->tag);
    *at++ = '/';
    at = trace_line_number(at, op->order);
    *at++ = '"';
    at = trace_track_place(at, rank, tid);
    at = PUT(at, ",\"ts\":");
    at = trace_line_us(at, sends || op->ended == op->called ? op->called : op->ended - 1);
    trace_writer_commit(w, PUT(at, "},\n"));
}

/* Times of `op` are those of the trace. */
static void trace_writer_slice(struct trace_writer *w, const struct trace_op *op,
                               struct trace_track *t, uint32_t rank, uint32_t tid)
{
    const struct trace_arguments *arguments = trace_writer_find_arguments(w, op, t);
    char *at = trace_writer_line(w);
    at = trace_line_put(at, arguments->text, arguments->head);
    at = trace_track_put(at, t, rank, tid);
    at = trace_line_us(at, op->called);
    at = PUT(at, ",\"dur\":");
    at = trace_line_us(at, op->ended - op->called);
    at = PUT(at, ",\"args\":{\"seq\":");
    at = trace_line_number(at, op->number);
    if (op->started > op->called) {
        at = PUT(at, ",\"queued\":");
        at = trace_line_us(at, op->started - op->called);
    }
    at = trace_line_put(at, arguments->text + arguments->head, arguments->len - arguments->head);
    trace_writer_commit(w, at);
}

static void trace_writer_op(struct trace_writer *w, const struct trace_frame *f,
                            const struct trace_op *wire)
{
    struct trace_rank *r = &w->ranks[f->rank];
    struct trace_track *t = wire->slot < RECORD_GROUPS ? r->tracks[wire->slot] : NULL;
    struct trace_op op = *wire;
    struct trace_call c;
    t = t ? t : &r->forgotten;
    op.called = trace_writer_time(w, wire->called, f->ahead_ns);
    op.started = wire->started ? trace_writer_time(w, wire->started, f->ahead_ns) : 0;
    op.ended = trace_writer_time(w, wire->ended, f->ahead_ns);
    op.ended = op.ended > op.called ? op.ended : op.called;
    uint32_t row = trace_track_row(t, op.called, op.ended), tid = ROWS * (1 + t->group) + row;
    if (!(t->named & 1u << row))
        trace_writer_name_track(w, f->rank, t, row);
    trace_writer_slice(w, &op, t, f->rank, tid);
    if (collrun_kind_is_message(op.kind))
        trace_writer_flow(w, &op, t, f->rank, tid);
    else if (trace_groups_call(&w->groups, t->group, op.number, op.called, &c))
        trace_writer_skew(w, t->group, &c);
    w->totals.operations++;
}

/* ---- frames ---- */

static void trace_writer_join(struct trace_writer *w, const struct trace_frame *f, uint16_t slot,
                              const struct trace_member *m)
{
    struct trace_rank *r = &w->ranks[f->rank];
    if (slot >= RECORD_GROUPS || m->size > w->desc->nranks)
        return;
    uint32_t group = trace_groups_join(&w->groups, m);
    struct trace_track *t = trace_writer_track_of(r, group);
    if (!t) {
        t = xmalloc(sizeof *t);
        *t = (struct trace_track){.group = group, .group_rank = m->group_rank};
    }
    trace_writer_set_track(r, slot, t);
}

static void trace_writer_group(struct trace_writer *w, const struct trace_frame *f,
                               struct reader *r)
{
    uint16_t slot = read_u16(r);
    struct trace_member m = {.rank = f->rank, .size = read_u32(r), .group_rank = read_u32(r)};
    m.name = read_str(r, &w->arena);
    m.scope = read_str(r, &w->arena);
    if (f->attempt) /* a scope of an earlier attempt is another one */
        m.scope = arena_printf(&w->arena, "%u/%s", f->attempt, m.scope);
    if (!r->bad && m.scope)
        trace_writer_join(w, f, slot, &m);
}

static bool trace_writer_is_sane(const struct trace_op *op)
{
    const enum collrun_kind kind = (enum collrun_kind)op->kind;
    const bool known =
        op->function ? op->function < MPI_FN_COUNT && op->kind == mpi_function_kind(op->function)
                     : kind_is_known(kind) || kind == KIND_PROBE;
    return known && op->state >= RECORD_POSTED && op->state <= RECORD_CANCELED;
}

static void trace_writer_block(struct trace_writer *w, const struct trace_frame *f,
                               struct reader *r)
{
    struct trace_op op;
    uint8_t type = read_u8(r);
    if (type == TRACE_OP_GROUP) {
        trace_writer_group(w, f, r);
    } else if (type == TRACE_OP_OPERATION && r->len - r->pos >= sizeof op) {
        memcpy(&op, r->data + r->pos, sizeof op);
        r->pos += sizeof op;
        r->bad = !trace_writer_is_sane(&op);
        if (!r->bad)
            trace_writer_op(w, f, &op);
    } else {
        r->bad = true;
    }
}

bool trace_writer_frame(struct trace_writer *w, const struct trace_frame *f)
{
    struct reader r;
    reader_init(&r, f->payload, f->len);
    uint64_t now = read_u64(&r), in_flight = read_u64(&r), dropped = read_u64(&r);
    read_u32(&r);
    if (r.bad || f->rank >= w->desc->nranks)
        return false;
    while (!r.bad && r.pos < r.len)
        trace_writer_block(w, f, &r);
    trace_writer_in_flight(w, f->rank, trace_writer_time(w, now, f->ahead_ns), in_flight);
    trace_writer_drop(w, f->rank, now - (uint64_t)f->ahead_ns, dropped);
    arena_fini(&w->arena);
    arena_init(&w->arena);
    return !r.bad;
}

uint32_t trace_writer_count(const struct trace_frame *f)
{
    struct reader r;
    reader_init(&r, f->payload, f->len);
    for (int i = 0; i < 3; i++)
        read_u64(&r);
    uint32_t n = read_u32(&r);
    return r.bad ? 0 : n;
}
