/* SPDX-License-Identifier: Apache-2.0
 *
 * The evidence comes from the agents (NETWORK), or stands in the message of a time-out, or of a
 * connection that is broken or cannot be made. The peer is
 * the host with the address; without an address, the one that the message names, or the only other
 * one.
 */
#include "diagnose/network_cut.h"

#include <stdio.h>
#include <string.h>

#define BETWEEN ": the network between hosts "

static bool network_cut_has_failed(const struct desc *desc, const struct rank_state *ranks)
{
    uint32_t i = 0;
    while (i < desc->nranks && !ranks[i].first_failure_ns)
        i++;
    return i < desc->nranks;
}

void network_cut_take(const struct desc *desc, struct rank_state *ranks, uint32_t rank,
                      const struct wire_network *answer, bool stopping)
{
    const bool replaces = answer->text[0] || !(stopping || network_cut_has_failed(desc, ranks));
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->ranks[i].host != desc->ranks[rank].host)
            continue;
        ranks[i].address[0] = '\0';
        if (replaces)
            ranks[i].network[0] = '\0';
    }
    snprintf(ranks[rank].address, sizeof ranks->address, "%s", answer->address);
    if (replaces)
        snprintf(ranks[rank].network, sizeof ranks->network, "%s", answer->text);
}

void network_cut_forget(const struct desc *desc, struct rank_state *ranks)
{
    for (uint32_t i = 0; !network_cut_has_failed(desc, ranks) && i < desc->nranks; i++)
        ranks[i].network[0] = '\0';
}

static bool network_cut_read(const struct rank_state *rank, struct network_fault *f,
                             const char **end)
{
    if (network_fault_read(rank->network, f, end))
        return true;
    const int status = rank->why.status ? rank->why.status : rank->failure.code;
    return (rank->failed || rank->why.status) &&
           (status == COLLRUN_ERR_TIMEOUT || status == COLLRUN_ERR_PEER_FAILED) &&
           network_fault_read(rank_failed_text(rank), f, end);
}

bool network_cut_is_reported(const struct rank_state *rank)
{
    struct network_fault f;
    const char *end;
    return network_cut_read(rank, &f, &end);
}

bool network_cut_explains(const struct rank_state *ranks, const uint32_t *late, uint32_t n)
{
    char inside[256];
    for (uint32_t i = 0; i < n; i++) {
        if (!snapshot_inside(&ranks[late[i]].snapshot, inside, sizeof inside) ||
            ranks[late[i]].snapshot.state == 'T')
            return false;
    }
    return true;
}

/* Reads ": the network between hosts a and b may be cut". */
static bool network_cut_names(const char *text, const char *a, const char *b)
{
    char names[600];
    snprintf(names, sizeof names, BETWEEN "%s and %s may be cut", a, b);
    return strncmp(text, names, strlen(names)) == 0;
}

static uint32_t network_cut_peer(const struct desc *desc, const struct rank_state *ranks,
                                 const struct network_cut *cut, const char *end)
{
    const uint32_t own = desc->ranks[cut->rank].host;
    for (uint32_t i = 0; i < desc->nranks; i++) {
        if (desc->ranks[i].host != own && strcmp(ranks[i].address, cut->fault.address) == 0)
            return desc->ranks[i].host;
    }
    for (uint32_t i = 0; i < desc->nhosts; i++) {
        if (i != own && network_cut_names(end, desc->hosts[own].name, desc->hosts[i].name))
            return i;
    }
    return desc->nhosts == 2 ? 1 - own : desc->nhosts;
}

bool network_cut_find(const struct desc *desc, const struct rank_state *ranks, struct arena *arena,
                      uint32_t first, struct network_cut *out)
{
    const char *after = "";
    *out = (struct network_cut){0};
    for (uint32_t i = 0; desc->nhosts > 1 && i < desc->nranks; i++) {
        struct network_fault f;
        const char *end;
        if (!network_cut_read(&ranks[i], &f, &end) ||
            (out->fault.found && i != first &&
             (out->rank == first || out->fault.silent_s >= f.silent_s)))
            continue;
        out->fault = f;
        out->rank = i;
        after = end;
    }
    if (!out->fault.found)
        return false;
    const uint32_t own = desc->ranks[out->rank].host;
    const uint32_t peer = network_cut_peer(desc, ranks, out, after);
    out->hosts[0] = desc->hosts[own].name;
    out->hosts[1] = peer < desc->nhosts ? desc->hosts[peer].name : NULL;
    out->ranks.items = arena_calloc(arena, desc->nranks, sizeof(uint32_t));
    for (uint32_t i = 0; out->hosts[1] && i < desc->nranks; i++) {
        if (desc->ranks[i].host == own || desc->ranks[i].host == peer)
            out->ranks.items[out->ranks.n++] = i;
    }
    return true;
}

void network_cut_hosts_text(const struct network_cut *cut, char *out, size_t size)
{
    out[0] = '\0';
    if (cut->hosts[1])
        snprintf(out, size, BETWEEN "%s and %s may be cut", cut->hosts[0], cut->hosts[1]);
}

void network_cut_text(const struct network_cut *cut, char *out, size_t size)
{
    char fault[NETWORK_TEXT], hosts[600];
    network_fault_text(&cut->fault, fault);
    network_cut_hosts_text(cut, hosts, sizeof hosts);
    snprintf(out, size, "%s%s", fault, hosts);
}
