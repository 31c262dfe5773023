/* SPDX-License-Identifier: Apache-2.0
 *
 * struct coord_server: the coordinator of a group, a thread in the process of its rank 0.
 */
#ifndef NCCL_COORD_SERVER_H
#define NCCL_COORD_SERVER_H

#include "frame.h"

#include <collrun/backend.h>
#include <stdbool.h>

struct coord_server;

/* `services` live until coord_server_free returns. Serves `nranks` processes with `ndevs` GPUs
 * each, which connect to the listening socket; that is taken over on success. NULL: no memory or no
 * thread; the error message is stored. */
struct coord_server *coord_server_new(const struct collrun_services *services, int listener,
                                      uint64_t secret, uint32_t nranks, uint32_t ndevs);
/* Waits until all ranks have connected and disconnected; with `at_once` it does not wait. */
void coord_server_free(struct coord_server *s, bool at_once);

#endif
