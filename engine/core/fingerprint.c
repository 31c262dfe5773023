/* SPDX-License-Identifier: Apache-2.0
 *
 * - Forms with one count: the fingerprint is the call.
 * - V-forms: the counts do not fit into a fixed size. Each rank sends the count that it contributes
 *   (`contributed`), and ranks with an array of counts a hash of that array (`expected`). Every
 *   rank hashes the contributions and compares.
 * - alltoallv: each rank sends the sum of the hashes of (from, to, count) over what it sends, and
 *   over what it expects. The two sums over all ranks are equal exactly if all pairs agree.
 * - If v-forms differ, every rank knows it. All ranks then exchange their full counts, and the
 *   error message names two ranks and their counts.
 */
#include "core/fingerprint.h"

#include "base/call_text.h"
#include "core/error.h"

#include <collrun/backend.h>
#include <stdio.h>
#include <string.h>

/* ---- operators of the caller ---- */

static uint64_t user_op_hash_number(uint64_t hash, uint64_t number)
{
    return (hash ^ number) * 0x100000001b3u; /* FNV-1a */
}

uint64_t user_op_hash(const struct collrun_user_op *op)
{
    uint64_t hash = 0xcbf29ce484222325u;
    if (!op)
        return 0;
    for (const char *at = op->name; *at; at++)
        hash = user_op_hash_number(hash, (unsigned char)*at);
    hash = user_op_hash_number(hash, user_op_unit(op));
    hash = user_op_hash_number(hash, op->commutative != 0);
    return hash ? hash : 1;
}

/* ---- fingerprints ---- */

static uint64_t fingerprint_hash_counts(const size_t *counts, uint32_t n, uint64_t base)
{
    uint64_t sum = 0, power = 1;
    for (uint32_t i = 0; i < n; i++, power *= base)
        sum += counts[i] * power;
    return sum;
}

void fingerprint_hash_arrays(const struct collrun_call *call, uint32_t comm_size,
                             struct fingerprint_hashes *out)
{
    *out = (struct fingerprint_hashes){0};
    if (call->recvcounts)
        out->received = fingerprint_hash_counts(call->recvcounts, comm_size, CALL_HASH_RECEIVED);
    if (!call->sendcounts)
        return;
    out->sent = fingerprint_hash_counts(call->sendcounts, comm_size, CALL_HASH_SENT);
    for (uint32_t i = 0; i < comm_size; i++)
        out->total += call->sendcounts[i];
}

static void fingerprint_vector(struct fingerprint *s, const struct collrun_call *call,
                               uint32_t rank, uint32_t nranks)
{
    const struct collrun_kind_info info = collrun_kind_row(call->kind);
    struct fingerprint_hashes h;
    bool scatters = info.recv == COLLRUN_RECVCOUNT_BLOCK;
    fingerprint_hash_arrays(call, nranks, &h);
    if (call->kind == COLLRUN_ALLTOALLV) {
        s->contributed = fingerprint_hash_sent(h.sent, rank);
        s->expected = fingerprint_hash_expected(h.received, rank);
        return;
    }
    s->contributed = collrun_call_range(
                         call, info.send == COLLRUN_ONE_BLOCK ? info.send : info.recv, nranks, rank)
                         .to;
    s->has_expected = scatters ? call->sendcounts != NULL : call->recvcounts != NULL;
    s->expected = scatters ? h.sent : h.received;
}

struct fingerprint fingerprint_of(const struct collrun_call *call, uint64_t number,
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
        fingerprint_vector(&s, call, comm_rank, comm_size);
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

static void fingerprint_call(const struct fingerprint *s, struct compared_call *out)
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

static void fingerprint_describe(const struct fingerprint *s, char *out, size_t size)
{
    struct compared_call compared;
    fingerprint_call(s, &compared);
    call_text(&compared.call, out, size);
}

bool fingerprint_same_call(const struct fingerprint *a, const struct fingerprint *b)
{
    return a->number == b->number && a->count == b->count && a->root == b->root &&
           a->root_device == b->root_device && a->kind == b->kind && a->dtype == b->dtype &&
           a->op == b->op && a->user_op == b->user_op;
}

static int fingerprint_fail_calls(const struct fingerprint *all, uint32_t r, uint32_t devices,
                                  const uint32_t *world_rank)
{
    struct compared_call calls[2];
    const struct failure_call a = {0, &calls[0].call}, b = {r / devices, &calls[1].call};
    char text[512], more[96] = "";
    fingerprint_call(&all[0], &calls[0]);
    fingerprint_call(&all[r], &calls[1]);
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
static void fingerprint_list_own(const struct fingerprint *all, uint32_t comm_size, char *out,
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
static int fingerprint_fail_arrays(const struct fingerprint *all, uint32_t comm_size, uint32_t a,
                                   uint32_t b)
{
    char call[128], own[256], which[96];
    fingerprint_describe(&all[0], call, sizeof call);
    fingerprint_list_own(all, comm_size, own, sizeof own);
    snprintf(which, sizeof which,
             a == b ? "the counts of rank %u do not match" : "ranks %u and %u differ about", a, b);
    return error_cause(COLLRUN_ERR_MISMATCH,
                       "all ranks call %s, but %s the counts that the ranks contribute (%s)", call,
                       which, own);
}

static int fingerprint_compare_arrays(const struct fingerprint *all, uint32_t comm_size,
                                      uint32_t devices)
{
    uint64_t expected = 0;
    uint32_t first = comm_size;
    for (uint32_t i = 0; i < comm_size; i++) {
        expected += all->kind == COLLRUN_SCATTERV ? fingerprint_hash_expected(all[i].contributed, i)
                                                  : fingerprint_hash_sent(all[i].contributed, i);
        if (!all[i].has_expected)
            continue;
        first = first < comm_size ? first : i;
        if (all[i].expected != all[first].expected)
            return fingerprint_fail_arrays(all, comm_size, first / devices, i / devices);
    }
    if (first < comm_size && all[first].expected != expected)
        return fingerprint_fail_arrays(all, comm_size, first / devices, first / devices);
    return COLLRUN_OK;
}

static int fingerprint_compare_pairs(const struct fingerprint *all, uint32_t comm_size)
{
    uint64_t sent = 0, expected = 0;
    for (uint32_t i = 0; i < comm_size; i++) {
        sent += all[i].contributed;
        expected += all[i].expected;
    }
    if (sent == expected)
        return COLLRUN_OK;
    char call[128];
    fingerprint_describe(&all[0], call, sizeof call);
    return error_cause(COLLRUN_ERR_MISMATCH,
                       "all ranks call %s, but the counts that ranks send differ from those that "
                       "their peers expect",
                       call);
}

int fingerprint_compare(const struct fingerprint *all, uint32_t comm_size, uint32_t devices,
                        const uint32_t *world_rank)
{
    for (uint32_t r = 1; r < comm_size; r++) {
        if (!fingerprint_same_call(&all[0], &all[r]))
            return fingerprint_fail_calls(all, r, devices, world_rank);
    }
    if (all->kind == COLLRUN_ALLTOALLV)
        return fingerprint_compare_pairs(all, comm_size);
    return collrun_kind_is_vector((enum collrun_kind)all->kind)
               ? fingerprint_compare_arrays(all, comm_size, devices)
               : COLLRUN_OK;
}

/* ---- which counts ---- */

static void fingerprint_fill(uint64_t *out, const size_t *counts, uint64_t other, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = counts ? counts[i] : other;
}

void fingerprint_counts(const struct collrun_call *call, uint32_t comm_rank, uint32_t comm_root,
                        uint32_t comm_size, uint64_t *out)
{
    uint64_t *sends = out, *wants = out + comm_size;
    fingerprint_fill(sends, NULL, FINGERPRINT_UNKNOWN, 2 * comm_size);
    switch (call->kind) {
    case COLLRUN_GATHERV:
        sends[comm_root] = call->count;
        fingerprint_fill(wants, call->recvcounts, FINGERPRINT_UNKNOWN, comm_size);
        break;
    case COLLRUN_SCATTERV:
        fingerprint_fill(sends, call->sendcounts, FINGERPRINT_UNKNOWN, comm_size);
        wants[comm_root] = call->recvcount;
        break;
    case COLLRUN_REDUCE_SCATTERV:
        fingerprint_fill(sends, call->recvcounts, 0, comm_size);
        fingerprint_fill(wants, NULL, call->recvcounts[comm_rank], comm_size);
        break;
    default:
        fingerprint_fill(sends, call->sendcounts, call->count, comm_size);
        fingerprint_fill(wants, call->recvcounts, 0, comm_size);
    }
}

int fingerprint_compare_counts(const struct fingerprint *any, const uint64_t *all,
                               uint32_t comm_size, uint32_t devices, const uint32_t *world_rank)
{
    struct compared_call compared;
    fingerprint_call(any, &compared);
    for (uint32_t from = 0; from < comm_size; from++) {
        for (uint32_t to = 0; to < comm_size; to++) {
            uint64_t sent = all[(size_t)from * 2 * comm_size + to];
            uint64_t wanted = all[((size_t)to * 2 + 1) * comm_size + from];
            if (sent == wanted || sent == FINGERPRINT_UNKNOWN || wanted == FINGERPRINT_UNKNOWN)
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
