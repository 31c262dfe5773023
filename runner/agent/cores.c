/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/cores.h"

#include "base/topology.h"

#include <stdbool.h>
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
