/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/placement.h"

#include "agent/agent.h"
#include "agent/engine_query.h"
#include "base/debug.h"
#include "base/topology.h"

#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

int placement_pool(struct agent *a, const char *engine, const char *backend, const char *mask,
                   struct devices *pool, struct diag *d)
{
    struct devices all;
    struct buf answer;
    buf_init(&answer);
    engine_query(a, engine, "--devices", backend, &answer);
    const char *text = answer.data ? (const char *)answer.data : "";
    devices_read(text, answer.len, &a->arena, &all);
    if (!devices_complete(text, answer.len))
        all = (struct devices){.items = all.items,
                               .reason = "the process that lists them crashes or hangs"};
    buf_fini(&answer);
    return devices_pool(&all, mask, *mask ? getenv(mask) : NULL, &a->arena, pool, d);
}

static bool placement_is_here(const struct agent *a, uint32_t rank)
{
    return a->desc.ranks[rank].host == a->host;
}

static bool placement_is_used(const struct desc *desc, uint32_t kind)
{
    for (uint32_t rank = 0; rank < desc->nranks; rank++)
        if (desc_rank_devices(&desc->ranks[rank], kind))
            return true;
    return false;
}

/* True if the plan does not name the devices of this host, or the CPUs near them. */
static bool placement_is_open(const struct agent *a, uint32_t kind)
{
    for (uint32_t rank = 0; rank < a->desc.nranks; rank++) {
        const struct desc_rank *me = &a->desc.ranks[rank];
        bool bound = strcmp(me->cpus, DESC_CPUS_NEAR_DEVICES) == 0;
        for (uint32_t i = 0; placement_is_here(a, rank) && i < me->ndevices; i++)
            if (me->devices[i].kind == kind && (bound || !*me->devices[i].id))
                return true;
    }
    return false;
}

static int placement_missing(const struct agent *a, uint32_t rank, const struct desc_device *device,
                             const struct devices *pool, struct diag *d)
{
    const struct desc_host *host = &a->desc.hosts[a->host];
    const char *title = a->desc.kinds[device->kind].title;
    diag_at(d, host->devices_loc, "rank %u needs %s %u of host %s, which has %u usable %s%s", rank,
            title, device->index, host->name, pool->n, title, pool->n == 1 ? "" : "s");
    return *pool->reason ? diag_hint(d, "%s", pool->reason) : d->code;
}

/* "a,b" */
static const char *placement_join(struct agent *a, const char *list, const char *item)
{
    return list ? arena_printf(&a->arena, "%s%s%s", list, *list ? "," : "", item) : NULL;
}

/* Adds the cpus near a device, which `pool` lists, to those of the rank. */
static int placement_bind(struct agent *a, struct rank_proc *p, const struct desc_device *device,
                          const struct devices *pool, struct diag *d)
{
    const char *cpus = pool->items[device->index].cpus;
    const struct desc_host *host = &a->desc.hosts[a->host];
    if (!*cpus)
        return diag_at(d, host->devices_loc,
                       "bind: gpu: host %s does not report which cpus are near its %s %u",
                       host->name, a->desc.kinds[device->kind].title, device->index);
    p->near = placement_join(a, p->near, cpus);
    return COLLRUN_OK;
}

/* Appends the devices of one kind to those of a rank, and their mask. `pool` NULL: the plan names
 * them. */
static int placement_of_rank(struct agent *a, struct rank_proc *p, uint32_t kind,
                             const struct devices *pool, struct diag *d)
{
    const struct desc_rank *me = &a->desc.ranks[p->rank];
    bool bound = strcmp(me->cpus, DESC_CPUS_NEAR_DEVICES) == 0;
    const char *ids = "";
    for (uint32_t i = 0; i < me->ndevices; i++) {
        const struct desc_device *device = &me->devices[i];
        if (device->kind != kind)
            continue;
        if (pool && device->index >= pool->n)
            return placement_missing(a, p->rank, device, pool, d);
        ids = placement_join(a, ids, pool ? pool->items[device->index].id : device->id);
        if (bound && pool && placement_bind(a, p, device, pool, d) != COLLRUN_OK)
            return d->code;
    }
    if (ids && *ids)
        p->devices = placement_join(a, p->devices, ids);
    if (!ids || !p->devices || !p->near)
        return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    if (*a->desc.kinds[kind].mask)
        p->masks[p->nmasks++] =
            (struct rank_mask){.variable = a->desc.kinds[kind].mask, .value = ids};
    return COLLRUN_OK;
}

static int placement_of_kind(struct agent *a, const char *engine, uint32_t kind, struct diag *d)
{
    const struct desc_kind *row = &a->desc.kinds[kind];
    struct devices pool;
    bool open = placement_is_open(a, kind);
    int rc =
        open ? placement_pool(a, engine, a->desc.backends[row->backend].path, row->mask, &pool, d)
             : COLLRUN_OK;
    for (uint32_t i = 0; rc == COLLRUN_OK && i < a->desc.hosts[a->host].nranks; i++)
        rc = placement_of_rank(a, &a->ranks[i], kind, open ? &pool : NULL, d);
    return rc;
}

/* The shares of the ranks in this host's cores, which this agent claims whether or not it binds. */
static int placement_of_cores(struct agent *a, struct diag *d)
{
    const uint32_t n = a->desc.hosts[a->host].nranks;
    cores_open(&a->cores, "collrun/core/");
    for (uint32_t i = 0; i < n; i++) {
        struct rank_proc *p = &a->ranks[i];
        if (strcmp(a->desc.ranks[p->rank].cpus, DESC_CPUS_AUTO) != 0)
            continue;
        p->near = cores_share(&a->cores, n, i, &a->arena);
        if (!p->near)
            return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    return COLLRUN_OK;
}

static bool placement_is_bound_here(const struct agent *a, uint32_t rank)
{
    enum topology_level level;
    return topology_parse_level(a->desc.ranks[rank].cpus, &level);
}

/* The CPUs of a rank that the plan leaves to the topology of this host. */
static int placement_share(struct agent *a, struct rank_proc *p, const struct topology *t,
                           struct diag *d)
{
    const uint32_t n = a->desc.hosts[a->host].nranks, width = a->desc.cpus_per_process;
    const uint32_t cores = t->nparts[TOPOLOGY_CORE];
    enum topology_level level;
    if (!topology_parse_level(a->desc.ranks[p->rank].cpus, &level))
        return COLLRUN_OK;
    if (level == TOPOLOGY_CORE && (uint64_t)n * width > cores) {
        diag_at(d, a->desc.bind_loc,
                "processes.bind: host %s has %u core%s, too few for %u rank%s of %u core%s each",
                a->desc.hosts[a->host].name, cores, cores == 1 ? "" : "s", n, n == 1 ? "" : "s",
                width, width == 1 ? "" : "s");
        return diag_hint(d, "bind: none lets ranks share cores");
    }
    p->near = topology_share(t, level, width, n, a->desc.ranks[p->rank].local_rank, &a->arena);
    return arena_failed(&a->arena) ? diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory") : 0;
}

static int placement_of_topology(struct agent *a, struct diag *d)
{
    struct topology t = {0};
    int rc = COLLRUN_OK;
    for (uint32_t i = 0; i < a->desc.hosts[a->host].nranks && rc == COLLRUN_OK; i++) {
        if (!placement_is_bound_here(a, a->ranks[i].rank))
            continue;
        if (!t.ncpus)
            rc = topology_read(&t, "/sys", NULL, &a->arena, d);
        if (rc == COLLRUN_OK)
            rc = placement_share(a, &a->ranks[i], &t, d);
    }
    return rc;
}

int placement_make(struct agent *a, const char *engine, struct diag *d)
{
    uint32_t next = 0;
    for (uint32_t rank = 0; rank < a->desc.nranks; rank++) {
        if (!placement_is_here(a, rank))
            continue;
        struct rank_proc *p = &a->ranks[next++];
        p->agent = a;
        p->rank = rank;
        p->near = p->devices = "";
        p->masks = arena_calloc(&a->arena, a->desc.nkinds, sizeof *p->masks);
        if (!p->masks)
            return diag_set(d, COLLRUN_ERR_NO_MEMORY, "out of memory");
    }
    int rc = placement_of_cores(a, d);
    if (rc == COLLRUN_OK)
        rc = placement_of_topology(a, d);
    for (uint32_t kind = 0; rc == COLLRUN_OK && kind < a->desc.nkinds; kind++)
        if (placement_is_used(&a->desc, kind))
            rc = placement_of_kind(a, engine, kind, d);
    for (uint32_t i = 0; rc == COLLRUN_OK && i < next; i++)
        debug_log(DEBUG_PLACE, "rank %u: CPUs \"%s\", NUMA node %d, devices \"%s\"",
                  a->ranks[i].rank, placement_cpus(&a->ranks[i]),
                  placement_memory_node(&a->ranks[i]), a->ranks[i].devices);
    return rc;
}

const char *placement_cpus(const struct rank_proc *p)
{
    const char *planned = p->agent->desc.ranks[p->rank].cpus;
    return p->near[0] || strcmp(planned, DESC_CPUS_AUTO) == 0 ? p->near : planned;
}

int placement_memory_node(const struct rank_proc *p)
{
    const char *list = placement_cpus(p);
    struct cpus cpus = {0}, usable;
    if (!*list || !memory_policy_is_open())
        return -1;
    cpus_add_list(&cpus, list);
    if (p->near[0] && cpus_read(&usable, 0) == 0)
        cpus_keep(&cpus, &usable);
    return memory_policy_node("/sys", &cpus);
}

/* ---- the memory of a rank ---- */

enum { NODES_MAX = 256, NODE_BITS = 8 * sizeof(unsigned long) };

static bool memory_policy_has(const struct cpus *node, const struct cpus *cpus)
{
    bool some = false;
    for (uint32_t cpu = 0; cpu < CPUS_MAX; cpu++) {
        if (!cpus_has(cpus, cpu))
            continue;
        if (!cpus_has(node, cpu))
            return false;
        some = true;
    }
    return some;
}

/* Reads a list such as "0-3,8" below `sys`. */
static bool memory_policy_read(struct cpus *out, const char *sys, const char *file)
{
    char path[512], list[4096];
    snprintf(path, sizeof path, "%s/devices/system/node/%s", sys, file);
    FILE *f = fopen(path, "re");
    const bool read = f && fgets(list, sizeof list, f);
    if (f)
        fclose(f);
    *out = (struct cpus){0};
    if (read)
        cpus_add_list(out, list);
    return read;
}

int memory_policy_node(const char *sys, const struct cpus *cpus)
{
    struct cpus online, node;
    char file[32];
    if (!memory_policy_read(&online, sys, "online"))
        return -1;
    for (int i = 0; i < NODES_MAX; i++) {
        snprintf(file, sizeof file, "node%d/cpulist", i);
        if (cpus_has(&online, (uint32_t)i) && memory_policy_read(&node, sys, file) &&
            memory_policy_has(&node, cpus))
            return i;
    }
    return -1;
}

bool memory_policy_is_open(void)
{
    int mode = -1;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) == 0 && mode == MPOL_DEFAULT;
}

void memory_policy_set(int node)
{
    unsigned long nodes[NODES_MAX / NODE_BITS + 1] = {0};
    if (node < 0 || !memory_policy_is_open())
        return;
    nodes[node / NODE_BITS] = 1ul << node % NODE_BITS;
    /* A node without memory, or one that the cpuset forbids, is refused: the default remains. */
    syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, (unsigned long)NODES_MAX + 1);
}

/* ---- cores ---- */

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

/* ---- claims ---- */

/* Names of one core that are tried: one that is held by another program is passed over. */
enum { CORES_NAMES = 8, CORES_TRIES = 5 };

static void cores_program_of(pid_t pid, char name[32])
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(name, 32, f))
        name[0] = '\0';
    if (f)
        fclose(f);
}

/* Whether the holder of the name is an agent, as this process is. Any user can bind the name. Of a
 * process in another container nothing is known: it counts as an agent. A holder that has bound the
 * name and does not listen yet may be one that starts. */
static bool cores_holder_is_agent(const struct sockaddr_un *where, socklen_t len)
{
    struct ucred holder = {.pid = 0};
    char mine[32] = "", other[32] = "";
    bool connected = false;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    for (int i = 0; fd >= 0 && !connected && i < CORES_TRIES; i++) {
        connected = connect(fd, (const void *)where, len) == 0;
        if (!connected)
            usleep(1000);
    }
    if (connected)
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &holder, &(socklen_t){sizeof holder});
    if (fd >= 0)
        close(fd);
    if (!connected || holder.pid == 0)
        return connected;
    cores_program_of(getpid(), mine);
    cores_program_of(holder.pid, other);
    return strcmp(mine, other) == 0;
}

/* False: another agent has claimed the core. `claim`: -1 if other programs hold all its names. */
static bool cores_claim(const char *name, unsigned core, int *claim)
{
    *claim = -1;
    for (int i = 0; i < CORES_NAMES; i++) {
        struct sockaddr_un where = {.sun_family = AF_UNIX};
        const int n =
            snprintf(where.sun_path + 1, sizeof where.sun_path - 1, "%s%u.%d", name, core, i);
        const socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            return false;
        if (bind(fd, (void *)&where, len) == 0 && listen(fd, SOMAXCONN) == 0) {
            *claim = fd;
            return true;
        }
        close(fd);
        if (cores_holder_is_agent(&where, len))
            return false;
    }
    return true;
}

void cores_answer(struct cores *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        int fd;
        while (c->items[i].claim >= 0 &&
               (fd = accept4(c->items[i].claim, NULL, NULL, SOCK_CLOEXEC)) >= 0)
            close(fd);
    }
}

void cores_open(struct cores *c, const char *name)
{
    struct cpus usable;
    uint16_t core_of[CPU_SETSIZE] = {0}; /* by first hardware thread; plus one */
    *c = (struct cores){.claimed = true};
    if (cpus_read(&usable, 0) != 0) {
        c->claimed = false;
        return;
    }
    for (unsigned cpu = 0; cpu < CPUS_MAX; cpu++) {
        if (!cpus_has(&usable, cpu))
            continue;
        const unsigned first = cores_first_thread(cpu);
        c->large = cpu >= CPU_SETSIZE || first >= CPU_SETSIZE ||
                   (core_of[first] == 0 && c->n == CORES_MAX);
        if (c->large) {
            c->claimed = false;
            return;
        }
        if (core_of[first] == 0) {
            c->claimed = cores_claim(name, first, &c->items[c->n].claim) && c->claimed;
            core_of[first] = (uint16_t)++c->n;
        }
        CPU_SET(cpu, &c->items[core_of[first] - 1].cpus);
    }
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
