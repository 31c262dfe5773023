/* SPDX-License-Identifier: Apache-2.0
 *
 * Allreduce and reduce of long vectors among several ranks, in two phases per chunk:
 * - each rank reduces its share of the chunk from the inputs of all ranks;
 * - each rank collects the reduced shares of the others.
 * Every element is thus read n times and combined once, in rank order, so all ranks get the same
 * bits. The caller has zeroed g->coll.in and g->coll.out.
 */
#ifndef SHM_COLL_COMBINE_H
#define SHM_COLL_COMBINE_H

#include "group.h"

int combine_run(struct shm_group *g, const struct collrun_call *call);

#endif
