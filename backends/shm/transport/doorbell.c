/* SPDX-License-Identifier: Apache-2.0
 *
 * Doorbells as futexes in shared memory; see doorbell.h.
 */
#include "transport/doorbell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void doorbell_wake(struct doorbell *doorbell)
{
    atomic_fetch_add(&doorbell->seq, 1);
    syscall(SYS_futex, &doorbell->seq, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void doorbell_sleep(struct doorbell *doorbell, uint32_t seq, uint64_t ns)
{
    const struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    syscall(SYS_futex, &doorbell->seq, FUTEX_WAIT, seq, &t, NULL, 0);
}
