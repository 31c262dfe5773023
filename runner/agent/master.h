/* SPDX-License-Identifier: Apache-2.0
 *
 * MASTER_ADDR and MASTER_PORT: where the process group of an unmodified torch.distributed script
 * (init_method env://) meets. The address is that of rank 0's host, as network.interface has it.
 *
 *  - The agent of that host picks a free port that the kernel does not choose when any port will do
 *    (outside of net.ipv4.ip_local_port_range), and binds its number for UDP: agents of other jobs
 *    pick another one, and a server of rank 0 finds it free, with SO_REUSEADDR or without.
 *  - Without such a port, and with network.ports, whose last free port it is then, the agent keeps
 *    a TCP socket bound to it that does not listen. A server needs SO_REUSEADDR to listen on it.
 *  - Agents of other hosts receive both from the runner before they start ranks.
 * Failure mode: no port is free.
 */
#ifndef RUNNER_AGENT_MASTER_H
#define RUNNER_AGENT_MASTER_H

#include "base/diag.h"

#include <stdint.h>

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
