/* SPDX-License-Identifier: Apache-2.0
 *
 * Short collectives: all that one rank contributes fits into its record or slot, so that one step
 * does the call, without the preparations of the exchange.
 */
#ifndef SHM_COLL_SINGLE_STEP_H
#define SHM_COLL_SINGLE_STEP_H

#include "group.h"

/* True if the call is short on this rank, and then on every rank: it depends on kind, count and
 * type alone. */
bool single_step_fits(const struct shm_group *g, const struct collrun_call *call, size_t len);

int single_step_run(struct shm_group *g, const struct collrun_call *call, size_t len);

#endif
