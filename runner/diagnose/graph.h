/* SPDX-License-Identifier: Apache-2.0
 *
 * The wait-for graph: which rank waits in which operation for which ranks. Pure.
 * - A rank in a collective waits for the members of the group that have not called it.
 * - A rank in another call, such as collrun_finalize, waits for those that have not made it.
 * - A rank in a message waits for its peer, unless the peer is in the counterpart.
 * - A sink is a rank that others wait for and that waits for no rank: it computes, sleeps, reads,
 *   or has ended. Every wait that is no cycle ends in a sink, however many groups lie in between.
 */
#ifndef RUNNER_DIAGNOSE_GRAPH_H
#define RUNNER_DIAGNOSE_GRAPH_H

#include "diagnose/evidence.h"

struct graph_wait { /* one call that a rank waits in */
    uint32_t rank;
    const char *group;
    uint64_t number; /* 0: it is no operation, but `call` */
    uint8_t kind;
    const char *call;             /* "collrun_finalize"; else NULL */
    uint64_t age_ns;              /* since it was called */
    struct desc_ranks waited_for; /* ascending; never empty */
};

struct graph {
    const struct graph_wait *waits; /* by rank */
    uint32_t n, nranks;
};

/* The graph is in the arena. */
void graph_build(const struct evidence *e, struct arena *arena, struct graph *graph);
/* The sinks that can be reached from `start`; without any, an empty list. */
struct desc_ranks graph_sinks(const struct graph *graph, uint32_t start, struct arena *arena);
/* All ranks that can be reached from `start`, and `start`. */
struct desc_ranks graph_reached(const struct graph *graph, uint32_t start, struct arena *arena);

#endif
