/* SPDX-License-Identifier: Apache-2.0 */
#include "connect/doctor_items.h"

#include <string.h>

uint32_t doctor_items_count_backends(const struct desc *desc)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < desc->nbackends; k++)
        n += !desc->backends[k].unused;
    return n;
}

uint32_t doctor_items_count_plugins(const struct desc *desc)
{
    uint32_t n = doctor_items_count_backends(desc);
    for (uint32_t k = 0; k < desc->nworkloads; k++)
        n += !desc->workloads[k].command.n;
    return n;
}

const struct desc_backend *doctor_items_backend(const struct desc *desc, uint32_t k)
{
    const struct desc_backend *b = desc->backends;
    while (b->unused || k--)
        b++;
    return b;
}

const struct desc_workload *doctor_items_workload(const struct desc *desc, uint32_t k)
{
    const struct desc_workload *w = desc->workloads;
    while (w->command.n || k--)
        w++;
    return w;
}

/* ---- commands ---- */

uint32_t doctor_items_next_command(const struct desc *desc, uint32_t host, uint32_t first)
{
    for (uint32_t i = first; i < desc->nworkloads; i++) {
        const struct desc_workload *w = &desc->workloads[i];
        for (uint32_t k = 0; w->command.n && k < w->ranks.n; k++)
            if (desc->ranks[w->ranks.items[k]].host == host)
                return i;
    }
    return desc->nworkloads;
}

static const char *doctor_items_find(const struct desc_kvs *pairs, const char *key)
{
    for (uint32_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->items[i].key, key) == 0)
            return pairs->items[i].value;
    return NULL;
}

/* PATH as job.yaml sets it; "": as the host has it. */
static const char *doctor_items_path(const struct desc *desc, const struct desc_workload *w)
{
    const struct desc_kvs *const places[] = {&w->env, &desc->env_set, &desc->env_pass};
    const char *path = NULL;
    for (size_t i = 0; !path && i < sizeof places / sizeof *places; i++)
        path = doctor_items_find(places[i], "PATH");
    return path ? path : "";
}

/* The working directory as the agent enters it (agent/command.c); "": that of the agent. */
static const char *doctor_items_folder(const struct desc *desc, const struct desc_workload *w,
                                       uint32_t host, struct arena *arena)
{
    const char *top = desc->hosts[host].workdir;
    if (w->workdir[0] == '/' || !w->workdir[0])
        return w->workdir[0] ? w->workdir : top;
    return arena_printf(arena, "%s/%s", top[0] ? top : w->folder, w->workdir);
}

void doctor_items_put_commands(struct buf *out, const struct buf *bytes, uint32_t host,
                               struct arena *arena)
{
    struct desc desc = {0};
    struct diag d;
    uint32_t n = 0;
    diag_init(&d);
    if (!bytes || !buf_pending(bytes) ||
        desc_decode(arena, &desc, bytes->data + bytes->start, buf_pending(bytes), &d) != COLLRUN_OK)
        desc = (struct desc){0};
    for (uint32_t i = doctor_items_next_command(&desc, host, 0); i < desc.nworkloads;
         i = doctor_items_next_command(&desc, host, i + 1))
        n++;
    buf_put_u32(out, n);
    for (uint32_t i = doctor_items_next_command(&desc, host, 0); i < desc.nworkloads;
         i = doctor_items_next_command(&desc, host, i + 1)) {
        const struct desc_workload *w = &desc.workloads[i];
        const char *program = w->command.items[0], *path = doctor_items_path(&desc, w);
        const char *folder = doctor_items_folder(&desc, w, host, arena);
        /* A template in PATH has no value before there is a rank. */
        bool unknown = !strchr(program, '/') && strchr(path, '{');
        buf_put_str(out, unknown ? "" : program);
        buf_put_str(out, path);
        buf_put_str(out, folder ? folder : "");
    }
}
