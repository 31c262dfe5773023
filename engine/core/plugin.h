/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading the shared object of a workload or backend:
 *
 * - The file is checked before it is opened: other users must not be able to write it, or a
 *   directory on its path; what leads to it in a directory that all users may write (/tmp) must
 *   be the caller's or root's.
 * - All symbols are bound immediately (RTLD_NOW) and not shared (RTLD_LOCAL); one symbol is looked
 *   up.
 * - Each failure has an error message and, if possible, a hint.
 * - Objects stay loaded: threads and exit handlers of a library may outlive its last use.
 */
#ifndef ENGINE_CORE_PLUGIN_H
#define ENGINE_CORE_PLUGIN_H

#include "base/diag.h"

#include <collrun/types.h>

struct arena;
struct collrun_workload;

/* `what` ("workload", "backend") is for error messages; *symbol_out borrows from the object. */
int plugin_open(const char *what, const char *path, const char *symbol, const void **symbol_out,
                struct diag *d);
/* Opens a workload and fills in *out, complete: members that the plugin does not know are zero. The
 * strings are the plugin's; its table of parameters may be a copy in the arena. */
int plugin_open_workload(const char *path, struct arena *arena, struct collrun_workload *out,
                         struct diag *d);

/* ---- tables of another stride ---- */

/* Structs that cross the plugin interfaces in arrays. Each side may have been built against another
 * version of the header, in which a struct ends earlier or later; so an array has the stride of the
 * side that reads it. An element is converted by copying what both sides know; the rest is zero. */

/* The number of elements before the one whose first `key_len` bytes are zero. */
size_t abi_table_len(const void *table, size_t stride, size_t key_len);

/* `n` elements in a new array of another stride, for free(). NULL: out of memory. The leading
 * `size` of a struct that has one is the caller's to set. */
void *abi_convert(const void *from, size_t from_stride, size_t n, size_t to_stride);

/* Calls for a plugin that was built with `call_size`, likewise; each states that size. */
struct collrun_call *abi_convert_calls(const struct collrun_call *calls, uint32_t n,
                                       uint32_t call_size);

#endif
