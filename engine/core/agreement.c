/* SPDX-License-Identifier: Apache-2.0
 *
 * One AGREE frame and its answer.
 */
#include "core/agreement.h"

#include "base/debug.h"
#include "base/loop.h"
#include "base/wire_fields.h"
#include "core/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>

/* The store watches the time-out. This one only applies if the store does not answer. */
enum { AGREEMENT_MARGIN_S = 10 };

static uint32_t agreement_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* False: out of memory, or the answer is malformed. */
static bool agreement_read(const struct desc_ranks *members, const struct buf *answer,
                           struct agreement *out)
{
    struct arena arena;
    struct reader r;
    arena_init(&arena);
    reader_init(&r, answer->data, answer->len);
    uint32_t n = read_count(&r, 16);
    uint32_t *ranks = arena_calloc(&arena, n, sizeof *ranks);
    int *statuses = arena_calloc(&arena, n, sizeof *statuses);
    for (uint32_t i = 0; ranks && statuses && i < n && !r.bad; i++) {
        size_t len;
        read_str(&r, &arena);
        const unsigned char *value = read_blob(&r, &len);
        r.bad = r.bad || len != 8;
        ranks[i] = r.bad ? 0 : agreement_u32(value);
        statuses[i] = r.bad ? 0 : (int)agreement_u32(value + 4);
    }
    /* In the order of the group. */
    for (uint32_t i = 0; ranks && statuses && !r.bad && i < members->n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            if (ranks[k] != members->items[i])
                continue;
            out->ranks[out->n] = ranks[k];
            out->statuses[out->n++] = statuses[k];
            break; /* `out` has room for one of each */
        }
    }
    bool good = ranks && statuses && !r.bad;
    arena_fini(&arena);
    return good;
}

static void agreement_send(struct control *control, const struct agreement_spec *spec,
                           const char *scope, int status)
{
    size_t mark;
    struct buf *out = control_begin(control, WIRE_AGREE, &mark);
    wire_put_agree(out, &(struct wire_agree){.scope = scope,
                                             .group = spec->name,
                                             .timeout_ns = spec->timeout_ns,
                                             .members = {spec->members->items, spec->members->n},
                                             .status = status});
    control_end(control, mark);
}

static char *agreement_scope(const struct agreement_spec *spec)
{
    char *scope = NULL;
    if (asprintf(&scope, "%s, agreement#%u:%016llx", spec->name, spec->generation,
                 (unsigned long long)rendezvous_hash(spec->members)) < 0)
        return NULL;
    return scope;
}

void agreement_state(struct control *control, const struct agreement_spec *spec, int status)
{
    char *scope = agreement_scope(spec);
    if (scope)
        agreement_send(control, spec, scope, status);
    free(scope);
}

int agreement_reach(struct control *control, const struct agreement_spec *spec, int status,
                    struct agreement *out, struct diag *d)
{
    struct control_request q = {.answer_type = WIRE_FENCED, .number = 0};
    struct agreement a = {.ranks = calloc(spec->members->n, sizeof *a.ranks),
                          .statuses = calloc(spec->members->n, sizeof *a.statuses)};
    char *scope = agreement_scope(spec);
    uint64_t until =
        deadline_after(now_ns() + (uint64_t)AGREEMENT_MARGIN_S * 1000000000u, spec->timeout_ns);
    if (!a.ranks || !a.statuses || !scope) {
        free(scope);
        agreement_fini(&a);
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    q.scope = scope;
    q.key = "";
    control_request_add(control, &q);
    agreement_send(control, spec, scope, status);
    debug_log(DEBUG_RDV, "%s: agreement of %u members, own status %d", scope, spec->members->n,
              status);
    int rc = control_request_wait(control, &q, until, d);
    debug_log(DEBUG_RDV, "%s: agreement ends with status %d", scope, rc);
    if (rc == COLLRUN_OK && !agreement_read(spec->members, &q.value, &a))
        rc = diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory for the answer of the runner");
    control_request_fini(control, &q);
    free(scope);
    if (rc == COLLRUN_OK)
        *out = a;
    else
        agreement_fini(&a);
    return rc;
}

void agreement_fini(struct agreement *a)
{
    free(a->ranks);
    free(a->statuses);
    *a = (struct agreement){0};
}
