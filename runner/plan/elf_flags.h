/* SPDX-License-Identifier: Apache-2.0
 *
 * What the file of a plugin tells without being loaded. Loading a backend can be slow (a GPU
 * library initializes itself); reading its file is not.
 *  - The flags of a backend: the exported struct is const data, so the file contains them.
 *  - Whether a workload calls collectives: their names are among its undefined symbols.
 */
#ifndef RUNNER_PLAN_ELF_FLAGS_H
#define RUNNER_PLAN_ELF_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

/* False: the flags cannot be read from the file, and are unknown. */
bool elf_backend_flags(const char *path, uint64_t *flags);

/* True if the workload in the file calls a collective operation by its name. One that calls it
 * through another library, or as one of several operations of a request, is not seen. */
bool elf_calls_collectives(const char *path);

#endif
