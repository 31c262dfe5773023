/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks over all traces, before anything is replayed, that the calls fit together:
 *
 * - Each send has a receive, and each receive a send, of the same pair of ranks, group and tag, in
 *   order; the receive has room for it, and the type is the same.
 * - All members of a group call the same collectives with the same counts and roots, in the same
 *   order. What rank a sends to b in an alltoallv, b receives from a.
 *
 * Calls that fit can still wait for each other in a circle: the engine detects that when it runs.
 */
#ifndef REPLAY_MATCH_H
#define REPLAY_MATCH_H

#include "cast.h"

/* Collective over the processes. 0, or a status or exit code, with the error reported. */
int match_traces(struct cast *c);
#endif
