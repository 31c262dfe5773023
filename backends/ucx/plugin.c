/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend ucx: groups over UCX, for the networks of clusters: InfiniBand, RoCE, several rails.
 * What it does is in backends/net; the link below is in this folder (link.h, state.h).
 */
#include "backend.h"
#include "coll/net_coll.h"
#include "library.h"
#include "p2p.h"

#include <stdio.h>

static const struct collrun_param options[] = {
    {.name = "devices",
     .type = COLLRUN_PARAM_STRING,
     .help =
         "network devices, as UCX names them: mlx5_0:1,eth2; default: the RDMA devices of "
         "network.interface, else all active ones, and the interface; those of a process's first "
         "group"},
    {.name = "transports",
     .type = COLLRUN_PARAM_STRING,
     .help = "transports of UCX, such as rc,tcp (UCX_TLS); default: all that fit; those of a "
             "process's first group"},
    NET_COLL_OPTION_LOCAL,
    {0},
};

static int ucx_probe(const struct collrun_services *services, char *why, size_t len)
{
    struct ucx_library library;
    char devices[256];
    (void)services;
    if (library_load(&library, why, len) != 0)
        return COLLRUN_ERR_UNAVAILABLE;
    const unsigned n = devices_rdma(NULL, devices, sizeof devices);
    snprintf(why, len, "UCX %s; %s%s", library.ucp_get_version_string(),
             n > 0 ? "RDMA devices " : "no active RDMA device", devices);
    return COLLRUN_OK;
}

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "ucx",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_HOST_AWARE | COLLRUN_BACKEND_RDMA,
    .eager_limit = P2P_EAGER_LIMIT_ANY,
    .native = net_coll_native,
    .options = options,
    .probe = ucx_probe,
    .open = net_open,
    .close = net_close,
    .group_open = net_group_open,
    .group_abort = net_group_abort,
    .group_close = net_group_close,
    .exec = net_exec,
    .transport = &net_transport,
};
