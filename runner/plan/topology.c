/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading /sys: which cpus share a core (topology/thread_siblings_list) and a NUMA node
 * (node/nodeN/cpulist). A kernel that shows neither gives every cpu a core of its own, all on one
 * node.
 */
#include "plan/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPUS_MAX = 8192, NUMAS_MAX = 256 };

/* The text of a small file, without its newline; false if there is none. */
static bool read_line(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n > 0;
}

/* Sets the members of a list such as "0-3,8"; false if it is none. */
static bool parse_list(const char *s, bool *set)
{
    while (*s) {
        char *end;
        unsigned long first = strtoul(s, &end, 10), last = first;
        if (end == s)
            return false;
        if (*end == '-') {
            s = end + 1;
            last = strtoul(s, &end, 10);
            if (end == s)
                return false;
        }
        for (unsigned long cpu = first; cpu <= last && cpu < CPUS_MAX; cpu++)
            set[cpu] = true;
        s = *end == ',' ? end + 1 : end;
        if (*end && *end != ',')
            return false;
    }
    return true;
}

static int own_mask(bool *set, struct diag *d)
{
    cpu_set_t *mask = CPU_ALLOC(CPUS_MAX);
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    if (!mask)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    int failed = sched_getaffinity(0, size, mask);
    int err = errno;
    for (unsigned cpu = 0; !failed && cpu < CPUS_MAX; cpu++)
        set[cpu] = CPU_ISSET_S(cpu, size, mask);
    CPU_FREE(mask);
    return failed ? diag_sys(d, err, "cannot read the affinity mask") : 0;
}

/* The first cpu of the core that `cpu` belongs to. */
static uint32_t core_of(const char *sys, uint32_t cpu)
{
    char path[512], list[256];
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%u/topology/thread_siblings_list", sys,
             cpu);
    return read_line(path, list, sizeof list) ? (uint32_t)strtoul(list, NULL, 10) : cpu;
}

static void read_numas(const char *sys, uint32_t *numa_of, bool *members)
{
    for (uint32_t numa = 0; numa < NUMAS_MAX; numa++) {
        char path[512], list[4096];
        snprintf(path, sizeof path, "%s/devices/system/node/node%u/cpulist", sys, numa);
        if (!read_line(path, list, sizeof list))
            continue;
        memset(members, 0, CPUS_MAX * sizeof *members);
        if (!parse_list(list, members))
            continue;
        for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
            if (members[cpu])
                numa_of[cpu] = numa;
    }
}

static int by_place(const void *left, const void *right)
{
    const struct topology_cpu *a = left, *b = right;
    if (a->numa != b->numa)
        return a->numa < b->numa ? -1 : 1;
    if (a->core != b->core)
        return a->core < b->core ? -1 : 1;
    return a->cpu < b->cpu ? -1 : a->cpu > b->cpu;
}

/* Cores and nodes are numbered by order of appearance, whatever the kernel calls them. */
static void renumber(struct topology *t)
{
    uint32_t last_core = 0, last_numa = 0;
    for (uint32_t i = 0; i < t->ncpus; i++) {
        struct topology_cpu *cpu = &t->cpus[i];
        bool new_numa = i == 0 || cpu->numa != last_numa;
        bool new_core = new_numa || cpu->core != last_core;
        last_core = cpu->core;
        last_numa = cpu->numa;
        t->ncores += new_core;
        t->nnumas += new_numa;
        cpu->core = t->ncores - 1;
        cpu->numa = t->nnumas - 1;
    }
}

int topology_read(struct topology *topology, const char *sys, const char *mask, struct arena *arena,
                  struct diag *d)
{
    bool *usable = arena_calloc(arena, CPUS_MAX, sizeof *usable);
    bool *members = arena_calloc(arena, CPUS_MAX, sizeof *members);
    uint32_t *numa_of = arena_calloc(arena, CPUS_MAX, sizeof *numa_of);
    struct topology_cpu *cpus = arena_calloc(arena, CPUS_MAX, sizeof *cpus);
    if (!usable || !members || !numa_of || !cpus)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    int code = 0;
    if (!mask)
        code = own_mask(usable, d);
    else if (!parse_list(mask, usable))
        code = diag_set(d, COLLRUN_ERR_INVALID, "\"%s\" is not a list of cpus", mask);
    if (code < 0)
        return code;
    read_numas(sys, numa_of, members);
    struct topology t = {.cpus = cpus};
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
        if (usable[cpu])
            t.cpus[t.ncpus++] = (struct topology_cpu){cpu, core_of(sys, cpu), numa_of[cpu]};
    qsort(t.cpus, t.ncpus, sizeof *t.cpus, by_place);
    renumber(&t);
    *topology = t;
    return 0;
}

const char *topology_among(const struct topology *topology, const char *const *lists, uint32_t n,
                           struct arena *arena)
{
    bool *wanted = arena_calloc(arena, CPUS_MAX, sizeof *wanted);
    bool *usable = arena_calloc(arena, CPUS_MAX, sizeof *usable);
    const char *out = "";
    if (!wanted || !usable)
        return "";
    for (uint32_t i = 0; i < n; i++)
        parse_list(lists[i], wanted);
    for (uint32_t i = 0; i < topology->ncpus; i++)
        usable[topology->cpus[i].cpu] = wanted[topology->cpus[i].cpu];
    for (uint32_t first = 0, last; out && first < CPUS_MAX; first = last + 1) {
        last = first;
        while (usable[first] && last + 1 < CPUS_MAX && usable[last + 1])
            last++;
        const char *comma = *out ? "," : "";
        if (usable[first])
            out = last > first ? arena_printf(arena, "%s%s%u-%u", out, comma, first, last)
                               : arena_printf(arena, "%s%s%u", out, comma, first);
    }
    return out ? out : "";
}
