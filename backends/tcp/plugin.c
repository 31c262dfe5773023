/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend tcp: groups over TCP, between any hosts. What it does is in backends/net; the link
 * below is in this folder (link.h, state.h).
 */
#include "backend.h"
#include "coll/net_coll.h"
#include "p2p.h"

static const struct collrun_param options[] = {
    {.name = "sockets",
     .type = COLLRUN_PARAM_INT,
     .def = "1",
     .min = "1",
     .max = "8",
     .help =
         "connections to each peer that share the data of long messages; of a process's groups, "
         "the largest number counts"},
    NET_COLL_OPTION_LOCAL,
    {0},
};

const struct collrun_backend collrun_backend_v1 = {
    COLLRUN_BACKEND_HEAD,
    .name = "tcp",
    .version = "1.0",
    .flags = COLLRUN_BACKEND_HOST_AWARE,
    .eager_limit = P2P_EAGER_LIMIT_ANY,
    .native = net_coll_native,
    .options = options,
    .open = net_open,
    .close = net_close,
    .group_open = net_group_open,
    .group_abort = net_group_abort,
    .group_close = net_group_close,
    .exec = net_exec,
    .transport = &net_transport,
};
