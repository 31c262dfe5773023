/* SPDX-License-Identifier: Apache-2.0
 *
 * A reduction over blocks: every block has an owner that combines it, and the results are then left
 * there, gathered by all, or gathered by one rank. allreduce, reduce and reduce_scatter(v) are this
 * with different blocks. Shared by combine.cc (every contribution goes straight to the owner) and
 * ring.cc (contributions are combined on their way round the hosts).
 */
#ifndef BACKENDS_GLOO_COMBINE_H
#define BACKENDS_GLOO_COMBINE_H

#include "group.h"
#include "transfer.h"

namespace collrun_gloo
{

enum class gathered { by_nobody, by_all, by_one };

struct blocks {
    std::vector<size_t> first, count; /* elements, by owner */

    static blocks even(group &g, size_t count);
    static blocks all_of_one(group &g, size_t count, int owner);
    static blocks uniform(group &g, size_t count);
    static blocks of_counts(group &g, const size_t *counts);
    size_t largest() const;
    size_t total() const;
};

struct combination {
    group &g;
    const char *send;
    char *result; /* of the own block; NULL: it only passes through to the gatherer */
    char *all;    /* where gathered blocks go, at their places */
    gathered how;
    int gatherer; /* of by_one */
    const blocks &b;

    size_t offset(int rank) const
    {
        return b.first[static_cast<size_t>(rank)] * g.element();
    }
    size_t bytes(int rank) const
    {
        return b.count[static_cast<size_t>(rank)] * g.element();
    }
    bool gathers(int rank) const
    {
        return how == gathered::by_all || (how == gathered::by_one && rank == gatherer);
    }
};

/* The k-th rank after this one in host order (before it, for negative k). */
int neighbour(group &g, int k);

/* Contributions are combined with those of the same host first; not for half precision, which would
 * be rounded at every stop. */
void ring_combine(const combination &c);
/* Every rank has its own block in place; afterwards all of them. */
void ring_allgather(group &g, char *all, const blocks &b);

} // namespace collrun_gloo
#endif
