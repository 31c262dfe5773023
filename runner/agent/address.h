/* SPDX-License-Identifier: Apache-2.0
 *
 * The address that the ranks of this host publish: network.interface, resolved on this host. An
 * interface name or a CIDR must match an interface that is up; "default-route" is the interface of
 * the default route with the lowest metric, IPv4 before IPv6, as in /proc/net.
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

#endif
