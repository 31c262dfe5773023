/* SPDX-License-Identifier: Apache-2.0
 *
 * A blocking call of one short message: the transport moves it at once, where it can, without a
 * message of its queue, a look at the match or a flush.
 *
 * - The short way is open only while no message is in progress and none is unexpected, so messages
 *   keep their order, and a receive takes what the match would give it.
 * - Failure modes: none. What the transport refuses (a message that is long, does not arrive in
 *   time, or has another tag, type or count) takes the usual way, p2p_exec, which reports errors.
 */
#ifndef ENGINE_PROGRESS_P2P_SHORT_H
#define ENGINE_PROGRESS_P2P_SHORT_H

#include "core/reduce.h"
#include "progress/p2p.h"

/* Of longer ones no transport takes a copy at once: a bound that saves asking. */
enum { P2P_SHORT_MOST_BYTES = 256 << 10 };

/* False: p2p_short_exec would refuse the send; `p` may be NULL. */
static inline bool p2p_short_may_send(const struct p2p *p, const struct collrun_call *call)
{
    return p && p->transport.send_short &&
           call->count * dtype_size(call->dtype) <= P2P_SHORT_MOST_BYTES;
}

static inline bool p2p_short_may_recv(const struct p2p *p, const struct collrun_call *call)
{
    return p && p->transport.recv_short &&
           call->count * dtype_size(call->dtype) <= P2P_SHORT_MOST_BYTES;
}

/* OK: the message is done, and counted. AGAIN: nothing has happened. */
int p2p_short_exec(struct p2p *p, const struct collrun_call *call);

#endif
