/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs that cross the plugin interfaces in arrays. Each side may have been built against another
 * version of the header, in which a struct ends earlier or later; so an array has the stride of the
 * side that reads it. An element is converted by copying what both sides know; the rest is zero.
 */
#ifndef ENGINE_CORE_ABI_H
#define ENGINE_CORE_ABI_H

#include <collrun/types.h>

/* The number of elements before the one whose first `key_len` bytes are zero. */
size_t abi_table_len(const void *table, size_t stride, size_t key_len);

/* `n` elements in a new array of another stride, for free(). NULL: out of memory. The leading
 * `size` of a struct that has one is the caller's to set. */
void *abi_convert(const void *from, size_t from_stride, size_t n, size_t to_stride);

/* Calls for a plugin that was built with `call_size`, likewise; each states that size. */
struct collrun_call *abi_convert_calls(const struct collrun_call *calls, uint32_t n,
                                       uint32_t call_size);

#endif
