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
#include <stdint.h>

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

/* MASTER_ADDR and MASTER_PORT: where the process group of an unmodified torch.distributed script
 * (init_method env://) meets. The address is that of rank 0's host, as network.interface has it.
 *
 *  - The agent of that host picks a free port that the kernel does not choose when any port will do
 *    (outside of net.ipv4.ip_local_port_range), and binds its number for UDP: agents of other jobs
 *    pick another one, and a server of rank 0 finds it free, with SO_REUSEADDR or without.
 *  - Without such a port, and with network.ports, whose last free port it is then, the agent keeps
 *    a TCP socket bound to it that does not listen. A server needs SO_REUSEADDR to listen on it.
 *  - Agents of other hosts receive both from the runner before they start ranks.
 * Failure mode: no port is free. */

struct desc;

struct master {
    const char *address;
    uint16_t port;
    int fd; /* holds the port on rank 0's host; -1 elsewhere */
};

/* `address` is borrowed. */
int master_reserve(struct master *m, const struct desc *desc, const char *address, struct diag *d);
void master_release(struct master *m);

#endif
