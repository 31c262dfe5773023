/* SPDX-License-Identifier: Apache-2.0 */
#include "base/futex_wait.h"

#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>

bool futex_wait_read(const char *text, struct futex_wait *out)
{
    long number;
    unsigned long op, value, timeout;
    if (sscanf(text, "%ld %lx %lx %lx %lx", &number, &out->address, &op, &value, &timeout) != 5 ||
        number != SYS_futex)
        return false;
    const unsigned long command = op & ~(unsigned long)(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    out->shared = !(op & FUTEX_PRIVATE_FLAG);
    out->timed = timeout != 0;
    return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
}

bool futex_wait_is_own(const struct futex_wait *f, pid_t pid)
{
    char path[32], line[512];
    bool private = false;
    if (!f->shared)
        return true;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && f->address >= from &&
            f->address < to) {
            private = rights[3] == 'p';
            break;
        }
    }
    if (maps)
        fclose(maps);
    return private;
}
