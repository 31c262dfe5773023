/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/usage.h"

#include "xalloc.h"

#include <stdio.h>
#include <stdlib.h>

enum { USAGE_GROUP_LEN = 24 }; /* bytes of a group, at least */
#define USAGE_CPU_NS 900000000ull

static void usage_set_cpu(struct rank_usage *u, uint64_t cpu_us, uint64_t now_ns)
{
    uint64_t ns = now_ns - u->before_ns;
    u->cpu_us = cpu_us;
    if (u->before_ns && ns < USAGE_CPU_NS)
        return;
    bool grown = u->before_ns && cpu_us >= u->before_us;
    u->cpu = grown ? (double)(cpu_us - u->before_us) * 1e3 / (double)ns : -1;
    u->before_us = cpu_us;
    u->before_ns = now_ns;
}

bool usage_read(struct rank_usage *u, const struct wire_frame *f, uint64_t now_ns)
{
    struct reader r;
    size_t len;
    reader_init(&r, f->payload, f->len);
    uint64_t cpu_us = read_u64(&r), memory = read_u64(&r);
    uint32_t n = read_count(&r, USAGE_GROUP_LEN);
    struct usage_group *groups = xcalloc(n + 1u, sizeof *groups);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = read_blob(&r, &len);
        snprintf(groups[i].name, sizeof groups[i].name, "%.*s", (int)len, name ? name : "");
        groups[i].operations = read_u32(&r);
        groups[i].sum_ns = read_u64(&r);
        groups[i].longest_ns = read_u64(&r);
    }
    if (!reader_done(&r)) {
        free(groups);
        return false;
    }
    free(u->groups);
    u->groups = groups;
    u->n = n;
    u->memory = memory;
    usage_set_cpu(u, cpu_us, now_ns);
    return true;
}

void usage_fini(struct rank_usage *u)
{
    free(u->groups);
    *u = (struct rank_usage){0};
}
