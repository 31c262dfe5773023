/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads /sys: the CPUs of each core (topology/thread_siblings_list), cache (cache/indexN), NUMA
 * node (node/nodeN/cpulist) and socket (topology/physical_package_id). Without these files, every
 * CPU is one core and all are on one node of one socket.
 */
#include "base/topology.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- sets of CPUs ---- */

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

/* ---- the topology ---- */

enum { NUMAS_MAX = 256 };

/* The text of a small file, without its newline; false if there is none. */
static bool topology_read_line(const char *path, char *out, size_t size)
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
static bool topology_parse_list(const char *s, bool *set)
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

static int topology_own_mask(bool *set, struct diag *d)
{
    struct cpus own;
    if (cpus_read(&own, 0) < 0)
        return diag_sys(d, errno, "cannot read the affinity mask");
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
        set[cpu] = cpus_has(&own, cpu);
    return 0;
}

/* The first cpu of the core that `cpu` belongs to. */
static uint32_t topology_core_of(const char *sys, uint32_t cpu)
{
    char path[512], list[256];
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%u/topology/thread_siblings_list", sys,
             cpu);
    return topology_read_line(path, list, sizeof list) ? (uint32_t)strtoul(list, NULL, 10) : cpu;
}

/* The first CPU of those that share the level 3 cache of `cpu`; 0 if there is none. */
static uint32_t topology_l3_of(const char *sys, uint32_t cpu)
{
    char path[512], text[256];
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%u/cache/index%d/level", sys, cpu, i);
        if (!topology_read_line(path, text, sizeof text) || strcmp(text, "3") != 0)
            continue;
        snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%u/cache/index%d/shared_cpu_list",
                 sys, cpu, i);
        if (topology_read_line(path, text, sizeof text))
            return (uint32_t)strtoul(text, NULL, 10);
    }
    return 0;
}

static uint32_t topology_socket_of(const char *sys, uint32_t cpu)
{
    char path[512], text[256];
    snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%u/topology/physical_package_id", sys,
             cpu);
    return topology_read_line(path, text, sizeof text) ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static void topology_read_numas(const char *sys, uint32_t *numa_of, bool *members)
{
    for (uint32_t numa = 0; numa < NUMAS_MAX; numa++) {
        char path[512], list[4096];
        snprintf(path, sizeof path, "%s/devices/system/node/node%u/cpulist", sys, numa);
        if (!topology_read_line(path, list, sizeof list))
            continue;
        memset(members, 0, CPUS_MAX * sizeof *members);
        if (!topology_parse_list(list, members))
            continue;
        for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
            if (members[cpu])
                numa_of[cpu] = numa;
    }
}

static int topology_compare(const void *left, const void *right)
{
    const struct topology_cpu *a = left, *b = right;
    for (int level = TOPOLOGY_LEVELS - 1; level >= 0; level--) {
        if (a->part[level] != b->part[level])
            return a->part[level] < b->part[level] ? -1 : 1;
    }
    return a->cpu < b->cpu ? -1 : a->cpu > b->cpu;
}

/* Parts are numbered by order of appearance; the kernel's numbers may have gaps. */
static void topology_renumber(struct topology *t)
{
    uint32_t last[TOPOLOGY_LEVELS] = {0};
    for (uint32_t i = 0; i < t->ncpus; i++) {
        bool fresh = i == 0; /* so is every smaller part of a new part */
        for (int level = TOPOLOGY_LEVELS - 1; level >= 0; level--) {
            uint32_t *part = &t->cpus[i].part[level];
            fresh = fresh || *part != last[level];
            last[level] = *part;
            t->nparts[level] += fresh;
            *part = t->nparts[level] - 1;
        }
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
        code = topology_own_mask(usable, d);
    else if (!topology_parse_list(mask, usable))
        code = diag_set(d, COLLRUN_ERR_INVALID, "\"%s\" is not a list of cpus", mask);
    if (code < 0)
        return code;
    topology_read_numas(sys, numa_of, members);
    struct topology t = {.cpus = cpus};
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++)
        if (usable[cpu])
            t.cpus[t.ncpus++] =
                (struct topology_cpu){.cpu = cpu,
                                      .part = {topology_core_of(sys, cpu), topology_l3_of(sys, cpu),
                                               numa_of[cpu], topology_socket_of(sys, cpu)}};
    qsort(t.cpus, t.ncpus, sizeof *t.cpus, topology_compare);
    topology_renumber(&t);
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
        topology_parse_list(lists[i], wanted);
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

/* ---- shares ---- */

static const char *const level_names[TOPOLOGY_LEVELS] = {"core", "l3", "numa", "socket"};

const char *topology_level_name(enum topology_level level)
{
    return level_names[level];
}

bool topology_parse_level(const char *name, enum topology_level *level)
{
    for (int i = 0; i < TOPOLOGY_LEVELS; i++) {
        if (strcmp(name, level_names[i]) != 0)
            continue;
        *level = (enum topology_level)i;
        return true;
    }
    return false;
}

static uint32_t topology_first_cpu(const struct topology *t, enum topology_level level,
                                   uint32_t part)
{
    uint32_t i = 0;
    while (i < t->ncpus && t->cpus[i].part[level] < part)
        i++;
    return i;
}

/* "0-3,8" of the CPUs from `first` to before `end`. */
static const char *topology_list(const struct topology *t, uint32_t first, uint32_t end,
                                 struct arena *arena)
{
    const char *list = "";
    for (uint32_t i = first; list && i < end;) {
        uint32_t k = i + 1;
        while (k < end && t->cpus[k].cpu == t->cpus[k - 1].cpu + 1)
            k++;
        const char *comma = *list ? "," : "";
        list = k - i > 1 ? arena_printf(arena, "%s%s%u-%u", list, comma, t->cpus[i].cpu,
                                        t->cpus[k - 1].cpu)
                         : arena_printf(arena, "%s%s%u", list, comma, t->cpus[i].cpu);
        i = k;
    }
    return list ? list : "";
}

const char *topology_share(const struct topology *topology, enum topology_level level,
                           uint32_t width, uint32_t n, uint32_t index, struct arena *arena)
{
    uint32_t first = (uint32_t)((uint64_t)index * topology->nparts[level] / n), end = first + 1;
    if (level == TOPOLOGY_CORE) {
        first = index * width;
        end = first + width;
    }
    return topology_list(topology, topology_first_cpu(topology, level, first),
                         topology_first_cpu(topology, level, end), arena);
}
