/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives: chooses how a call runs, and describes each kind as an exchange.
 * - Short calls take one step.
 * - Long allreduce and reduce among three ranks or more are combined in two phases.
 * - All other calls are exchanges (exchange.h).
 */
#ifndef SHM_COLL_COLL_H
#define SHM_COLL_COLL_H

#include "group.h"

/* Runs one call of any kind but send, recv and recv_any. */
int coll_run(struct shm_group *g, const struct collrun_call *call);

#endif
