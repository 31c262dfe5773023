/* SPDX-License-Identifier: Apache-2.0
 *
 * What hosts examine of a job: the backends that its groups use, then the plugins of its workloads,
 * and the commands of the host's ranks.
 */
#ifndef RUNNER_CONNECT_DOCTOR_ITEMS_H
#define RUNNER_CONNECT_DOCTOR_ITEMS_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/desc.h"

uint32_t doctor_items_count_backends(const struct desc *desc);
uint32_t doctor_items_count_plugins(const struct desc *desc); /* with the backends */
/* The backend number `k` of those that the groups use. */
const struct desc_backend *doctor_items_backend(const struct desc *desc, uint32_t k);
/* The workload number `k` of those that have a plugin. */
const struct desc_workload *doctor_items_workload(const struct desc *desc, uint32_t k);
/* The index of the next command, from `first` on, that a rank of the host runs; nworkloads: there
 * is none. */
uint32_t doctor_items_next_command(const struct desc *desc, uint32_t host, uint32_t first);
/* Appends the commands of a host to EXAMINE. `bytes`: the encoded description for this host. */
void doctor_items_put_commands(struct buf *out, const struct buf *bytes, uint32_t host,
                               struct arena *arena);

#endif
