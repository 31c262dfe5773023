/* SPDX-License-Identifier: Apache-2.0
 *
 * Allreduce and reduce of long vectors among several ranks, in two phases per chunk: each rank
 * reduces its share of the chunk from everybody's copy, then the shares are put together. Every
 * element is thus read n times and combined once, in rank order, so all ranks get the same bits.
 */
#ifndef SHM_COMBINE_H
#define SHM_COMBINE_H

#include "group.h"

int combine_run(struct shm_group *g, const struct collrun_call *call);

#endif
