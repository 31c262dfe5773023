/* SPDX-License-Identifier: Apache-2.0
 *
 * Which devices UCX uses, and which RDMA devices this host has.
 *
 * - The option `devices` of the backend names them, as UCX does: "mlx5_0:1,eth2".
 * - Else the interface of the job (network.interface), and the RDMA devices that belong to it.
 * - Else, if the interface has none, all active RDMA devices, and the interface: the job's default
 *   is that of the default route, which is the slow one of most clusters.
 */
#ifndef UCX_DEVICES_H
#define UCX_DEVICES_H

#include <stddef.h>

/* The active RDMA devices with their ports, "mlx5_0:1,mlx5_1:1"; those of one interface if
 * `interface` is not NULL. Returns how many there are. */
unsigned devices_rdma(const char *interface, char *out, size_t len);

/* The value of UCX_NET_DEVICES. */
void devices_choose(const char *option, const char *interface, char *out, size_t len);

#endif
