/* SPDX-License-Identifier: Apache-2.0
 *
 * struct ucx_library: UCX of this machine (libucp), opened at run time, so that a build with UCX
 * serves machines without it. UCX is opened without its signal handlers and without its hooks for
 * memory functions: a rank has its own crash handler, and memory is registered for one transfer.
 * It stays loaded for the life of the process.
 */
#ifndef UCX_LIBRARY_H
#define UCX_LIBRARY_H

#include <stddef.h>
#include <ucp/api/ucp.h>

#define UCX_FUNCTIONS(X)                                                                           \
    X(ucp_get_version)                                                                             \
    X(ucp_get_version_string)                                                                      \
    X(ucp_config_read)                                                                             \
    X(ucp_config_modify)                                                                           \
    X(ucp_config_release)                                                                          \
    X(ucp_init_version)                                                                            \
    X(ucp_cleanup)                                                                                 \
    X(ucp_worker_create)                                                                           \
    X(ucp_worker_destroy)                                                                          \
    X(ucp_worker_flush_nbx)                                                                        \
    X(ucp_worker_query)                                                                            \
    X(ucp_worker_release_address)                                                                  \
    X(ucp_worker_get_efd)                                                                          \
    X(ucp_worker_arm)                                                                              \
    X(ucp_worker_progress)                                                                         \
    X(ucp_worker_set_am_recv_handler)                                                              \
    X(ucp_ep_create)                                                                               \
    X(ucp_ep_close_nbx)                                                                            \
    X(ucp_am_send_nbx)                                                                             \
    X(ucp_am_recv_data_nbx)                                                                        \
    X(ucp_am_data_release)                                                                         \
    X(ucp_request_cancel)                                                                          \
    X(ucp_request_check_status)                                                                    \
    X(ucp_request_free)                                                                            \
    X(ucs_status_string)

struct ucx_library {
#define UCX_MEMBER(name) __typeof__(name) *name;
    UCX_FUNCTIONS(UCX_MEMBER)
#undef UCX_MEMBER
};

/* 0, or -1 with the reason in `why`. */
int library_load(struct ucx_library *library, char *why, size_t len);

/* ---- devices ----
 *
 * Which devices UCX uses, and which RDMA devices this host has.
 *
 * - The option `devices` of the backend names them, as UCX does: "mlx5_0:1,eth2".
 * - Else the interface of the job (network.interface), and the RDMA devices that belong to it.
 * - Else, if the interface has none, all active RDMA devices, and the interface: the job's default
 *   is that of the default route, which is the slow one of most clusters.
 */

/* The active RDMA devices with their ports, "mlx5_0:1,mlx5_1:1"; those of one interface if
 * `interface` is not NULL. Returns how many there are. */
unsigned devices_rdma(const char *interface, char *out, size_t len);

/* The value of UCX_NET_DEVICES. */
void devices_choose(const char *option, const char *interface, char *out, size_t len);

#endif
