/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the first two cores are from each other: the time in ns that a cache line takes there and
 * back, the median of some rounds, after some milliseconds without a measurement, since hypervisors
 * move what has just begun to run. About 50: two threads of one core; 100: two cores with a common
 * cache; 300: without one.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200, FIRST = 100, TURNS = 300 };

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void await(_Atomic uint32_t *line, uint32_t value)
{
    while (atomic_load_explicit(line, memory_order_acquire) != value) {}
}

static void bind_to(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        perror("core_distance: sched_setaffinity");
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    static double rounds[ROUNDS];
    _Atomic uint32_t *line =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t child = line == MAP_FAILED ? -1 : fork();
    if (child < 0)
        return 1;
    bind_to(child == 0);
    for (uint32_t i = 0, n = 0; i < ROUNDS; i++) {
        const double start = now_ns();
        for (int k = 0; k < TURNS; k++, n += 2) {
            if (child == 0)
                await(line, n + 1);
            atomic_store_explicit(line, n + (child == 0 ? 2 : 1), memory_order_release);
            if (child != 0)
                await(line, n + 2);
        }
        rounds[i] = (now_ns() - start) / TURNS;
    }
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    qsort(rounds + FIRST, ROUNDS - FIRST, sizeof *rounds, by_value);
    printf("%.0f\n", rounds[FIRST + (ROUNDS - FIRST) / 2]);
    return 0;
}
