/* SPDX-License-Identifier: Apache-2.0
 *
 * The signature of an equal form is the call. A v-form's counts do not fit into a fixed size, so
 * its ranks tell what they themselves contribute (`own`), and those that hold an array tell a hash
 * of it (`claim`): everybody then hashes the contributions and compares. In alltoallv each rank
 * tells the sum of the hashes of (from, to, count) over what it sends, and over what it expects;
 * the two agree over all ranks exactly if every pair does. When they do not, all ranks know, and
 * tell each other their counts in full: the sentence then names two ranks and what they call for.
 */
#include "strict.h"

#include "backend.h"
#include "base/loop.h"
#include "emulate.h"
#include "error.h"
#include "gpu.h"
#include "lane.h"
#include "names.h"
#include "route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- signing ---- */

/* A well-mixed 64 bits of three numbers (the finaliser of SplitMix64, thrice). */
static uint64_t hash3(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = 0;
    for (int i = 0; i < 3; i++) {
        x += (i == 0 ? a : i == 1 ? b : c) + 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    return x;
}

/* Sums, so that the order of the ranks is in the terms alone. */
static uint64_t hash_counts(const size_t *counts, uint32_t nranks)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < nranks; i++)
        sum += hash3(i, 0, counts[i]);
    return sum;
}

static bool has_root(enum collrun_kind kind)
{
    const unsigned rooted = 1u << COLLRUN_REDUCE | 1u << COLLRUN_BROADCAST | 1u << COLLRUN_GATHER |
                            1u << COLLRUN_SCATTER | 1u << COLLRUN_GATHERV | 1u << COLLRUN_SCATTERV;
    return rooted >> kind & 1;
}

static bool is_uneven(enum collrun_kind kind)
{
    return kind >= COLLRUN_ALLGATHERV && kind <= COLLRUN_ALLTOALLV;
}

/* Of what an array says (sent or received), per peer, between this rank and all. */
static uint64_t hash_pairs(const size_t *counts, uint32_t rank, uint32_t nranks, bool sent)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < nranks; i++)
        sum += sent ? hash3(rank, i, counts[i]) : hash3(i, rank, counts[i]);
    return sum;
}

static void sign_uneven(struct strict_signature *s, const struct collrun_call *call, uint32_t rank,
                        uint32_t nranks)
{
    const size_t *array =
        call->kind == COLLRUN_SCATTERV ? call->sendcounts : call->recvcounts; /* trimmed: NULL
                                                                               elsewhere */
    if (call->kind == COLLRUN_ALLTOALLV) {
        s->own = hash_pairs(call->sendcounts, rank, nranks, true);
        s->claim = hash_pairs(call->recvcounts, rank, nranks, false);
        return;
    }
    s->own = call->kind == COLLRUN_SCATTERV          ? call->recvcount
             : call->kind == COLLRUN_REDUCE_SCATTERV ? call->recvcounts[rank]
                                                     : call->count;
    s->claims = array != NULL;
    s->claim = array ? hash_counts(array, nranks) : 0;
}

struct strict_signature strict_sign(const struct collrun_call *call, uint64_t number,
                                    uint32_t place, uint32_t nplaces)
{
    struct strict_signature s = {.number = number, .kind = (uint8_t)call->kind};
    if (call->kind == COLLRUN_BARRIER)
        return s;
    s.dtype = (uint8_t)call->dtype;
    s.op = kind_reduces(call->kind) ? (uint8_t)call->op : 0;
    s.root = has_root(call->kind) ? call->root : 0;
    if (is_uneven(call->kind))
        sign_uneven(&s, call, place, nplaces);
    else
        s.count = call->count;
    return s;
}

/* ---- comparing ---- */

/* "allreduce(10 x float32, sum)" */
static void describe(const struct strict_signature *s, char *out, size_t size)
{
    enum collrun_kind kind = (enum collrun_kind)s->kind;
    const char *name = kind_name(kind), *dtype = dtype_name((enum collrun_dtype)s->dtype),
               *op = op_name((enum collrun_op)s->op);
    char count[32] = "", root[32] = "";
    if (!name || !dtype || !op || kind == COLLRUN_BARRIER) {
        snprintf(out, size, "%s()", name ? name : "an unknown operation");
        return;
    }
    if (!is_uneven(kind))
        snprintf(count, sizeof count, "%llu x ", (unsigned long long)s->count);
    if (has_root(kind))
        snprintf(root, sizeof root, ", root %d", (int)s->root);
    snprintf(out, size, "%s(%s%s%s%s%s)", name, count, dtype, kind_reduces(kind) ? ", " : "",
             kind_reduces(kind) ? op : "", root);
}

static bool same_call(const struct strict_signature *a, const struct strict_signature *b)
{
    return a->number == b->number && a->count == b->count && a->root == b->root &&
           a->kind == b->kind && a->dtype == b->dtype && a->op == b->op;
}

static int disagree(const struct strict_signature *all, uint32_t r, uint32_t devices)
{
    char a[128], b[128], numbers[96] = "";
    describe(&all[0], a, sizeof a);
    describe(&all[r], b, sizeof b);
    if (all[0].number != all[r].number)
        snprintf(numbers, sizeof numbers, ", as operations %llu and %llu of the group",
                 (unsigned long long)all[0].number, (unsigned long long)all[r].number);
    return error_cause(COLLRUN_ERR_MISMATCH, "rank 0 calls %s, rank %u calls %s%s", a, r / devices,
                       b, numbers);
}

/* What every rank contributes, as far as it fits: "3, 5, 4". */
static void list_own(const struct strict_signature *all, uint32_t nplaces, char *out, size_t size)
{
    size_t len = 0;
    for (uint32_t i = 0; i < nplaces; i++) {
        int n = snprintf(out + len, size - len, "%s%llu", i ? ", " : "",
                         (unsigned long long)all[i].own);
        if (n < 0 || len + (size_t)n + 8 > size) {
            snprintf(out + len, size - len, ", ...");
            return;
        }
        len += (size_t)n;
    }
}

/* The arrays of two ranks differ, or (a == b) that of one from what the ranks contribute. */
static int disagree_on_arrays(const struct strict_signature *all, uint32_t nplaces, uint32_t a,
                              uint32_t b)
{
    char call[128], own[256], who[64];
    describe(&all[0], call, sizeof call);
    list_own(all, nplaces, own, sizeof own);
    snprintf(who, sizeof who, a == b ? "rank %u gives other" : "ranks %u and %u give different", a,
             b);
    return error_cause(COLLRUN_ERR_MISMATCH,
                       "all call %s, but %s counts for the ranks, which themselves say %s", call,
                       who, own);
}

static int compare_arrays(const struct strict_signature *all, uint32_t nplaces, uint32_t devices)
{
    uint64_t expected = 0;
    uint32_t first = nplaces;
    for (uint32_t i = 0; i < nplaces; i++) {
        expected += hash3(i, 0, all[i].own);
        if (!all[i].claims)
            continue;
        first = first < nplaces ? first : i;
        if (all[i].claim != all[first].claim)
            return disagree_on_arrays(all, nplaces, first / devices, i / devices);
    }
    if (first < nplaces && all[first].claim != expected)
        return disagree_on_arrays(all, nplaces, first / devices, first / devices);
    return COLLRUN_OK;
}

static int compare_pairs(const struct strict_signature *all, uint32_t nplaces)
{
    uint64_t sent = 0, expected = 0;
    for (uint32_t i = 0; i < nplaces; i++) {
        sent += all[i].own;
        expected += all[i].claim;
    }
    if (sent == expected)
        return COLLRUN_OK;
    char call[128];
    describe(&all[0], call, sizeof call);
    return error_cause(COLLRUN_ERR_MISMATCH,
                       "all call %s, but the counts that ranks send are not those that their peers "
                       "expect",
                       call);
}

int strict_compare(const struct strict_signature *all, uint32_t nplaces, uint32_t devices)
{
    for (uint32_t r = 1; r < nplaces; r++) {
        if (!same_call(&all[0], &all[r]))
            return disagree(all, r, devices);
    }
    if (all->kind == COLLRUN_ALLTOALLV)
        return compare_pairs(all, nplaces);
    return is_uneven((enum collrun_kind)all->kind) ? compare_arrays(all, nplaces, devices)
                                                   : COLLRUN_OK;
}

/* ---- before an operation ---- */

static const struct group_side *side_of(const struct lane *lane)
{
    const struct collrun_group *g = lane->group;
    return lane == g->sides[0].lane[GROUP_COLLECTIVES] ? &g->sides[0] : &g->sides[1];
}

/* The i-th device's call; a barrier has one for all of them. */
static struct collrun_call for_device(const struct collrun_call *calls, uint32_t ncalls, uint32_t i)
{
    struct collrun_call call = calls[i < ncalls ? i : 0];
    if (i >= ncalls)
        call.device = (int)i;
    return call;
}

/* One process may speak for several places, a call for each: `own` holds what each of them tells,
 * `len` bytes, `all` room for everybody's, once for each. */
static int exchange(struct lane *lane, const struct collrun_call *calls, uint32_t ncalls,
                    const void *own, void *all, size_t len)
{
    uint32_t nplaces = side_of(lane)->nplaces, n = group_devices(side_of(lane));
    struct collrun_call *gather = calloc(n, sizeof *gather);
    if (!gather)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u calls", n);
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = for_device(calls, ncalls, i);
        gather[i] = (struct collrun_call)COLLRUN_CALL(COLLRUN_ALLGATHER);
        gather[i].send = (const char *)own + i * len;
        gather[i].recv = (char *)all + (size_t)i * nplaces * len;
        gather[i].count = len;
        gather[i].dtype = COLLRUN_UINT8;
        gather[i].device = call.device;
        gather[i].stream = call.stream;
        gather[i].timeout_ns = call.timeout_ns;
    }
    int rc = emulate_exec(lane, gather, n);
    free(gather);
    return rc;
}

/* The memory of an exchange: one that GPUs reach, if the backend knows no other. After a failure
 * they may still write to it, so it is not given back then. */
static void *take(bool pinned, size_t len)
{
    return pinned ? gpu_pinned_take(len) : malloc(len);
}

static void give(bool pinned, void *memory, size_t len, int status)
{
    if (!pinned)
        free(memory);
    else if (status == COLLRUN_OK)
        gpu_pinned_give(memory, len);
}

/* ---- which counts ---- */

static void fill(uint64_t *out, const size_t *counts, uint64_t other, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = counts ? counts[i] : other;
}

/* Of a v-form: how many elements this place has for each, then how many it wants from each;
 * STRICT_UNKNOWN where its call does not say. */
void strict_counts(const struct collrun_call *call, uint32_t place, uint32_t nplaces, uint64_t *out)
{
    uint64_t *sends = out, *wants = out + nplaces;
    fill(sends, NULL, STRICT_UNKNOWN, 2 * nplaces);
    switch (call->kind) {
    case COLLRUN_GATHERV:
        sends[call->root] = call->count;
        fill(wants, call->recvcounts, STRICT_UNKNOWN, nplaces);
        break;
    case COLLRUN_SCATTERV:
        fill(sends, call->sendcounts, STRICT_UNKNOWN, nplaces);
        wants[call->root] = call->recvcount;
        break;
    case COLLRUN_REDUCE_SCATTERV:
        fill(sends, call->recvcounts, 0, nplaces);
        fill(wants, NULL, call->recvcounts[place], nplaces);
        break;
    default:
        fill(sends, call->sendcounts, call->count, nplaces);
        fill(wants, call->recvcounts, 0, nplaces);
    }
}

/* The first pair that does not agree, as the cause of a MISMATCH; OK: there is none. */
int strict_compare_counts(const struct strict_signature *any, const uint64_t *all, uint32_t nplaces,
                          uint32_t devices)
{
    char call[128];
    describe(any, call, sizeof call);
    for (uint32_t from = 0; from < nplaces; from++) {
        for (uint32_t to = 0; to < nplaces; to++) {
            uint64_t sent = all[(size_t)from * 2 * nplaces + to];
            uint64_t wanted = all[((size_t)to * 2 + 1) * nplaces + from];
            if (sent != wanted && sent != STRICT_UNKNOWN && wanted != STRICT_UNKNOWN)
                return error_cause(
                    COLLRUN_ERR_MISMATCH,
                    "%s: rank %u sends %llu elements to rank %u, which receives %llu", call,
                    from / devices, (unsigned long long)sent, to / devices,
                    (unsigned long long)wanted);
        }
    }
    return COLLRUN_OK;
}

/* All have called the same, with counts that do not agree, and all know it. */
static int explain_counts(struct lane *lane, const struct collrun_call *calls, uint32_t ncalls,
                          const struct strict_signature *any)
{
    const struct group_side *side = side_of(lane);
    bool pinned = !(side->backend->memory & COLLRUN_MEMORY_HOST);
    uint32_t n = group_devices(side);
    size_t row = 2 * (size_t)side->nplaces, len = n * (1 + (size_t)side->nplaces) * row * 8;
    uint64_t *own = take(pinned, len);
    if (!own)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = for_device(calls, ncalls, i);
        strict_counts(&call, route_place(side, &call), side->nplaces, own + i * row);
    }
    int rc = exchange(lane, calls, ncalls, own, own + n * row, row * 8);
    if (rc == COLLRUN_OK)
        rc = strict_compare_counts(any, own + n * row, side->nplaces, n);
    give(pinned, own, len, rc == COLLRUN_ERR_MISMATCH ? COLLRUN_OK : rc);
    return rc;
}

static bool all_call_the_same(const struct strict_signature *all, uint32_t nplaces)
{
    for (uint32_t r = 1; r < nplaces; r++) {
        if (!same_call(&all[0], &all[r]))
            return false;
    }
    return true;
}

static int compare(struct lane *lane, const struct collrun_call *calls, uint32_t ncalls,
                   const struct strict_signature *all)
{
    uint32_t nplaces = side_of(lane)->nplaces, n = group_devices(side_of(lane));
    int rc = strict_compare(all, nplaces, n);
    if (rc == COLLRUN_OK || !all_call_the_same(all, nplaces) ||
        explain_counts(lane, calls, ncalls, all) == COLLRUN_ERR_MISMATCH)
        return rc;
    return strict_compare(all, nplaces, n); /* in fewer words */
}

static int check(struct lane *lane, const struct collrun_call *calls, uint32_t ncalls,
                 uint64_t number)
{
    const struct group_side *side = side_of(lane);
    bool pinned = !(side->backend->memory & COLLRUN_MEMORY_HOST);
    uint32_t n = group_devices(side);
    size_t len = n * (1 + (size_t)side->nplaces) * sizeof(struct strict_signature);
    struct strict_signature *own = take(pinned, len);
    if (!own)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for the signatures of %u ranks",
                           side->nplaces);
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = for_device(calls, ncalls, i);
        own[i] = strict_sign(&call, number, route_place(side, &call), side->nplaces);
    }
    int rc = exchange(lane, calls, ncalls, own, own + n, sizeof *own);
    int verdict = rc == COLLRUN_OK ? compare(lane, calls, ncalls, own + n) : rc;
    give(pinned, own, len, rc);
    return verdict;
}

int strict_exec(struct lane *lane, struct collrun_call *calls, uint32_t ncalls, uint64_t number)
{
    const struct collrun_group *g = lane->group;
    if (g->check != COLLRUN_CHECK_STRICT || group_lane_of(calls->kind) == GROUP_MESSAGES ||
        side_of(lane)->nplaces == 1)
        return emulate_exec(lane, calls, ncalls);
    uint64_t begun = now_ns();
    int rc = check(lane, calls, ncalls, number);
    if (rc != COLLRUN_OK)
        return rc;
    uint64_t took = now_ns() - begun;
    for (uint32_t i = 0; i < ncalls; i++)
        calls[i].timeout_ns = calls[i].timeout_ns > took ? calls[i].timeout_ns - took : 1;
    return emulate_exec(lane, calls, ncalls);
}
