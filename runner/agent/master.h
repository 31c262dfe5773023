/* SPDX-License-Identifier: Apache-2.0
 *
 * MASTER_ADDR and MASTER_PORT: where the process group of an unmodified torch.distributed script
 * (init_method env://) meets. The address is that of rank 0's host, as network.interface has it.
 *
 *  - The agent of that host picks a free port, and keeps a socket bound to it that does not listen.
 *    The kernel gives such a port to no other process that asks for any port. A server with
 *    SO_REUSEADDR, as torch's store and most servers have it, can listen on it.
 *  - With network.ports it is the last free port of that range.
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
    int fd; /* bound to the port on rank 0's host; -1 elsewhere */
};

/* `address` is borrowed. */
int master_reserve(struct master *m, const struct desc *desc, const char *address, struct diag *d);
void master_release(struct master *m);

#endif
