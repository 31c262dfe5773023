/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of struct collrun_backend that tcp, ucx and gloo share; net_transport (p2p.h) has
 * those for messages.
 *
 * - The members exchange addresses, and the id of their context, when the first handle of a group
 *   is opened. A second handle uses the next id and the same peers.
 * - A group that is closed says so to the members that this process is connected with.
 */
#ifndef NET_BACKEND_H
#define NET_BACKEND_H

#include <collrun/backend.h>

int net_open(const struct collrun_services *services, void **backend);
void net_close(void *backend);
int net_group_open(void *backend, const struct collrun_group_desc *desc, void **group);
void net_group_abort(void *group);
void net_group_close(void *group);
int net_exec(void *group, const struct collrun_call *calls, uint32_t ncalls);

/* One collective by another algorithm than those of coll/: `run` gets the operation (op.h). */
struct net_op;
int net_run(void *group, const struct collrun_call *call, int (*run)(void *ctx, struct net_op *op),
            void *ctx);

#endif
