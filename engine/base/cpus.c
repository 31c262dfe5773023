/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpus.h"

#include <stdlib.h>
#include <string.h>

int cpus_read(struct cpus *c, pid_t pid)
{
    memset(c, 0, sizeof *c);
    return sched_getaffinity(pid, sizeof c->sets, c->sets);
}

void cpus_add(struct cpus *c, uint32_t cpu)
{
    if (cpu < CPUS_MAX)
        CPU_SET((size_t)cpu % CPU_SETSIZE, &c->sets[cpu / CPU_SETSIZE]);
}

void cpus_add_list(struct cpus *c, const char *list)
{
    for (const char *p = list; *p;) {
        char *end;
        unsigned long first = strtoul(p, &end, 10), last = first;
        if (end == p)
            return;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long cpu = first; cpu <= last && cpu < CPUS_MAX; cpu++)
            cpus_add(c, (uint32_t)cpu);
        p = *end == ',' ? end + 1 : "";
    }
}

void cpus_keep(struct cpus *c, const struct cpus *other)
{
    for (size_t i = 0; i < sizeof c->sets / sizeof *c->sets; i++)
        CPU_AND(&c->sets[i], &c->sets[i], &other->sets[i]);
}

bool cpus_has(const struct cpus *c, uint32_t cpu)
{
    return cpu < CPUS_MAX && CPU_ISSET((size_t)cpu % CPU_SETSIZE, &c->sets[cpu / CPU_SETSIZE]);
}

uint32_t cpus_usable(pid_t pid)
{
    struct cpus c;
    uint32_t n = 0;
    if (cpus_read(&c, pid) < 0)
        return 1;
    for (size_t i = 0; i < sizeof c.sets / sizeof *c.sets; i++)
        n += (uint32_t)CPU_COUNT(&c.sets[i]);
    return n;
}
