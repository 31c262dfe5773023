/* SPDX-License-Identifier: Apache-2.0 */
#include "html/flight_records.h"

#include "base/names.h"
#include "base/record_view.h"
#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLIGHT_RECORDS_SCOPES = 4096 };

struct flight_scopes { /* the scopes of groups, as numbers */
    char names[FLIGHT_RECORDS_SCOPES][64];
    uint32_t n;
};

static uint32_t flight_records_scope(struct flight_scopes *s, const char *scope)
{
    for (uint32_t i = s->n; i-- > 0;) {
        if (strcmp(s->names[i], scope) == 0)
            return i;
    }
    if (s->n == FLIGHT_RECORDS_SCOPES)
        return s->n;
    snprintf(s->names[s->n], sizeof s->names[0], "%s", scope);
    return s->n++;
}

static const char *flight_records_state(enum record_state state)
{
    static const char *const names[] = {
        [RECORD_POSTED] = "posted", [RECORD_STARTED] = "started", [RECORD_DONE] = "done",
        [RECORD_FAILED] = "failed", [RECORD_ABORTED] = "aborted", [RECORD_CANCELED] = "canceled"};
    return names[state];
}

/* Bytes of an element. */
static uint64_t flight_records_size(enum collrun_dtype dtype)
{
    static const uint8_t sizes[COLLRUN_DTYPE_COUNT] = {
        [COLLRUN_INT8] = 1,    [COLLRUN_UINT8] = 1,    [COLLRUN_INT16] = 2,   [COLLRUN_UINT16] = 2,
        [COLLRUN_INT32] = 4,   [COLLRUN_UINT32] = 4,   [COLLRUN_INT64] = 8,   [COLLRUN_UINT64] = 8,
        [COLLRUN_FLOAT16] = 2, [COLLRUN_BFLOAT16] = 2, [COLLRUN_FLOAT32] = 4, [COLLRUN_FLOAT64] = 8,
        [COLLRUN_BOOL] = 1};
    return sizes[dtype];
}

struct flight_span { /* of all that is in records */
    uint64_t first_ns, last_ns;
};

static void flight_records_span(const struct record_view *v, struct flight_span *span)
{
    struct record_view_op op;
    for (uint64_t i = record_view_first(v); i < record_view_end(v); i++) {
        if (!record_view_op(v, i, &op) || !op.called_ns)
            continue;
        uint64_t last = op.ended_ns > op.called_ns ? op.ended_ns : op.called_ns;
        span->first_ns = op.called_ns < span->first_ns ? op.called_ns : span->first_ns;
        span->last_ns = last > span->last_ns ? last : span->last_ns;
    }
}

/* What has not ended is drawn a little longer than the last thing that happened. */
static uint64_t flight_records_end(const struct flight_span *span)
{
    return span->last_ns + (span->last_ns - span->first_ns) / 12 + 1000;
}

static void flight_records_rank(const struct record_view *v, uint32_t rank, uint64_t end_ns,
                                struct flight_scopes *scopes, struct ops *ops)
{
    struct record_view_op op;
    struct record_view_group g;
    for (uint64_t i = record_view_first(v); i < record_view_end(v); i++) {
        if (!record_view_op(v, i, &op) || !op.called_ns)
            continue;
        if (!op.is_current || !record_view_group(v, op.slot, &g))
            continue;
        uint64_t end = op.ended_ns ? op.ended_ns : end_ns;
        ops_take(
            ops,
            &(struct op){.rank = rank,
                         .group = g.name,
                         .scope = flight_records_scope(scopes, g.scope),
                         .queue = g.messages,
                         .members = g.members,
                         .kind = op.kind == KIND_PROBE ? "probe" : kind_name(op.kind),
                         .message = g.messages,
                         .state = flight_records_state(op.state),
                         .number = op.number,
                         .bytes = op.count * flight_records_size(op.dtype),
                         .begin_us = (double)op.called_ns / 1e3,
                         .length_us = end > op.called_ns ? (double)(end - op.called_ns) / 1e3 : 0});
    }
}

uint64_t flight_records_read(const struct evidence *e, struct ops *ops)
{
    struct record_view v;
    struct diag d;
    uint64_t lost = 0;
    struct flight_span span = {UINT64_MAX, 0};
    struct flight_scopes *scopes = xcalloc(1, sizeof *scopes);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < e->desc->nranks; i++) {
            const struct rank_state *r = &e->ranks[i];
            if (!r->record_bytes || record_view_init(&v, r->record_bytes, r->record_len, &d) < 0)
                continue;
            lost += pass == 0 ? record_view_first(&v) : 0;
            if (pass == 0)
                flight_records_span(&v, &span);
            else
                flight_records_rank(&v, i, flight_records_end(&span), scopes, ops);
        }
    }
    free(scopes);
    return lost;
}
