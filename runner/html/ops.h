/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of a run, as a trace or the flight records report them, one call of ops_take per
 * operation of a rank. Memory is bounded for a file of any length:
 *   - for the timeline a sample is kept: all operations until there are OPS_MOST, then those whose
 *     number is a multiple of 2, of 4, ... so that a collective stays on all of its ranks; what has
 *     not ended well always stays
 *   - for the rest numbers are counted: ops_latency per group and kind, bytes per slice of time,
 *     and who called a collective last
 * Times are microseconds of one clock.
 */
#ifndef RUNNER_HTML_OPS_H
#define RUNNER_HTML_OPS_H

#include "base/diag.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    OPS_MOST = 12000,    /* in the sample */
    OPS_ROWS = 1024,     /* of the timeline; operations of further ones are left out */
    OPS_BUCKETS = 288,   /* of a histogram: 8 per factor of 2, from 1 ns */
    OPS_SLICES = 240,    /* of time; each becomes twice as long when the run exceeds them */
    OPS_LATENCIES = 256, /* groups x kinds */
    OPS_RANKS = 1024,    /* of the matrix */
    OPS_PENDING = 16384  /* collectives that some members have called; a power of 2 */
};

struct op {
    uint32_t rank;
    const char *group; /* its name; copied */
    uint32_t scope;    /* equal for all members: which formation of the group */
    uint32_t queue;    /* operations of a rank and scope that overlap have different ones */
    uint32_t members;  /* 0: not known */
    const char *kind;
    bool message;
    const char *state; /* done, failed, aborted, canceled, started, posted */
    uint64_t number;
    uint64_t bytes;
    double begin_us, length_us;
};

struct ops_kept {
    uint32_t row, number;
    uint16_t kind;
    uint8_t state;
    bool message;
    uint64_t bytes;
    double begin_us, length_us;
};

struct ops_row { /* of the timeline */
    uint32_t rank, scope, queue;
    const char *group;
};

struct ops_latency {
    const char *group, *kind;
    uint64_t n, bytes;
    double least_us, most_us, sum_us;
    uint32_t buckets[OPS_BUCKETS];
};

struct ops_pending { /* a collective; members 0: free */
    uint64_t number;
    uint32_t scope, members, called, last, nwaiting;
    double first_us, last_us;
    struct ops_call {
        uint32_t rank;
        double us;
    } * calls; /* [members] */
};

struct ops; /* see ops_new */

struct ops *ops_new(void);
void ops_free(struct ops *ops);

void ops_take(struct ops *ops, const struct op *op);

struct ops_view {    /* all borrowed */
    uint64_t n;      /* operations taken */
    uint64_t stride; /* the sample has numbers that are multiples of it */
    const struct ops_kept *kept;
    uint32_t nkept;
    const struct ops_row *rows;
    uint32_t nrows;
    const char *const *kinds; /* by ops_kept.kind */
    uint32_t nkinds;
    const char *const *states;
    uint32_t nstates;
    const struct ops_latency *latencies;
    uint32_t nlatencies;
    double begin_us, end_us;
    double slice_us; /* slice i begins at slice_begin_us + i * slice_us */
    double slice_begin_us;
    const double *slices; /* bytes of the operations that ended in it: [OPS_SLICES] */
    uint64_t compared;    /* collectives that all members have called */
    uint32_t nranks;      /* 1 + the highest rank */
    const uint64_t *last; /* [nranks]: in how many of them the rank came last */
    const double *waited; /* [i * OPS_RANKS + j]: us that rank i waited for rank j, the last one */
};
/* Sorts the rows by rank and group. */
void ops_view(struct ops *ops, struct ops_view *out);

/* The duration that the share `p` of the operations does not exceed, to 9 %. */
double ops_percentile(const struct ops_latency *l, double p);
/* Where a bucket of the histogram begins. */
double ops_bucket_us(uint32_t bucket);

#endif
