/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cores.h"

#include "base/cpus.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The first hardware thread of a CPU's core; the CPU itself if the kernel does not say. */
static unsigned cores_first_thread(unsigned cpu)
{
    char path[96];
    unsigned first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "re");
    if (!f)
        return cpu;
    if (fscanf(f, "%u", &first) != 1)
        first = cpu;
    fclose(f);
    return first;
}

/* -1: another agent has claimed the core. */
static int cores_claim(const char *name, unsigned core)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    const int len = snprintf(where.sun_path + 1, sizeof where.sun_path - 1, "%s%u", name, core);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (void *)&where,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

void cores_open(struct cores *c, const char *name)
{
    struct cpus usable;
    uint16_t core_of[CPU_SETSIZE] = {0}; /* by first hardware thread; plus one */
    *c = (struct cores){.n = 0};
    if (cpus_read(&usable, 0) != 0)
        return;
    for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++) {
        if (!cpus_has(&usable, cpu))
            continue;
        const unsigned first = cores_first_thread(cpu);
        if (cpu >= CPU_SETSIZE || first >= CPU_SETSIZE) {
            c->large = true;
            return;
        }
        if (core_of[first] == 0) {
            c->large = c->n == CORES_MAX;
            if (c->large)
                return;
            c->items[c->n].claim = cores_claim(name, first);
            core_of[first] = (uint16_t)++c->n;
        }
        CPU_SET(cpu, &c->items[core_of[first] - 1].cpus);
    }
    c->claimed = true;
    for (uint32_t i = 0; i < c->n; i++)
        c->claimed = c->claimed && c->items[i].claim >= 0;
}

void cores_close(struct cores *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (c->items[i].claim >= 0)
            close(c->items[i].claim);
    *c = (struct cores){.n = 0};
}

const char *cores_share(const struct cores *c, uint32_t n, uint32_t index, struct arena *arena)
{
    cpu_set_t share;
    const char *list = "";
    if (!c->claimed || n < 2 || n > c->n)
        return "";
    CPU_ZERO(&share);
    for (uint32_t i = index * c->n / n; i < (index + 1) * c->n / n; i++)
        CPU_OR(&share, &share, &c->items[i].cpus);
    for (unsigned cpu = 0; list && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &share))
            list = arena_printf(arena, "%s%s%u", list, *list ? "," : "", cpu);
    return list;
}

const char *cores_why_not(const struct cores *c, uint32_t n, struct arena *arena)
{
    if (n < 2)
        return "a rank alone may use every core";
    if (c->large)
        return arena_printf(arena, "a host with more than %u cores is not shared out", CORES_MAX);
    if (n > c->n)
        return arena_printf(arena, "%u ranks share %u core%s", n, c->n, c->n == 1 ? "" : "s");
    return c->claimed ? "" : "other ranks of collrun use its cores";
}
