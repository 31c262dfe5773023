/* SPDX-License-Identifier: Apache-2.0
 *
 * Entering a family of groups that share communicator resources.
 *
 * Happy path
 *   - a group with the option `share` enters the family of its parent when it is formed, and its
 *     communicators are split from those of the parent. NCCL shares if the configuration of the
 *     parent says so, which it does if the engine says that it is shared;
 *   - the collectives of a family are one queue of the scheduler, that of the root: NCCL runs its
 *     kernels one after the other;
 *   - the last group of a family that the program closes closes all: children before parents.
 * Failures
 *   - what cannot share is refused before anything is formed;
 *   - a rank does not split: forming ends by its deadline, and the family has failed.
 */
#include "share.h"

#include "group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPLIT_SINCE = 21800 }; /* ncclCommSplit, with splitShare in ncclConfig_t */

/* ---- joining ---- */

static int share_refuse(struct nccl_group *g, int status, const char *text)
{
    return g->services->fail(g->services->ctx, status, "%s", text);
}

static int share_check_library(struct nccl_group *g)
{
    const struct libraries *lib = &g->context->lib;
    char text[256];
    if (lib->nccl.ncclCommSplit && lib->nccl_version >= SPLIT_SINCE)
        return COLLRUN_OK;
    snprintf(text, sizeof text,
             "the option share needs ncclCommSplit of NCCL 2.18, and this is NCCL %d.%d.%d; leave "
             "the option out",
             lib->nccl_version / 10000, lib->nccl_version / 100 % 100, lib->nccl_version % 100);
    return share_refuse(g, COLLRUN_ERR_UNSUPPORTED, text);
}

static int share_check_devices(struct nccl_group *g, const struct nccl_group *parent)
{
    bool same = g->nranks == parent->nranks && g->rank == parent->rank && g->ndevs == parent->ndevs;
    for (uint32_t i = 0; same && i < g->ndevs; i++)
        same = g->devs[i].ordinal == parent->devs[i].ordinal;
    if (same)
        return COLLRUN_OK;
    return share_refuse(g, COLLRUN_ERR_INVALID,
                        "the option share: the two groups have other ranks, or other GPUs");
}

/* The options that decide how connections are made: those of the parent, which a child may repeat.
 */
static const struct {
    const char *option;
    size_t offset;
} connection_options[] = {
    {"NCCL_COMM_BLOCKING", offsetof(struct nccl_config, blocking)},
    {"NCCL_TRAFFIC_CLASS", offsetof(struct nccl_config, trafficClass)},
    {"NCCL_COLLNET_ENABLE", offsetof(struct nccl_config, collnetEnable)},
    {"NCCL_NVLS_NCHANNELS", offsetof(struct nccl_config, nvlsCTAs)},
    {"NCCL_NCHANNELS_PER_NET_PEER", offsetof(struct nccl_config, nChannelsPerNetPeer)},
};

/* `theirs`: the value of the parent's; NULL: it has none, so this group alone has the option. Else
 * the option may also be one of the backend, which is for all groups and which the parent alone
 * does not take, so there may be nothing to leave out. */
static int share_differs(struct nccl_group *g, const struct nccl_group *parent, const char *option,
                         const char *theirs)
{
    const struct collrun_services *s = g->services;
    char text[512], hint[200];
    if (theirs)
        snprintf(hint, sizeof hint, "write %s: %s in the options of this group, too", option,
                 theirs);
    else
        snprintf(hint, sizeof hint, "leave it out");
    snprintf(text, sizeof text,
             "the option %s is %s, and differs from that of group %s, whose connections this group "
             "shares; %s, or leave out share",
             option, s->option(s->ctx, option), parent->name, hint);
    return share_refuse(g, COLLRUN_ERR_INVALID, text);
}

static int share_take_config(struct nccl_group *g, const struct nccl_group *parent)
{
    const struct collrun_services *s = g->services;
    char number[16];
    for (size_t i = 0; i < sizeof connection_options / sizeof *connection_options; i++) {
        const char *option = connection_options[i].option;
        int *own = (int *)(void *)((char *)&g->config + connection_options[i].offset), theirs;
        memcpy(&theirs, (const char *)&parent->config + connection_options[i].offset,
               sizeof theirs);
        snprintf(number, sizeof number, "%d", theirs);
        if (s->option(s->ctx, option) && *own != theirs)
            return share_differs(g, parent, option, theirs == NCCL_UNDEFINED ? NULL : number);
        *own = theirs;
    }
    const char *theirs = parent->config.netName;
    if (g->net_name && (!theirs || strcmp(g->net_name, theirs) != 0))
        return share_differs(g, parent, "NCCL_NET", theirs);
    if (!g->net_name && theirs && !(g->net_name = strdup(theirs)))
        return group_out_of_memory(g);
    g->config.netName = g->net_name;
    return COLLRUN_OK;
}

int share_join(struct nccl_group *g, struct nccl_group *parent)
{
    int status = share_check_library(g);
    if (status == COLLRUN_OK)
        status = share_check_devices(g, parent);
    if (status == COLLRUN_OK)
        status = share_take_config(g, parent);
    if (status == COLLRUN_OK)
        status = family_make_slots(g) ? COLLRUN_OK : group_out_of_memory(g);
    if (status == COLLRUN_OK)
        family_enter(g, parent);
    return status;
}

int share_split(struct nccl_group *g, uint64_t deadline_ns)
{
    int status = comm_split(g, g->family.parent, g->family.made, deadline_ns);
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; status == COLLRUN_OK && i < g->ndevs; i++)
        g->devs[i].comm = g->family.made[i];
    pthread_mutex_unlock(&g->lock);
    return status == COLLRUN_OK ? comm_await_all(g, deadline_ns) : status;
}
