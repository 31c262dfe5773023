/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain copies; strides are at least 1.
 */
#include "core/abi.h"

#include <stdlib.h>
#include <string.h>

size_t abi_table_len(const void *table, size_t stride, size_t key_len)
{
    static const char zeros[16];
    const char *at = table;
    size_t n = 0;
    while (memcmp(at + n * stride, zeros, key_len) != 0)
        n++;
    return n;
}

void *abi_convert(const void *from, size_t from_stride, size_t n, size_t to_stride)
{
    char *to = calloc(n ? n : 1, to_stride);
    size_t len = from_stride < to_stride ? from_stride : to_stride;
    for (size_t i = 0; to && i < n; i++)
        memcpy(to + i * to_stride, (const char *)from + i * from_stride, len);
    return to;
}

struct collrun_call *abi_convert_calls(const struct collrun_call *calls, uint32_t n,
                                       uint32_t call_size)
{
    char *to = abi_convert(calls, sizeof *calls, n, call_size);
    for (uint32_t i = 0; to && i < n; i++)
        memcpy(to + (size_t)i * call_size, &call_size, sizeof call_size); /* collrun_call.size */
    return (struct collrun_call *)(void *)to;
}
