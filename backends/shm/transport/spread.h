/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps ranks that have a core each apart. A rank that was woken by another one is often placed on
 * the same core, and where other programs keep all cores busy the scheduler leaves both there, so
 * that they take turns. Here each rank publishes the core on which it waits, and a rank that finds
 * one of lower number on its core moves to one that no other rank uses.
 *
 * - A move is two changes of the thread's affinity mask, which is the same afterwards.
 * - A published core may be out of date. The move is then in vain, and is repeated at most every
 *   SPREAD_INTERVAL_NS.
 */
#ifndef SHM_TRANSPORT_SPREAD_H
#define SHM_TRANSPORT_SPREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SPREAD_INTERVAL_NS 1000000u

/* The core of a rank, plus one; 0: not known. Relaxed: a hint, which may be out of date. */
struct spread_core {
    _Atomic uint32_t number;
};

/* Publishes the core of this thread. */
void spread_publish(struct spread_core *cores, uint32_t rank);

/* True if another rank has published this rank's core; `lower`: a rank of lower number. */
bool spread_is_shared(const struct spread_core *cores, uint32_t nranks, uint32_t rank, bool lower);

/* Moves the calling thread to a core that no other rank has published. False if there is none. */
bool spread_move(struct spread_core *cores, uint32_t nranks, uint32_t rank);

#endif
