/* SPDX-License-Identifier: Apache-2.0
 *
 * The network of this host.
 *
 * The address that its ranks publish is network.interface, resolved here. An interface name or a
 * CIDR must match an interface that is up; "default-route" is the interface of the default route
 * with the lowest metric, IPv4 before IPv6, as in /proc/net.
 */
#ifndef RUNNER_AGENT_ADDRESS_H
#define RUNNER_AGENT_ADDRESS_H

#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>

/* `wanted` is the name of an interface, a CIDR, "default-route" or "loopback". */
int address_resolve(const char *wanted, char *address, size_t address_size, char *interface,
                    size_t interface_size, struct diag *d);
/* Rejects a loopback address unless all hosts are one machine. */
int address_check(const char *address, const char *interface, bool one_machine, struct diag *d);

/* ---- what tells machines apart ---- */

/* Processes with the same text share one loopback. It consists of the boot id, the network
 * namespace, and a hash of the addresses of the network cards, in which virtual machines that were
 * restored from one snapshot differ.
 * `boot_id` and `net`: /proc/sys/kernel/random/boot_id and /sys/class/net, or copies in tests. "":
 * not known. */
void machine_name(const char *boot_id, const char *net, char *out, size_t size);

/* ---- RDMA devices ---- */

/* The active ports of the devices that the kernel lists in /sys/class/infiniband: "mlx5_0:1,
 * mlx5_1:1"; "" if there is none, or no UCX that could use them. A list that does not fit is cut.
 */
void rdma_ports(char *out, size_t size);

#endif
