/* SPDX-License-Identifier: Apache-2.0
 *
 * The C library has neither a wrapper nor the structure.
 */
#include "base/sched_slice.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SLICE_NS = 100000, /* the kernel's minimum */
    RESET_ON_FORK = 1  /* the ranks get ordinary slices */
};

void sched_slice_shorten(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = sizeof attr};
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != 0)
        return; /* this thread has another policy */
    attr.flags = RESET_ON_FORK;
    attr.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}
