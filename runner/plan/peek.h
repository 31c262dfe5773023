/* SPDX-License-Identifier: Apache-2.0
 *
 * A backend's declared flags, read off its file without loading it: the exported struct is const
 * data, and its flags are a number, so they stand in the file as they are. Loading can be dear (a
 * GPU library is asked whether it works); looking is not.
 */
#ifndef PLAN_PEEK_H
#define PLAN_PEEK_H

#include <stdbool.h>
#include <stdint.h>

/* False when the file does not tell; nothing follows from that. */
bool peek_backend_flags(const char *path, uint64_t *flags);

#endif
