/* SPDX-License-Identifier: Apache-2.0
 *
 * struct cuts: the last cut of each rank that its agent has sent (base/cut_frame.h), and what they
 * prove (diagnose/proof.h). Pure: no clock, no I/O.
 *
 * A proof needs no second look. It gets one nevertheless, because a false verdict ends a job: when
 * the agents have looked at all ranks again, no thread of it may have returned from its call. If
 * one has, the proof was wrong.
 */
#ifndef RUNNER_DIAGNOSE_CUTS_H
#define RUNNER_DIAGNOSE_CUTS_H

#include "base/cut_frame.h"
#include "base/wire.h"
#include "diagnose/graph.h"
#include "diagnose/proof.h"

struct cuts {
    uint32_t nranks;
    struct cuts_rank *ranks;         /* owned; NULL: no memory */
    const struct rank_state *places; /* as in struct proof */
};

struct cuts_rank {
    struct arena arena; /* of the cut */
    struct record_cut cut;
    bool known;
};

void cuts_init(struct cuts *c, uint32_t nranks);
void cuts_fini(struct cuts *c); /* safe on a zeroed one */

/* The payload of SNAPSHOT, from an agent whose ranks are those of `host`; others are dropped. */
struct cuts_news {
    bool malformed;
    bool blocked;  /* a cut was read in which a thread is in a call, or its rank has ended */
    uint64_t look; /* the number of the LOOK that it answers; 0: none */
};
struct cuts_news cuts_take(struct cuts *c, const struct desc *desc, uint32_t host,
                           const struct wire_frame *f);

/* ---- what they prove ---- */

/* Two collectives of a cycle that some ranks call in an order which more ranks contradict. */
struct cuts_order {
    const char *first, *later; /* groups */
    uint64_t first_number, later_number;
    struct desc_ranks ranks; /* that have called the first one alone, ascending; none: no order has
                                a majority */
};

struct cuts_call { /* a call in which a thread is, of which the proof says that it never returns */
    uint32_t rank, tid, word;
};

/* Needs the cuts no more. */
struct cuts_proof {
    struct diag diag; /* names the ranks and the calls that block them */
    enum proof_shape shape;
    struct desc_ranks core; /* the ranks that the text names, ascending */
    struct cuts_order minority;
    uint32_t missing;    /* MISSING: the rank that they wait for */
    bool missing_sleeps; /* all its threads do; else it has ended */
    struct graph waits;  /* of all ranks with a thread in the proof */
    const struct cuts_call *calls;
    uint32_t ncalls;
    bool engine;                           /* of one of these ranks, the engine writes the record */
    struct stacks_call sites[PROOF_CALLS]; /* of the calls that the text names */
    uint32_t nsites;
    bool ended; /* some rank of the job has ended, which may let a library return an error */
};

/* False: they prove nothing. What `out` points to is in the arena. */
bool cuts_prove(const struct cuts *c, struct arena *arena, struct cuts_proof *out);

enum cuts_check {
    CUTS_HOLDS, /* no thread of it has returned */
    CUTS_MOVED, /* one has: the proof was wrong */
    CUTS_GONE   /* a rank has ended since, or nothing is known of it: it is no proof any more */
};
/* Once the ranks were looked at again. */
enum cuts_check cuts_check(const struct cuts *c, const struct cuts_proof *p);

/* "by wait reports ranks 0-1, by cuts ranks 0-2": for developers, where the proof of
 * diagnose/deadlock.h is about other ranks; `by_cuts` NULL: these prove nothing. False: both are
 * about the same ranks, or of some rank no cut is known. */
bool cuts_differ(const struct cuts *c, const struct graph *by_reports,
                 const struct cuts_proof *by_cuts, char *out, size_t size);

#endif
