/* SPDX-License-Identifier: Apache-2.0 */
#include "core/failure_text.h"

#include "base/call_text.h"
#include "base/names.h"

#include <stdio.h>
#include <string.h>

enum { NAME_LEN = 64 };

/* "rank 1", with its rank in the job where that is another. */
static void failure_text_rank(const uint32_t *world_rank, uint32_t rank, char out[NAME_LEN])
{
    if (world_rank && world_rank[rank] != rank)
        snprintf(out, NAME_LEN, "rank %u (world rank %u)", rank, world_rank[rank]);
    else
        snprintf(out, NAME_LEN, "rank %u", rank);
}

static void failure_text_call(const struct collrun_call *call, char out[CALL_TEXT_LEN])
{
    if (call->kind == COLLRUN_ALLGATHER && call->op)
        snprintf(out, CALL_TEXT_LEN, "%s", kind_name((unsigned)call->op - 1));
    else
        call_text(call, out, CALL_TEXT_LEN);
}

void failure_text_mismatch(const uint32_t *world_rank, const struct failure_call *a,
                           const struct failure_call *b, char *out, size_t len)
{
    char names[2][NAME_LEN], calls[2][CALL_TEXT_LEN];
    failure_text_rank(world_rank, a->rank, names[0]);
    failure_text_rank(world_rank, b->rank, names[1]);
    failure_text_call(a->call, calls[0]);
    failure_text_call(b->call, calls[1]);
    snprintf(out, len, "%s calls %s, %s calls %s", names[0], calls[0], names[1], calls[1]);
}

void failure_text_counts(const uint32_t *world_rank, const struct collrun_count_mismatch *counts,
                         char *out, size_t len)
{
    char call[CALL_TEXT_LEN], sender[NAME_LEN], receiver[NAME_LEN];
    call_text(counts->call, call, sizeof call);
    failure_text_rank(world_rank, counts->sender, sender);
    failure_text_rank(world_rank, counts->receiver, receiver);
    snprintf(out, len, "%s: %s sends %llu elements to %s, which receives %llu", call, sender,
             (unsigned long long)counts->sent, receiver, (unsigned long long)counts->received);
}

/* "rank 3", "ranks 0-2, 5"; cut with "..." where there is no room. */
static void failure_text_ranks(const uint32_t *ranks, uint32_t n, char *out, size_t len)
{
    size_t at = (size_t)snprintf(out, len, n == 1 ? "rank" : "ranks");
    for (uint32_t i = 0, last; i < n; i = last + 1) {
        char run[32];
        for (last = i; last + 1 < n && ranks[last + 1] == ranks[last] + 1;)
            last++;
        if (last > i)
            snprintf(run, sizeof run, "%u-%u", ranks[i], ranks[last]);
        else
            snprintf(run, sizeof run, "%u", ranks[i]);
        if (at + strlen(run) + 6 > len) {
            snprintf(out + at, len - at, "...");
            return;
        }
        at += (size_t)snprintf(out + at, len - at, "%s%s", i ? ", " : " ", run);
    }
}

void failure_text_timeout(const uint32_t *world_rank, const struct failure_wait *wait, char *out,
                          size_t len)
{
    char name[NAME_LEN], ranks[128];
    failure_text_rank(world_rank, wait->rank, name);
    if (wait->nmissing == 0) {
        failure_text_expired(name, wait->waited_ns, out, len);
        return;
    }
    failure_text_ranks(wait->missing, wait->nmissing, ranks, sizeof ranks);
    snprintf(out, len, "%s waited %.1f s for %s", name, (double)wait->waited_ns / 1e9, ranks);
}

void failure_text_expired(const char *subject, uint64_t waited_ns, char *out, size_t len)
{
    snprintf(out, len, "%s timed out after %.1f s", subject, (double)waited_ns / 1e9);
}
