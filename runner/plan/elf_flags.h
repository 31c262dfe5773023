/* SPDX-License-Identifier: Apache-2.0
 *
 * The declared flags of a backend, read from its file without loading it: the exported struct is
 * const data and its flags are a number, so the file contains them. Loading a backend can be slow
 * (a GPU library initializes itself); reading its file is not.
 */
#ifndef RUNNER_PLAN_ELF_FLAGS_H
#define RUNNER_PLAN_ELF_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

/* False: the flags cannot be read from the file, and are unknown. */
bool elf_backend_flags(const char *path, uint64_t *flags);

#endif
