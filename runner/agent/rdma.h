/* SPDX-License-Identifier: Apache-2.0
 *
 * The RDMA devices of this host, as the kernel lists them in /sys/class/infiniband.
 */
#ifndef RUNNER_AGENT_RDMA_H
#define RUNNER_AGENT_RDMA_H

#include <stddef.h>

/* The active ports: "mlx5_0:1, mlx5_1:1"; "" if there is none, or no UCX that could use them. A
 * list that does not fit is cut. */
void rdma_ports(char *out, size_t size);

#endif
