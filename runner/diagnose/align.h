/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the calls that the members of a group made: which agree, and which differ from the
 * majority. Pure.
 */
#ifndef RUNNER_DIAGNOSE_ALIGN_H
#define RUNNER_DIAGNOSE_ALIGN_H

#include "diagnose/evidence.h"

#include <collrun/types.h>

/* A collective as ranks can compare it. Members that the kind does not use are ignored, also the
 * counts of vector forms, which differ between ranks. */
struct align_call {
    uint8_t kind, dtype, op, function; /* as in record_view_op */
    int32_t root;
    uint64_t count;
    uint32_t user_op; /* of an operator of the caller, its hash; of elements of MPI that differ,
                         theirs; 0: not known */
};

/* The first argument that differs: "kind", "dtype", "op", "root", "count". NULL: none. */
const char *align_field(const struct align_call *a, const struct align_call *b);
/* Splits n calls into classes of equal calls: class_of[i] is the index of the first call equal to
 * call i. Returns the class with the most calls; n: two classes are equally large, or n == 0. */
uint32_t align_vote(const struct align_call *calls, uint32_t n, uint32_t *class_of);

/* ---- calls in the records ----
 *
 * Aligns the collectives that the members of a group have called, as their records hold them
 * (base/record.h), and finds the first operation about which they differ. Pure.
 *
 * - Operations with equal numbers belong together. The first number at which two members called
 *   different operations is the mistake; what follows is a consequence.
 * - The largest class of equal calls is right. Without one, the members that called it are
 *   suspects.
 * - Of a rank that is wrong, the calls that follow decide what happened: it made a call that the
 *   others did not make, left one out, called two in the other order, or passed another argument.
 * - V-forms: the counts of senders and receivers are compared in pairs. A rank that is part of all
 *   pairs that differ is wrong; with one such pair, both are suspects.
 */

enum align_edit { ALIGN_ARGUMENT, ALIGN_EXTRA, ALIGN_LEFT_OUT, ALIGN_SWAPPED };

struct align_counts { /* two members of a v-form whose counts differ; world ranks */
    uint32_t sender, receiver;
    uint64_t sent, expected;
};

struct align_difference {
    const char *group, *scope;
    uint64_t number;
    uint32_t nmembers; /* of the group */
    /* The members whose records have this operation, ascending, with their calls. */
    struct desc_ranks ranks;
    const struct align_call *calls;
    const uint32_t *class_of; /* align_vote */
    uint32_t majority;        /* the class that is right; ranks.n: none */
    const char *field;        /* the first argument that differs; "counts": of a v-form */
    struct desc_ranks wrong, suspects;
    enum align_edit edit; /* of wrong.items[0] */
    bool completed;       /* the operation ended on a rank: data may be wrong since then */
    struct align_counts counts;
};

/* A collective of a record. */
struct align_call align_call_of(const struct record_view_op *op);
/* With `check: off`, calls may differ as long as they complete: a difference counts if its
 * operation has not. The first difference of the group; NULL: of any group, the one that was called
 * first. False: there is none in the records. The lists are in the arena. */
bool align_find(const struct evidence *e, const char *group, struct arena *arena,
                struct align_difference *out);

#endif
