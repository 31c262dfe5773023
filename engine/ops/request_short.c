/* SPDX-License-Identifier: Apache-2.0
 *
 * See request_short.h.
 */
#include "ops/request_short.h"

#include "group/group_enter.h"
#include "observe/call_record.h"
#include "ops/message.h"
#include "progress/p2p_short.h"
#include "progress/progress_queue.h"

bool request_send_now(const struct route *route, const struct progress_queue *pq,
                      const struct collrun_call *call, uint64_t number)
{
    struct collrun_group *g = route->gb->group;
    if (!p2p_short_may_send(pq->config.p2p, call))
        return false;
    uint64_t called = call_record_ticks_if_timed(g);
    if (p2p_short_exec(pq->config.p2p, call) != COLLRUN_OK)
        return false;
    called = called ? called : call_record_ticks(g);
    number = number ? number : group_number(g, GROUP_MESSAGES, 1);
    call_record_enter_message(g, call, number, called);
    call_record_sent(route, call, number, called);
    return true;
}

/* It holds nothing: its send is done, and has no failure. */
static struct collrun_call request_sent_call = {.kind = COLLRUN_SEND};
static struct collrun_request request_sent = {
    .calls = &request_sent_call, .ncalls = 1, .status = COLLRUN_OK, .shared = true};

struct collrun_request *request_send_short(const struct route *route,
                                           const struct collrun_call *call, uint64_t number)
{
    struct progress_queue *pq = route->gb->pq[GROUP_MESSAGES];
    if (call->kind != COLLRUN_SEND || !p2p_short_may_send(pq->config.p2p, call) || route->bounced ||
        route->waits || !pq_enter_direct(pq))
        return NULL;
    const bool sent = request_send_now(route, pq, call, number);
    pq_leave_direct(pq);
    return sent ? &request_sent : NULL;
}

struct collrun_request *request_send_plain(struct collrun_group *g,
                                           const struct collrun_call *given, uint64_t site)
{
    const struct route route = {.gb = &g->backends[0], .site = site};
    if (given->kind != COLLRUN_SEND || given->size != sizeof *given || group_has_failed(g) ||
        group_enters(route.gb, COLLRUN_SEND) || group_is_closed(g) || !message_is_plain(g, given))
        return NULL;
    return request_send_short(&route, given, 0);
}
