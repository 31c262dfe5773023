/* SPDX-License-Identifier: Apache-2.0
 *
 * The network between two hosts is dead, and collrun reaches both: what the kernels say about the
 * connections of the ranks (base/network.h), and the pair of hosts that it is about.
 */
#ifndef RUNNER_DIAGNOSE_NETWORK_CUT_H
#define RUNNER_DIAGNOSE_NETWORK_CUT_H

#include "base/network.h"
#include "base/wire_fields.h"
#include "diagnose/evidence.h"

struct network_cut {
    struct network_fault fault;
    uint32_t rank;           /* its connection */
    const char *hosts[2];    /* of this rank, and the other one; NULL: that is not certain */
    struct desc_ranks ranks; /* of both hosts; empty: not certain */
};

/* What an agent says of the connections of its ranks: its address, and the text about one of
 * `rank`, or "". It replaces the last answer. When a rank has failed, or `stopping`,
 * connections are closed; then "" says nothing, and what was known stays. */
void network_cut_take(const struct desc *desc, struct rank_state *ranks, uint32_t rank,
                      const struct wire_network *answer, bool stopping);
/* The wait that it was about has passed: it explains no later time-out. Without an effect once a
 * rank has failed, which ends waits, too. */
void network_cut_forget(const struct desc *desc, struct rank_state *ranks);
/* Finds a connection without an answer: the one of rank `first`, or the one that has been silent
 * for longest. The list is in the arena. False: all are well, or are not known. */
bool network_cut_find(const struct desc *desc, const struct rank_state *ranks, struct arena *arena,
                      uint32_t first, struct network_cut *out);
/* True if the error message of the rank is about a connection without an answer. */
bool network_cut_is_reported(const struct rank_state *rank);
/* True if each of the late ranks is inside an operation, and may wait for the network. */
bool network_cut_explains(const struct rank_state *ranks, const uint32_t *late, uint32_t n);
/* ": the network between hosts a and b may be cut"; or "" */
void network_cut_hosts_text(const struct network_cut *cut, char *out, size_t size);
/* "no answer from ...: the network between hosts a and b may be cut" */
void network_cut_text(const struct network_cut *cut, char *out, size_t size);

#endif
