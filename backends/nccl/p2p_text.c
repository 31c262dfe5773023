/* SPDX-License-Identifier: Apache-2.0
 *
 * The error message of an op of messages that timed out: which ranks it waits for, and what is
 * open.
 */
#include "p2p.h"

#include "direct.h"
#include "group.h"

#include <stdio.h>
#include <string.h>

enum { MAX_EXPLAINED = 3, MAX_MISSING = 32 };

/* Adds a rank to a sorted set. */
static uint32_t p2p_add_missing(uint32_t *missing, uint32_t n, uint32_t rank)
{
    uint32_t at = 0;
    while (at < n && missing[at] < rank)
        at++;
    if ((at < n && missing[at] == rank) || n == MAX_MISSING)
        return n;
    memmove(&missing[at + 1], &missing[at], (n - at) * sizeof *missing);
    missing[at] = rank;
    return n + 1;
}

/* "GPU 1 of rank 2 did not send with tag 7" */
static void p2p_unmatched_text(const struct nccl_group *g, const struct collrun_call *c, char *out,
                               size_t len)
{
    if (c->tag == COLLRUN_ENGINE_TAG) {
        snprintf(out, len, "rank %d did not reach this step of the operation", c->peer);
        return;
    }
    const char *verb = c->kind == COLLRUN_SEND ? "receive" : "send";
    char tag[32] = "";
    if (c->tag && c->tag != COLLRUN_ANY_TAG)
        snprintf(tag, sizeof tag, " with tag %u", c->tag);
    if (c->kind == COLLRUN_RECV_ANY)
        snprintf(out, len, "no rank sent%s", tag);
    else if (g->ndevs == 1)
        snprintf(out, len, "rank %d did not %s%s", c->peer, verb, tag);
    else
        snprintf(out, len, "GPU %d of rank %d did not %s%s", c->peer_device, c->peer, verb, tag);
}

/* Whether the other end is not known. That of a direct message that waits for those of its
 * direction before it is not known either. */
static bool p2p_is_unmatched(const struct message *m)
{
    if (m->direct)
        return m->state != MESSAGE_DONE && !m->cross_dep && direct_part(m) && !direct_is_matched(m);
    return m->state == MESSAGE_REQUESTED;
}

static void p2p_open_text(const struct message *m, char *out, size_t len)
{
    const struct nccl_group *g = m->op->group;
    if (p2p_is_unmatched(m))
        p2p_unmatched_text(g, m->call, out, len);
    else if (m->direct && !direct_part(m))
        snprintf(out, len, "NCCL has not connected the GPUs of this rank and of rank %d",
                 m->call->peer);
    else if (m->state == MESSAGE_QUEUED)
        snprintf(out, len,
                 "a message could not start: its stream waits for an unfinished collective");
    else
        snprintf(out, len, "the message with rank %u was matched and did not arrive%s",
                 m->peer_rank / g->ndevs,
                 m->direct || group_is_formed(g)
                     ? ""
                     : ": NCCL has not connected the GPUs of the group");
}

/* What each unfinished message waits for; the first few. */
static void p2p_details_text(const struct op *op, char *out, size_t len)
{
    unsigned open = 0;
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < op->ncalls; i++) {
        char text[160];
        if (op->messages[i].state == MESSAGE_DONE || ++open > MAX_EXPLAINED)
            continue;
        p2p_open_text(&op->messages[i], text, sizeof text);
        at += (size_t)snprintf(out + at, len - at, "%s%s", open > 1 ? "; " : "", text);
        at = at < len ? at : len - 1;
    }
    if (open > MAX_EXPLAINED)
        snprintf(out + at, len - at, "; and %u more", open - MAX_EXPLAINED);
}

void p2p_timeout_text(const struct op *op, char *out, size_t len)
{
    const struct nccl_group *g = op->group;
    const struct collrun_services *s = g->services;
    uint32_t missing[MAX_MISSING], nmissing = 0;
    bool unreceived = false;
    char ranks[200], details[300];
    for (uint32_t i = 0; i < op->ncalls; i++) {
        const struct message *m = &op->messages[i];
        if (!p2p_is_unmatched(m))
            continue;
        if (m->call->kind != COLLRUN_RECV_ANY)
            nmissing = p2p_add_missing(missing, nmissing, (uint32_t)m->call->peer);
        bool sends = m->call->kind == COLLRUN_SEND && m->call->tag != COLLRUN_ENGINE_TAG;
        unreceived = unreceived || sends;
    }
    s->timeout_text(s->ctx, g->rank, missing, nmissing, op->timeout_ns, ranks, sizeof ranks);
    p2p_details_text(op, details, sizeof details);
    snprintf(out, len, "%s: %s%s", ranks, details,
             unreceived ? "; if both ranks send before they receive, use collrun_sendrecv or "
                          "collrun_start_many"
                        : "");
}
