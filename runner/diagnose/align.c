/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/align.h"

#include "base/names.h"

const char *align_field(const struct align_call *a, const struct align_call *b)
{
    enum collrun_kind kind = (enum collrun_kind)a->kind;
    if (a->kind != b->kind)
        return "kind";
    if (kind == COLLRUN_BARRIER)
        return NULL;
    if (a->dtype != b->dtype)
        return "dtype";
    if (collrun_kind_reduces(kind) && (a->op != b->op || a->user_op != b->user_op))
        return "op";
    if (collrun_kind_has_root(kind) && a->root != b->root)
        return "root";
    return collrun_kind_is_vector(kind) || a->count == b->count ? NULL : "count";
}

bool align_same(const struct align_call *a, const struct align_call *b)
{
    return !align_field(a, b);
}

uint32_t align_vote(const struct align_call *calls, uint32_t n, uint32_t *class_of)
{
    uint32_t best = n, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        class_of[i] = 0;
        while (!align_same(&calls[class_of[i]], &calls[i]))
            class_of[i]++;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t votes = 0;
        for (uint32_t k = 0; k < n && class_of[i] == i; k++)
            votes += class_of[k] == i;
        best = votes > most ? i : votes && votes == most ? n : best;
        most = votes > most ? votes : most;
    }
    return best;
}
