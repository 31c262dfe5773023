/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives whose whole contribution of one rank fits into its post: one step, one slip per
 * rank, no preparations. They do what the exchange would do with them, in a fraction of its time.
 */
#ifndef SHM_SHORT_H
#define SHM_SHORT_H

#include "group.h"

/* Whether the call is short on this rank, and then on every rank: it depends on kind, count and
 * type alone. */
bool short_fits(const struct shm_group *g, const struct collrun_call *call);

int short_run(struct shm_group *g, const struct collrun_call *call);

#endif
