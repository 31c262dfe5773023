/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/memory_policy.h"

#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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
