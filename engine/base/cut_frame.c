/* SPDX-License-Identifier: Apache-2.0
 *
 * CUT_FIELDS_... list the fields of the structs; PUT and READ turn each field into the statement
 * for its type. A type is u8 to u64, i32, flag, name (char[64]), or an enum with its number of
 * values. What a pointer leads to follows the fields of its struct.
 */
#include "base/cut_frame.h"

#include <string.h>

#define CUT_FIELDS_CUT(F)                                                                          \
    F(cut_state, state)                                                                            \
    F(u32, rank)                                                                                   \
    F(u32, epoch)                                                                                  \
    F(u32, tap) F(u32, lost) F(u64, forgotten) F(u64, takes)
#define CUT_FIELDS_GROUP(F)                                                                        \
    F(u64, id)                                                                                     \
    F(name, name) F(flag, closed) F(flag, unordered) F(u64, called) F(u32, nmembers) F(u32, nremote)
#define CUT_FIELDS_CHANNEL(F)                                                                      \
    F(u32, group) F(u32, peer) F(u32, tag) F(flag, folded) F(u64, sent) F(u64, taken)
#define CUT_FIELDS_OP(F)                                                                           \
    F(request_state, state)                                                                        \
    F(u8, kind)                                                                                    \
    F(u8, flags)                                                                                   \
    F(u8, dtype)                                                                                   \
    F(u8, op)                                                                                      \
    F(u16, thread)                                                                                 \
    F(u32, group)                                                                                  \
    F(i32, peer)                                                                                   \
    F(u32, tag) F(u64, number) F(u64, count) F(u64, site) F(u64, message) F(u32, nneeds)
#define CUT_FIELDS_THREAD(F)                                                                       \
    F(role, role)                                                                                  \
    F(mode, mode)                                                                                  \
    F(u16, number)                                                                                 \
    F(u32, tid)                                                                                    \
    F(u32, word)                                                                                   \
    F(flag, calls) F(flag, cut) F(u64, since_ns) F(u64, timeout_ns) F(u64, site)

/* The fewest bytes of each, which bound what a count may make the reader allocate. */
enum { CUT_GROUP_LEN = 31, CUT_CHANNEL_LEN = 29, CUT_OP_LEN = 56, CUT_THREAD_LEN = 42 };

/* ---- put ---- */

static void cut_frame_put_name(struct buf *out, const char *name)
{
    buf_put_str(out, name);
}

#define CUT_PUT_u8(v) buf_put_u8(out, v)
#define CUT_PUT_u16(v) buf_put_u16(out, v)
#define CUT_PUT_u32(v) buf_put_u32(out, v)
#define CUT_PUT_u64(v) buf_put_u64(out, v)
#define CUT_PUT_i32(v) buf_put_u32(out, (uint32_t)(v))
#define CUT_PUT_flag(v) buf_put_u8(out, v)
#define CUT_PUT_name(v) cut_frame_put_name(out, v)
#define CUT_PUT_cut_state(v) buf_put_u8(out, (uint8_t)(v))
#define CUT_PUT_request_state(v) buf_put_u8(out, (uint8_t)(v))
#define CUT_PUT_role(v) buf_put_u8(out, (uint8_t)(v))
#define CUT_PUT_mode(v) buf_put_u8(out, (uint8_t)(v))
#define CUT_PUT(type, field) CUT_PUT_##type(from->field);

/* u8 1: a range, u32 first, u32 step; else u8 0, and each. */
static void cut_frame_put_ranks(struct buf *out, const uint32_t *ranks, uint32_t n)
{
    bool range = n > 2;
    for (uint32_t i = 2; range && i < n; i++)
        range = ranks[i] - ranks[i - 1] == ranks[1] - ranks[0];
    buf_put_u8(out, range);
    if (range) {
        buf_put_u32(out, ranks[0]);
        buf_put_u32(out, ranks[1] - ranks[0]);
    }
    for (uint32_t i = 0; !range && i < n; i++)
        buf_put_u32(out, ranks[i]);
}

static void cut_frame_put_op(struct buf *out, const struct record_cut_op *from)
{
    CUT_FIELDS_OP(CUT_PUT)
    cut_frame_put_ranks(out, from->needs, from->nneeds);
}

static void cut_frame_put_ops(struct buf *out, const struct record_cut_op *ops, uint32_t n)
{
    buf_put_u32(out, n);
    for (uint32_t i = 0; i < n; i++)
        cut_frame_put_op(out, &ops[i]);
}

static void cut_frame_put_thread(struct buf *out, const struct record_cut_thread *from)
{
    CUT_FIELDS_THREAD(CUT_PUT)
    cut_frame_put_ops(out, from->ops, from->nops);
}

static void cut_frame_put_group(struct buf *out, const struct record_cut_group *from)
{
    CUT_FIELDS_GROUP(CUT_PUT)
    cut_frame_put_ranks(out, from->members, from->nmembers + from->nremote);
}

static void cut_frame_put_channel(struct buf *out, const struct record_cut_channel *from)
{
    CUT_FIELDS_CHANNEL(CUT_PUT)
}

void cut_frame_put_cut(struct buf *out, const struct record_cut *from)
{
    CUT_FIELDS_CUT(CUT_PUT)
    buf_put_u32(out, from->ngroups);
    for (uint32_t i = 0; i < from->ngroups; i++)
        cut_frame_put_group(out, &from->groups[i]);
    buf_put_u32(out, from->nthreads);
    for (uint32_t i = 0; i < from->nthreads; i++)
        cut_frame_put_thread(out, &from->threads[i]);
    buf_put_u32(out, from->nchannels);
    for (uint32_t i = 0; i < from->nchannels; i++)
        cut_frame_put_channel(out, &from->channels[i]);
    cut_frame_put_ops(out, from->receives, from->nreceives);
}

void cut_frame_put(struct buf *out, const struct cut_frame *frame)
{
    buf_put_u64(out, frame->now_ns);
    buf_put_u64(out, frame->look);
    buf_put_u32(out, frame->n);
}

/* ---- read ---- */

struct cut_read { /* one cut */
    struct reader *r;
    struct arena *arena;
    uint32_t nranks, ngroups;
    uint64_t *listed; /* members and needs so far: a range takes few bytes of the frame */
};

static unsigned cut_read_enum(struct reader *r, unsigned values)
{
    const unsigned v = read_u8(r);
    r->bad = r->bad || v >= values;
    return v < values ? v : 0;
}

static bool cut_read_flag(struct reader *r)
{
    return cut_read_enum(r, 2) != 0;
}

static void cut_read_name(struct reader *r, char name[64])
{
    size_t len;
    const char *text = read_blob(r, &len);
    r->bad = r->bad || len >= 64;
    if (text && len < 64)
        memcpy(name, text, len);
}

#define CUT_READ_u8(v) v = read_u8(c->r)
#define CUT_READ_u16(v) v = read_u16(c->r)
#define CUT_READ_u32(v) v = read_u32(c->r)
#define CUT_READ_u64(v) v = read_u64(c->r)
#define CUT_READ_i32(v) v = (int32_t)read_u32(c->r)
#define CUT_READ_flag(v) v = cut_read_flag(c->r)
#define CUT_READ_name(v) cut_read_name(c->r, v)
#define CUT_READ_cut_state(v) v = (enum record_cut_state)cut_read_enum(c->r, RECORD_CUT_ENDED + 1)
#define CUT_READ_request_state(v)                                                                  \
    v = (enum record_request_state)cut_read_enum(c->r, RECORD_ABANDONED + 1)
#define CUT_READ_role(v) v = (enum record_cut_role)cut_read_enum(c->r, RECORD_CUT_ASLEEP + 1)
#define CUT_READ_mode(v) v = (enum record_mode)cut_read_enum(c->r, RECORD_ANY + 1)
#define CUT_READ(type, field) CUT_READ_##type(to->field);

/* No list is longer than the job, and each member is a rank of it. */
static const uint32_t *cut_read_ranks(const struct cut_read *c, uint32_t n)
{
    *c->listed += n;
    c->r->bad = c->r->bad || n > c->nranks || *c->listed > RECORD_CUT_MEMBERS;
    uint32_t *ranks = c->r->bad ? NULL : arena_calloc(c->arena, n, sizeof *ranks);
    const bool range = cut_read_flag(c->r);
    const uint32_t first = range ? read_u32(c->r) : 0, step = range ? read_u32(c->r) : 0;
    for (uint32_t i = 0; ranks && i < n; i++) {
        ranks[i] = range ? first + i * step : read_u32(c->r);
        c->r->bad = c->r->bad || ranks[i] >= c->nranks;
    }
    return ranks;
}

static void cut_check_group(const struct cut_read *c, uint32_t group, bool none)
{
    c->r->bad = c->r->bad || !(group < c->ngroups || (none && group == RECORD_CUT_NO_GROUP));
}

static void cut_read_op(const struct cut_read *c, struct record_cut_op *to)
{
    CUT_FIELDS_OP(CUT_READ)
    cut_check_group(c, to->group, true);
    to->needs = cut_read_ranks(c, to->nneeds);
}

static struct record_cut_op *cut_read_ops(const struct cut_read *c, uint32_t *n)
{
    *n = read_count(c->r, CUT_OP_LEN);
    struct record_cut_op *ops = arena_calloc(c->arena, *n, sizeof *ops);
    for (uint32_t i = 0; ops && !c->r->bad && i < *n; i++)
        cut_read_op(c, &ops[i]);
    return ops;
}

static void cut_read_thread(const struct cut_read *c, struct record_cut_thread *to)
{
    CUT_FIELDS_THREAD(CUT_READ)
    to->ops = cut_read_ops(c, &to->nops);
}

static void cut_read_group(const struct cut_read *c, struct record_cut_group *to)
{
    CUT_FIELDS_GROUP(CUT_READ)
    c->r->bad = c->r->bad || to->nmembers > c->nranks || to->nremote > c->nranks;
    to->members = cut_read_ranks(c, c->r->bad ? 0 : to->nmembers + to->nremote);
}

static void cut_read_channel(const struct cut_read *c, struct record_cut_channel *to)
{
    CUT_FIELDS_CHANNEL(CUT_READ)
    cut_check_group(c, to->group, false);
}

void cut_frame_read_cut(struct reader *r, uint32_t nranks, struct arena *arena,
                        struct record_cut *to)
{
    uint64_t listed = 0;
    struct cut_read one = {.r = r, .arena = arena, .nranks = nranks, .listed = &listed};
    const struct cut_read *c = &one;
    *to = (struct record_cut){0};
    CUT_FIELDS_CUT(CUT_READ)
    r->bad = r->bad || to->rank >= nranks;
    to->ngroups = one.ngroups = read_count(r, CUT_GROUP_LEN);
    to->groups = arena_calloc(arena, to->ngroups, sizeof *to->groups);
    for (uint32_t i = 0; to->groups && !r->bad && i < to->ngroups; i++)
        cut_read_group(c, &to->groups[i]);
    to->nthreads = read_count(r, CUT_THREAD_LEN);
    to->threads = arena_calloc(arena, to->nthreads, sizeof *to->threads);
    for (uint32_t i = 0; to->threads && !r->bad && i < to->nthreads; i++)
        cut_read_thread(c, &to->threads[i]);
    to->nchannels = read_count(r, CUT_CHANNEL_LEN);
    to->channels = arena_calloc(arena, to->nchannels, sizeof *to->channels);
    for (uint32_t i = 0; to->channels && !r->bad && i < to->nchannels; i++)
        cut_read_channel(c, &to->channels[i]);
    to->receives = cut_read_ops(c, &to->nreceives);
    r->bad = r->bad || arena_failed(arena);
}

struct cut_frame cut_frame_read(struct reader *r)
{
    struct cut_frame frame;
    frame.now_ns = read_u64(r);
    frame.look = read_u64(r);
    frame.n = read_u32(r);
    return frame;
}
