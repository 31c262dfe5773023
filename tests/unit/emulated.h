/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether qemu emulates this program (tests/aarch64). It knows no robust futexes: a mutex stays
 * locked whose owner dies. Its own memory grows with the address space that a program maps.
 */
#ifndef TESTS_UNIT_EMULATED_H
#define TESTS_UNIT_EMULATED_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool emulated(void)
{
    void *head;
    size_t len;
    return syscall(SYS_get_robust_list, 0, &head, &len) < 0 && errno == ENOSYS;
}

#endif
