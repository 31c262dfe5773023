/* SPDX-License-Identifier: Apache-2.0
 *
 * What tells machines apart: processes with the same text share one loopback. It consists of the
 * boot id, the network namespace, and a hash of the addresses of the network cards, in which
 * virtual machines that were restored from one snapshot differ.
 */
#ifndef RUNNER_AGENT_MACHINE_H
#define RUNNER_AGENT_MACHINE_H

#include <stddef.h>

/* `boot_id` and `net`: /proc/sys/kernel/random/boot_id and /sys/class/net, or copies in tests. "":
 * not known. */
void machine_name(const char *boot_id, const char *net, char *out, size_t size);

#endif
