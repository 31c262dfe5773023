/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rank_list.h"

#include <stdio.h>

void rank_list_format(char *out, size_t size, const uint32_t *ranks, uint32_t n)
{
    enum { RANGES = 8 };
    size_t len = 0;
    uint32_t ranges = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && len < size;) {
        uint32_t last = i;
        while (last + 1 < n && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (++ranges > RANGES) {
            snprintf(out + len, size - len, " and %u more", n - i);
            return;
        }
        const char *glue = i == 0 ? "" : last + 1 == n ? " and " : ", ";
        int wrote = last > i
                        ? snprintf(out + len, size - len, "%s%u-%u", glue, ranks[i], ranks[last])
                        : snprintf(out + len, size - len, "%s%u", glue, ranks[i]);
        len += wrote > 0 ? (size_t)wrote : 0;
        i = last + 1;
    }
}
