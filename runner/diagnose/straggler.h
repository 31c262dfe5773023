/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank of a group called its operations last, and what that cost. The input is the time at
 * which each member called an operation; operations may be left out.
 *
 * - The lateness of an operation is the time from the median call (the lower one of two) to the
 *   last call.
 * - The first operation is not counted, since its calls differ by the time that ranks need to
 *   start. It is the begin of the time that costs are a share of.
 * - The cost of a rank: the sum of its latenesses as a share of the time. Operations that were left
 *   out are taken to be like those that were given.
 */
#ifndef RUNNER_DIAGNOSE_STRAGGLER_H
#define RUNNER_DIAGNOSE_STRAGGLER_H

#include <stdbool.h>
#include <stdint.h>

enum { STRAGGLER_MIN_COMPARED = 50 };
#define STRAGGLER_MIN_LATE_NS 200000000ull

struct straggler_rank {
    uint32_t rank;    /* world rank */
    uint64_t last;    /* operations that it called last */
    uint64_t late_ns; /* sum of its latenesses */
};

struct straggler_group {
    struct straggler_rank *ranks; /* owned; the members */
    uint64_t *sorted;             /* owned; room for a time per member */
    uint32_t nranks;
    uint64_t compared;            /* operations; the first one is not among them */
    uint64_t operations, time_ns; /* since the first one: all operations, and the time they took */
    uint64_t lowest, highest;     /* number of the first operation, of the last one */
    uint64_t end_ns;              /* the last call of the last one */
};

/* The rank that came last most often. */
struct straggler_finding {
    uint32_t rank;
    uint64_t last, compared; /* it called `last` of `compared` operations last */
    double late_ms;          /* its mean lateness in those */
    double cost;             /* a share of the time, 0 to 1 */
};

/* `rank` of each member is to be set. */
void straggler_init(struct straggler_group *g, uint32_t nranks);
void straggler_fini(struct straggler_group *g); /* safe on a zeroed one */
/* Member i called operation `number` at called_ns[i]; all are times of one clock. */
void straggler_add(struct straggler_group *g, uint64_t number, const uint64_t *called_ns);
/* The cost of member i, 0 to 1. */
double straggler_cost(const struct straggler_group *g, uint32_t i);
/* True if one rank was last in more than half of the operations, at least twice as often as any
 * other rank and more often than chance explains, and that cost more than a tenth of the time.
 * Fewer operations than STRAGGLER_MIN_COMPARED, or less than STRAGGLER_MIN_LATE_NS in all, do not
 * count. */
bool straggler_find(const struct straggler_group *g, struct straggler_finding *out);

/* ---- of all groups ----
 *
 * What has been counted about stragglers (straggler.h) in each group of a job. Formations of one
 * name and the same members count as one group. A job may form any number of groups under new
 * names: of more than STRAGGLER_LIST_MAX, those that ended longest ago are left out.
 */

enum { STRAGGLER_LIST_MAX = 1024 };

struct straggler_sums {
    char *group;                 /* its name; owned */
    struct straggler_group sums; /* in the order of ranks */
    uint64_t ended;              /* the n-th formation that ended */
};

struct straggler_list {           /* all zero: empty */
    struct straggler_sums *items; /* owned */
    uint32_t n;
    uint64_t ended;    /* formations */
    uint64_t left_out; /* groups */
};

void straggler_list_fini(struct straggler_list *list);
/* A formation has ended. Moves what it has compared to the list; `own` is then empty. Without
 * memory for it, it is lost. */
void straggler_list_take(struct straggler_list *list, const char *group,
                         struct straggler_group *own);

#endif
