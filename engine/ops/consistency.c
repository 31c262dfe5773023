/* SPDX-License-Identifier: Apache-2.0
 *
 * - Forms with one count: the fingerprint is the call.
 * - V-forms: the counts do not fit into a fixed size. Each rank sends the count that it contributes
 *   (`contributed`), and ranks with an array of counts a hash of that array (`expected`). Every
 * rank hashes the contributions and compares.
 * - alltoallv: each rank sends the sum of the hashes of (from, to, count) over what it sends, and
 *   over what it expects. The two sums over all ranks are equal exactly if all pairs agree.
 * - If v-forms differ, every rank knows it. All ranks then exchange their full counts, and the
 *   error message names two ranks and their counts.
 */
#include "ops/consistency.h"

#include "base/call_text.h"
#include "base/loop.h"
#include "base/names.h"
#include "base/standstill.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/failure_text.h"
#include "observe/user_op.h"
#include "ops/emulate.h"
#include "ops/route.h"
#include "progress/progress_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fingerprints ---- */

static uint64_t consistency_hash_counts(const size_t *counts, uint32_t n, uint64_t base)
{
    uint64_t sum = 0, power = 1;
    for (uint32_t i = 0; i < n; i++, power *= base)
        sum += counts[i] * power;
    return sum;
}

void consistency_hash_arrays(const struct collrun_call *call, uint32_t comm_size,
                             struct consistency_hashes *out)
{
    *out = (struct consistency_hashes){0};
    if (call->recvcounts)
        out->received = consistency_hash_counts(call->recvcounts, comm_size, CONSISTENCY_RECEIVED);
    if (!call->sendcounts)
        return;
    out->sent = consistency_hash_counts(call->sendcounts, comm_size, CONSISTENCY_SENT);
    for (uint32_t i = 0; i < comm_size; i++)
        out->total += call->sendcounts[i];
}

static void consistency_fingerprint_vector(struct fingerprint *s, const struct collrun_call *call,
                                           uint32_t rank, uint32_t nranks)
{
    struct consistency_hashes h;
    bool scatters = call->kind == COLLRUN_SCATTERV;
    consistency_hash_arrays(call, nranks, &h);
    if (call->kind == COLLRUN_ALLTOALLV) {
        s->contributed = consistency_hash_sent(h.sent, rank);
        s->expected = consistency_hash_expected(h.received, rank);
        return;
    }
    s->contributed = scatters                                ? call->recvcount
                     : call->kind == COLLRUN_REDUCE_SCATTERV ? call->recvcounts[rank]
                                                             : call->count;
    s->has_expected = scatters ? call->sendcounts != NULL : call->recvcounts != NULL;
    s->expected = scatters ? h.sent : h.received;
}

struct fingerprint consistency_fingerprint(const struct collrun_call *call, uint64_t number,
                                           uint32_t comm_rank, uint32_t comm_size)
{
    struct fingerprint s = {.number = number, .kind = (uint8_t)call->kind};
    if (call->kind == COLLRUN_BARRIER)
        return s;
    s.dtype = (uint8_t)call->dtype;
    s.op = collrun_kind_reduces(call->kind) ? (uint8_t)call->op : 0;
    s.user_op = user_op_hash(call->user_op);
    if (call->user_op)
        snprintf(s.user_op_name, sizeof s.user_op_name, "%s", call->user_op->name);
    s.root = collrun_kind_has_root(call->kind) ? call->root : 0;
    s.root_device = collrun_kind_has_root(call->kind) ? call->peer_device : 0;
    if (collrun_kind_is_vector(call->kind))
        consistency_fingerprint_vector(&s, call, comm_rank, comm_size);
    else
        s.count = call->count;
    return s;
}

/* ---- comparing ---- */

/* A call for messages. */
struct compared_call {
    struct collrun_call call;
    struct collrun_user_op user_op;
};

static void consistency_call(const struct fingerprint *s, struct compared_call *out)
{
    *out = (struct compared_call){.user_op = {.name = s->user_op_name}};
    out->call = (struct collrun_call){.size = sizeof out->call,
                                      .kind = (enum collrun_kind)s->kind,
                                      .count = s->count,
                                      .dtype = (enum collrun_dtype)s->dtype,
                                      .op = (enum collrun_op)s->op,
                                      .root = s->root,
                                      .user_op = s->user_op ? &out->user_op : NULL};
}

static void consistency_describe(const struct fingerprint *s, char *out, size_t size)
{
    struct compared_call compared;
    consistency_call(s, &compared);
    call_text(&compared.call, out, size);
}

static bool consistency_same_call(const struct fingerprint *a, const struct fingerprint *b)
{
    return a->number == b->number && a->count == b->count && a->root == b->root &&
           a->root_device == b->root_device && a->kind == b->kind && a->dtype == b->dtype &&
           a->op == b->op && a->user_op == b->user_op;
}

static int consistency_fail_calls(const struct fingerprint *all, uint32_t r, uint32_t devices,
                                  const uint32_t *world_rank)
{
    struct compared_call calls[2];
    const struct failure_call a = {0, &calls[0].call}, b = {r / devices, &calls[1].call};
    char text[512], more[96] = "";
    consistency_call(&all[0], &calls[0]);
    consistency_call(&all[r], &calls[1]);
    failure_text_mismatch(world_rank, &a, &b, text, sizeof text);
    if (all[0].number != all[r].number)
        snprintf(more, sizeof more, ", as operations %llu and %llu of the group",
                 (unsigned long long)all[0].number, (unsigned long long)all[r].number);
    else if (all[0].root == all[r].root && all[0].root_device != all[r].root_device)
        snprintf(more, sizeof more, ", with devices %d and %d of the root", all[0].root_device,
                 all[r].root_device);
    else if (strcmp(all[0].user_op_name, all[r].user_op_name) == 0 &&
             all[0].user_op != all[r].user_op)
        snprintf(more, sizeof more, "; the operators have different units or commutativity");
    return error_cause(COLLRUN_ERR_MISMATCH, "%s%s", text, more);
}

/* The counts that the ranks contribute, as many as fit: "3, 5, 4". */
static void consistency_list_own(const struct fingerprint *all, uint32_t comm_size, char *out,
                                 size_t size)
{
    size_t len = 0;
    for (uint32_t i = 0; i < comm_size; i++) {
        int n = snprintf(out + len, size - len, "%s%llu", i ? ", " : "",
                         (unsigned long long)all[i].contributed);
        if (n < 0 || len + (size_t)n + 8 > size) {
            snprintf(out + len, size - len, ", ...");
            return;
        }
        len += (size_t)n;
    }
}

/* The arrays of two ranks differ, or (a == b) the array of one rank from the contributions. */
static int consistency_fail_arrays(const struct fingerprint *all, uint32_t comm_size, uint32_t a,
                                   uint32_t b)
{
    char call[128], own[256], which[96];
    consistency_describe(&all[0], call, sizeof call);
    consistency_list_own(all, comm_size, own, sizeof own);
    snprintf(which, sizeof which,
             a == b ? "the counts of rank %u do not match" : "ranks %u and %u differ about", a, b);
    return error_cause(COLLRUN_ERR_MISMATCH,
                       "all ranks call %s, but %s the counts that the ranks contribute (%s)", call,
                       which, own);
}

static int consistency_compare_arrays(const struct fingerprint *all, uint32_t comm_size,
                                      uint32_t devices)
{
    uint64_t expected = 0;
    uint32_t first = comm_size;
    for (uint32_t i = 0; i < comm_size; i++) {
        expected += all->kind == COLLRUN_SCATTERV ? consistency_hash_expected(all[i].contributed, i)
                                                  : consistency_hash_sent(all[i].contributed, i);
        if (!all[i].has_expected)
            continue;
        first = first < comm_size ? first : i;
        if (all[i].expected != all[first].expected)
            return consistency_fail_arrays(all, comm_size, first / devices, i / devices);
    }
    if (first < comm_size && all[first].expected != expected)
        return consistency_fail_arrays(all, comm_size, first / devices, first / devices);
    return COLLRUN_OK;
}

static int consistency_compare_pairs(const struct fingerprint *all, uint32_t comm_size)
{
    uint64_t sent = 0, expected = 0;
    for (uint32_t i = 0; i < comm_size; i++) {
        sent += all[i].contributed;
        expected += all[i].expected;
    }
    if (sent == expected)
        return COLLRUN_OK;
    char call[128];
    consistency_describe(&all[0], call, sizeof call);
    return error_cause(COLLRUN_ERR_MISMATCH,
                       "all ranks call %s, but the counts that ranks send differ from those that "
                       "their peers expect",
                       call);
}

int consistency_compare(const struct fingerprint *all, uint32_t comm_size, uint32_t devices,
                        const uint32_t *world_rank)
{
    for (uint32_t r = 1; r < comm_size; r++) {
        if (!consistency_same_call(&all[0], &all[r]))
            return consistency_fail_calls(all, r, devices, world_rank);
    }
    if (all->kind == COLLRUN_ALLTOALLV)
        return consistency_compare_pairs(all, comm_size);
    return collrun_kind_is_vector((enum collrun_kind)all->kind)
               ? consistency_compare_arrays(all, comm_size, devices)
               : COLLRUN_OK;
}

/* ---- before an operation ---- */

/* The i-th device's call; a barrier has one for all of them. */
static struct collrun_call consistency_for_device(const struct group_backend *gb,
                                                  const struct collrun_call *calls, uint32_t ncalls,
                                                  uint32_t i)
{
    struct collrun_call call = calls[i < ncalls ? i : 0];
    if (i >= ncalls)
        call.device = (int)i;
    if (!gb->ndevices)
        call.peer_device = 0;
    return call;
}

/* Gathers `len` bytes of every communicator rank. `own` holds those of this process, one block for
 * each of its devices; for each of them, a block of comm_size * len bytes for the result follows.
 */
static int consistency_exchange(const struct group_backend *gb, struct progress_queue *pq,
                                const struct collrun_call *calls, uint32_t ncalls, void *own,
                                size_t len)
{
    uint32_t comm_size = gb->comm_size, n = group_devices(gb);
    char *all = (char *)own + n * len;
    struct collrun_call *gather = calloc(n, sizeof *gather);
    if (!gather)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for %u calls", n);
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = consistency_for_device(gb, calls, ncalls, i);
        gather[i] = (struct collrun_call)COLLRUN_CALL(COLLRUN_ALLGATHER);
        gather[i].send = (const char *)own + i * len;
        gather[i].recv = all + (size_t)i * comm_size * len;
        gather[i].count = len;
        gather[i].dtype = COLLRUN_UINT8;
        if (gb->group->check != COLLRUN_CHECK_STRICT)
            gather[i].op = FAILURE_TEXT_BEGINS(calls->kind);
        gather[i].device = call.device;
        gather[i].stream = call.stream;
        gather[i].timeout_ns = call.timeout_ns;
    }
    int rc = emulate_exec(gb, pq, gather, n);
    free(gather);
    return rc;
}

/* After a failure a device may still write to memory of an exchange, so it is not reused. */
static void consistency_memory_give(struct memory_kind *kind, void *memory, size_t len, int status)
{
    if (!kind || status == COLLRUN_OK)
        memory_kind_host_give(kind, memory, len);
}

/* ---- which counts ---- */

static void consistency_fill(uint64_t *out, const size_t *counts, uint64_t other, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = counts ? counts[i] : other;
}

void consistency_counts(const struct collrun_call *call, uint32_t comm_rank, uint32_t comm_root,
                        uint32_t comm_size, uint64_t *out)
{
    uint64_t *sends = out, *wants = out + comm_size;
    consistency_fill(sends, NULL, CONSISTENCY_UNKNOWN, 2 * comm_size);
    switch (call->kind) {
    case COLLRUN_GATHERV:
        sends[comm_root] = call->count;
        consistency_fill(wants, call->recvcounts, CONSISTENCY_UNKNOWN, comm_size);
        break;
    case COLLRUN_SCATTERV:
        consistency_fill(sends, call->sendcounts, CONSISTENCY_UNKNOWN, comm_size);
        wants[comm_root] = call->recvcount;
        break;
    case COLLRUN_REDUCE_SCATTERV:
        consistency_fill(sends, call->recvcounts, 0, comm_size);
        consistency_fill(wants, NULL, call->recvcounts[comm_rank], comm_size);
        break;
    default:
        consistency_fill(sends, call->sendcounts, call->count, comm_size);
        consistency_fill(wants, call->recvcounts, 0, comm_size);
    }
}

int consistency_compare_counts(const struct fingerprint *any, const uint64_t *all,
                               uint32_t comm_size, uint32_t devices, const uint32_t *world_rank)
{
    struct compared_call compared;
    consistency_call(any, &compared);
    for (uint32_t from = 0; from < comm_size; from++) {
        for (uint32_t to = 0; to < comm_size; to++) {
            uint64_t sent = all[(size_t)from * 2 * comm_size + to];
            uint64_t wanted = all[((size_t)to * 2 + 1) * comm_size + from];
            if (sent == wanted || sent == CONSISTENCY_UNKNOWN || wanted == CONSISTENCY_UNKNOWN)
                continue;
            const struct collrun_count_mismatch counts = {.call = &compared.call,
                                                          .sent = sent,
                                                          .received = wanted,
                                                          .sender = from / devices,
                                                          .receiver = to / devices};
            char text[512];
            failure_text_counts(world_rank, &counts, text, sizeof text);
            return error_cause(COLLRUN_ERR_MISMATCH, "%s", text);
        }
    }
    return COLLRUN_OK;
}

/* All ranks called the same v-form with counts that differ, and all ranks know it. */
static int consistency_explain_counts(const struct group_backend *gb, struct progress_queue *pq,
                                      const struct collrun_call *calls, uint32_t ncalls,
                                      const struct fingerprint *any)
{
    struct memory_kind *kind = group_host_kind(gb);
    uint32_t n = group_devices(gb);
    size_t row = 2 * (size_t)gb->comm_size, len = n * (1 + (size_t)gb->comm_size) * row * 8;
    uint64_t *own = memory_kind_host_take(kind, len);
    if (!own)
        return COLLRUN_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = consistency_for_device(gb, calls, ncalls, i);
        consistency_counts(&call, route_comm_rank(gb, &call), route_root(gb, &call), gb->comm_size,
                           own + i * row);
    }
    int rc = consistency_exchange(gb, pq, calls, ncalls, own, row * 8);
    if (rc == COLLRUN_OK)
        rc = consistency_compare_counts(any, own + n * row, gb->comm_size, n,
                                        gb->group->id.members.items);
    consistency_memory_give(kind, own, len, rc == COLLRUN_ERR_MISMATCH ? COLLRUN_OK : rc);
    return rc;
}

static bool consistency_same_calls(const struct fingerprint *all, uint32_t comm_size)
{
    for (uint32_t r = 1; r < comm_size; r++) {
        if (!consistency_same_call(&all[0], &all[r]))
            return false;
    }
    return true;
}

static int consistency_resolve(const struct group_backend *gb, struct progress_queue *pq,
                               const struct collrun_call *calls, uint32_t ncalls,
                               const struct fingerprint *all)
{
    uint32_t comm_size = gb->comm_size, n = group_devices(gb);
    const uint32_t *world_rank = gb->group->id.members.items;
    int rc = consistency_compare(all, comm_size, n, world_rank);
    if (rc == COLLRUN_OK || !consistency_same_calls(all, comm_size) ||
        consistency_explain_counts(gb, pq, calls, ncalls, all) == COLLRUN_ERR_MISMATCH)
        return rc;
    return consistency_compare(all, comm_size, n, world_rank); /* without counts */
}

static int consistency_check(const struct group_backend *gb, struct progress_queue *pq,
                             const struct collrun_call *calls, uint32_t ncalls, uint64_t number)
{
    struct memory_kind *kind = group_host_kind(gb);
    uint32_t n = group_devices(gb);
    size_t len = n * (1 + (size_t)gb->comm_size) * sizeof(struct fingerprint);
    struct fingerprint *own = memory_kind_host_take(kind, len);
    if (!own)
        return error_cause(COLLRUN_ERR_NO_MEMORY, "out of memory for the fingerprints of %u ranks",
                           gb->comm_size);
    for (uint32_t i = 0; i < n; i++) {
        struct collrun_call call = consistency_for_device(gb, calls, ncalls, i);
        own[i] = consistency_fingerprint(&call, number, route_comm_rank(gb, &call), gb->comm_size);
    }
    int rc = consistency_exchange(gb, pq, calls, ncalls, own, sizeof *own);
    int verdict = rc == COLLRUN_OK ? consistency_resolve(gb, pq, calls, ncalls, own + n) : rc;
    consistency_memory_give(kind, own, len, rc);
    return verdict;
}

/* With check: strict, and where a backend that compares its own collectives cannot see the call. */
static bool consistency_is_checked(const struct group_backend *gb, const struct collrun_call *calls)
{
    const struct backend *b = gb->backend;
    bool compares = b->table.flags & COLLRUN_BACKEND_INLINE_CHECK &&
                    b->native[COLLRUN_ALLGATHER][COLLRUN_UINT8];
    bool unseen = collrun_kind_reduces(calls->kind) && !backend_is_native(b, calls);
    return gb->comm_size > 1 && !collrun_kind_is_message(calls->kind) &&
           (gb->group->check == COLLRUN_CHECK_STRICT || (compares && unseen));
}

bool consistency_is_plain(const struct group_backend *gb, const struct progress_queue *pq,
                          const struct collrun_call *calls, uint32_t ncalls)
{
    const struct backend *b = gb->backend;
    return ncalls == 1 && b->has_exec && !pq->shared && gb->group->check != COLLRUN_CHECK_STRICT &&
           backend_is_native(b, calls);
}

int consistency_exec(const struct group_backend *gb, struct progress_queue *pq,
                     const struct collrun_call *calls, uint32_t ncalls, uint64_t number)
{
    if (!consistency_is_checked(gb, calls))
        return emulate_exec(gb, pq, calls, ncalls);
    const uint64_t begun = now_ns(), stopped = standstill_total(begun);
    int rc = consistency_check(gb, pq, calls, ncalls, number);
    if (rc != COLLRUN_OK)
        return rc;
    struct collrun_call own[GROUP_MOST_DEVICES]; /* a wait report may be reading `calls` */
    const uint64_t now = now_ns(), stood = standstill_total(now) - stopped;
    const uint64_t took = now - begun > stood ? now - begun - stood : 0;
    for (uint32_t i = 0; i < ncalls; i++) {
        own[i] = calls[i];
        own[i].timeout_ns = own[i].timeout_ns > took ? own[i].timeout_ns - took : 1;
    }
    rc = emulate_exec(gb, pq, own, ncalls);
    /* The others have passed the check, and are in the collective. */
    if (rc == COLLRUN_ERR_NO_MEMORY)
        emulate_give_up(gb, pq, rc);
    return rc;
}
