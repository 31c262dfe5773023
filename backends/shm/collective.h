/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives: each kind described as an exchange, or as the two-phase reduction of combine.h.
 */
#ifndef SHM_COLLECTIVE_H
#define SHM_COLLECTIVE_H

#include "group.h"

/* Runs one call of any kind but send, recv and recv_any. */
int collective_run(struct shm_group *g, const struct collrun_call *call);

#endif
