/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of backend_harness.h that do not use its internals.
 */
#include "backend_harness.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

uint64_t harness_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void harness_lag_us(unsigned us)
{
    usleep(us);
}

struct collrun_call harness_message(enum collrun_kind kind, void *buf, size_t bytes, uint32_t peer,
                                    uint32_t tag)
{
    struct collrun_call call = COLLRUN_CALL(kind);
    call.send = call.recv = buf;
    call.count = bytes;
    call.dtype = COLLRUN_UINT8;
    call.peer = (int)peer;
    call.tag = tag;
    return call;
}

int harness_run_each(const struct harness_options *options, uint32_t first,
                     int (*fn)(struct harness_rank *r))
{
    struct harness_options each = *options;
    int failed = 0;
    for (each.nranks = first; each.nranks <= options->nranks; each.nranks++)
        failed |= harness_run(&each, fn);
    return failed;
}

const char *harness_backend_path(const char *name)
{
    static char path[4096];
    char self[2048];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/'); /* $BUILD/tests/test_x */
    if (slash)
        *slash = '\0';
    snprintf(path, sizeof(path), "%s/../lib/collrun/backends/libcollrun_%s.so", self, name);
    return path;
}
