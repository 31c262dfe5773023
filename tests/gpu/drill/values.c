/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks contribute, what must come of it, and what is said if it does not.
 */
#include "drill.h"

#include <stdarg.h>

void wrong(struct drill *d, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    d->failures++;
    printf("FAIL rank %d: %s\n", collrun_world_rank(d->ctx), text);
    fflush(stdout);
}

bool ok(struct drill *d, int status, const char *what)
{
    if (status != COLLRUN_OK)
        wrong(d, "%s: %s", what, collrun_error());
    return status == COLLRUN_OK;
}

/* Element i of what a place contributes. */
int32_t given(int place, size_t i, int salt)
{
    return (int32_t)(1000003u * (uint32_t)(place + 1) + 31u * (uint32_t)i + 7u * (uint32_t)salt);
}

int32_t *host_values(int place, size_t count, int salt)
{
    int32_t *v = calloc(count, sizeof *v);
    for (size_t i = 0; i < count; i++)
        v[i] = given(place, i, salt);
    return v;
}

void *device_values(int device, int place, size_t count, int salt)
{
    int32_t *v = host_values(place, count, salt);
    void *ptr = cuda_new(device, count * sizeof *v);
    cuda_copy(device, ptr, v, count * sizeof *v);
    free(v);
    return ptr;
}

int32_t sum_at(int places, size_t i, int salt)
{
    uint32_t sum = 0;
    for (int p = 0; p < places; p++)
        sum += (uint32_t)given(p, i, salt);
    return (int32_t)sum;
}

void expect_sum(struct drill *d, int device, const void *ptr, int salt, const char *what)
{
    int32_t got[COUNT];
    cuda_copy(device, got, ptr, sizeof got);
    for (size_t i = 0; i < COUNT; i++)
        if (got[i] != sum_at(d->places, i, salt)) {
            wrong(d, "%s: element %zu is %d, expected %d", what, i, got[i],
                  sum_at(d->places, i, salt));
            return;
        }
}

void expect_given(struct drill *d, int device, const void *ptr, size_t count, int place, int salt,
                  const char *what)
{
    int32_t *got = calloc(count + 1, sizeof *got);
    cuda_copy(device, got, ptr, count * sizeof *got);
    for (size_t i = 0; i < count; i++)
        if (got[i] != given(place, i, salt)) {
            wrong(d, "%s: element %zu is %d, expected %d", what, i, got[i], given(place, i, salt));
            break;
        }
    free(got);
}
