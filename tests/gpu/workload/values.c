/* SPDX-License-Identifier: Apache-2.0
 *
 * The values that ranks contribute, the results that are expected, and how failures are reported.
 */
#include "workload.h"

#include <stdarg.h>

void case_failed(struct gpu_test *t, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    t->failures++;
    printf("FAIL rank %d: %s\n", collrun_world_rank(t->ctx), text);
    fflush(stdout);
}

bool ok(struct gpu_test *t, int status, const char *what)
{
    if (status != COLLRUN_OK)
        case_failed(t, "%s: %s", what, collrun_error());
    return status == COLLRUN_OK;
}

int32_t value_at(int comm_rank, size_t i, int salt)
{
    return (int32_t)(1000003u * (uint32_t)(comm_rank + 1) + 31u * (uint32_t)i +
                     7u * (uint32_t)salt);
}

int32_t *host_values(int comm_rank, size_t count, int salt)
{
    int32_t *v = calloc(count, sizeof *v);
    for (size_t i = 0; i < count; i++)
        v[i] = value_at(comm_rank, i, salt);
    return v;
}

void *device_values(int device, int comm_rank, size_t count, int salt)
{
    int32_t *v = host_values(comm_rank, count, salt);
    void *ptr = cuda_new(device, count * sizeof *v);
    cuda_copy(device, ptr, v, count * sizeof *v);
    free(v);
    return ptr;
}

int32_t sum_at(int comm_size, size_t i, int salt)
{
    uint32_t sum = 0;
    for (int p = 0; p < comm_size; p++)
        sum += (uint32_t)value_at(p, i, salt);
    return (int32_t)sum;
}

void expect_sum(struct gpu_test *t, int device, const void *ptr, int salt, const char *what)
{
    int32_t got[COUNT];
    cuda_copy(device, got, ptr, sizeof got);
    for (size_t i = 0; i < COUNT; i++)
        if (got[i] != sum_at(t->comm_size, i, salt)) {
            case_failed(t, "%s: element %zu is %d, expected %d", what, i, got[i],
                        sum_at(t->comm_size, i, salt));
            return;
        }
}

void expect_values(struct gpu_test *t, int device, const void *ptr, size_t count, int comm_rank,
                   int salt, const char *what)
{
    int32_t *got = calloc(count + 1, sizeof *got);
    cuda_copy(device, got, ptr, count * sizeof *got);
    for (size_t i = 0; i < count; i++)
        if (got[i] != value_at(comm_rank, i, salt)) {
            case_failed(t, "%s: element %zu is %d, expected %d", what, i, got[i],
                        value_at(comm_rank, i, salt));
            break;
        }
    free(got);
}
