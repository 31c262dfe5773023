/* SPDX-License-Identifier: Apache-2.0
 *
 * A clock to preload: CLOCK_REALTIME jumps by an hour three times a second, forwards and backwards,
 * as after a wrong NTP server. It is the clock of every process that has this library;
 * CLOCK_MONOTONIC is left as it is.
 */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *t)
{
    struct timespec now;
    int rc = (int)syscall(SYS_clock_gettime, clock, t);
    if (rc == 0 && clock == CLOCK_REALTIME &&
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now) == 0)
        t->tv_sec += now.tv_nsec / 333333334 * 3600 - 3600;
    return rc;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int rc = clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return rc;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
