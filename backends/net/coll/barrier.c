/* SPDX-License-Identifier: Apache-2.0
 *
 * Barrier: the ranks of a host meet, their leaders exchange in log2(hosts) rounds of dissemination
 * (Hensgen, Finkel and Manber, 1988), and each leader releases its host.
 */
#include "coll/coll.h"

static int barrier_between_hosts(struct coll *c)
{
    const uint32_t n = c->hosts->n;
    for (uint32_t distance = 1, round = 0; distance < n; distance *= 2, round++) {
        struct net_request requests[2];
        const uint32_t to = coll_leader(c, coll_next_host(c, distance));
        const uint32_t from = coll_leader(c, coll_next_host(c, n - distance));
        int status = net_op_recv(c->op, &requests[0], from, coll_slot(round, 0), NULL, 0);
        if (status == COLLRUN_OK)
            status = net_op_send(c->op, &requests[1], to, coll_slot(round, 0), NULL, 0);
        if (status == COLLRUN_OK)
            status = net_op_wait_all(c->op, requests, 2);
        if (status != COLLRUN_OK)
            return status;
    }
    return COLLRUN_OK;
}

int coll_barrier(struct coll *c)
{
    struct collrun_call meet = COLLRUN_CALL(COLLRUN_BARRIER);
    int status = coll_run_local(c, &meet);
    if (status == COLLRUN_OK && c->leads)
        status = barrier_between_hosts(c);
    return status == COLLRUN_OK ? coll_broadcast_local(c, NULL, 0) : status;
}
