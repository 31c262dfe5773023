/* SPDX-License-Identifier: Apache-2.0
 *
 * See p2p_short.h.
 */
#include "progress/p2p_short.h"

#include "core/reduce.h"

static bool p2p_short_is_open(const struct p2p *p, const struct collrun_call *call)
{
    return p->nactive == 0 && p->match.nunexpected == 0 && p->status == COLLRUN_OK &&
           (uint32_t)call->peer != p->rank && call->kind != COLLRUN_RECV_ANY;
}

int p2p_short_exec(struct p2p *p, const struct collrun_call *call)
{
    const bool sends = call->kind == COLLRUN_SEND;
    int (*const move)(void *, const struct collrun_message *) =
        sends ? p->transport.send_short : p->transport.recv_short;
    if (!move || !p2p_short_is_open(p, call))
        return COLLRUN_AGAIN;
    const struct collrun_message message = {
        .envelope = {.count = call->count, .tag = call->tag, .dtype = (uint32_t)call->dtype},
        .data = sends ? (void *)(uintptr_t)call->send : call->recv,
        .len = call->count * dtype_size(call->dtype),
        .peer = (uint32_t)call->peer};
    if (move(p->handle, &message) != COLLRUN_OK)
        return COLLRUN_AGAIN;
    if (!sends && call->received)
        *call->received = call->count;
    if (!sends && call->received_tag)
        *call->received_tag = call->tag;
    if (p->counts && call->tag < MATCH_ENGINE_TAG)
        msg_count_add(p->counts, sends, (uint32_t)call->peer, call->tag);
    return COLLRUN_OK;
}
