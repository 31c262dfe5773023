/* SPDX-License-Identifier: Apache-2.0
 *
 * struct verdict: how an attempt ended and which ranks caused it. diagnose/verdict.h finds it.
 */
#ifndef RUNNER_DIAGNOSE_VERDICT_TYPES_H
#define RUNNER_DIAGNOSE_VERDICT_TYPES_H

#include "diagnose/network_cut.h"

struct verdict_call { /* a call, and the ranks that made it */
    struct desc_ranks ranks;
    const char *call; /* "allreduce(8 x float32, sum)" */
    uint32_t rank;    /* one of them, whose record has the address of its call of MPI: */
    uint64_t site;    /* 0: none has */
};

struct verdict_doing { /* what a rank was doing when a time limit passed */
    uint32_t rank;
    const char *text; /* "in load_batch (data.c:88), asleep in nanosleep()" */
};

struct verdict_warning {
    uint32_t rank;
    const char *text;
    /* A mistake in the record of the rank has a place there, and the address of its call. Site 0:
     * the warning is no such mistake, or the address is not known. */
    uint32_t mistake;
    uint64_t site;
};

struct verdict_wait { /* ranks that wait in the same operation for the same ranks */
    struct desc_ranks ranks;
    const char *group;
    uint64_t number;
    struct desc_ranks waited_for;
};

/* Lists of ranks are in ascending order. All that is pointed to is in the arena of verdict_find. */
struct verdict {
    enum cause_class class;
    int exit_code;    /* of collrun */
    int own_code;     /* of `rank`, however collrun ends: after a time-out, its program's answer */
    uint32_t rank;    /* the culprit that failed first; WIRE_HOST: the cause is not the end of a
                         rank */
    struct diag diag; /* the message, with its place in job.yaml if it has one */
    struct desc_ranks culprits, suspects;
    const char *group; /* the operation that failed; NULL: none, and the next three are unset */
    const char *kind;  /* "allreduce"; NULL: not known */
    uint64_t number;   /* in the group, from 1 */
    const struct rank_exception *exception; /* that a culprit did not catch; NULL: none */
    const struct network_cut *network; /* a connection without an answer; NULL: none is known */
    const char *field; /* of a mismatch, the first argument that differs: "op"; else NULL */
    const struct verdict_call *calls;
    const struct verdict_wait *waits;
    const struct verdict_doing *doing;
    const struct verdict_warning *warnings; /* beside the class, also of a job that ends well */
    uint32_t ncalls, nwaits, ndoing, nwarnings;
};

#endif
