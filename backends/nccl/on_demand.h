/* SPDX-License-Identifier: Apache-2.0
 *
 * struct on_demand: forms the communicators of a group's handles when the first rank needs them,
 * and has all ranks close them at one time.
 */
#ifndef NCCL_ON_DEMAND_H
#define NCCL_ON_DEMAND_H

#include "coord/client.h"

#include <collrun/backend.h>
#include <stdbool.h>

struct nccl_group;
struct on_demand;

/* For the handle for collectives, which owns it. Connects to the coordinator by the deadline, and
 * starts the thread. */
int on_demand_new(struct nccl_group *g, const struct coord_addr *addr, uint32_t world_rank,
                  uint64_t deadline_ns, struct on_demand **out);
/* Adds the handle for messages. Other ranks may want its communicators before. */
void on_demand_add(struct on_demand *d, struct nccl_group *messages);
/* Has the communicators for collectives formed, if no rank has wanted them yet. Returns 0, or an
 * errno if the coordinator is lost. */
int on_demand_want(struct nccl_group *g);
/* For a group that the program has closed: has close(g) called when all ranks have closed it, and
 * the GPUs of all are idle and locked; with `alone`, or where the others do not take part, when
 * those of this rank are. Frees `d`; NULL is OK. */
void on_demand_close(struct nccl_group *g, struct on_demand *d, bool alone,
                     void (*close)(struct nccl_group *g));

#endif
