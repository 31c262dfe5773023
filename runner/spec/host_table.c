/* SPDX-License-Identifier: Apache-2.0 */
#include "spec/host_table.h"

#include "spec/names.h"

#include <string.h>

static void host_table_merge_str(struct job_str *to, const struct job_str *from)
{
    if (!to->loc.line)
        *to = *from;
}

static void host_table_merge_num(struct job_num *to, const struct job_num *from)
{
    if (!to->loc.line)
        *to = *from;
}

static void host_table_merge(struct job_host *host, const struct job_host *defaults)
{
    host_table_merge_str(&host->user, &defaults->user);
    host_table_merge_str(&host->workdir, &defaults->workdir);
    host_table_merge_num(&host->port, &defaults->port);
    host_table_merge_num(&host->slots, &defaults->slots);
    if (!host->gpus.count.loc.line && !host->gpus.list.loc.line)
        host->gpus = defaults->gpus;
    if (host->transport.command.loc.line)
        host->transport.kind = (struct job_num){JOB_TRANSPORT_COMMAND, host->transport.command.loc};
    if (!host->transport.kind.loc.line)
        host->transport = defaults->transport;
    if (!host->loc.line)
        host->loc = host->name.loc;
}

/* Makes room for `n` more hosts. */
static void host_table_reserve(struct host_table *table, uint32_t n)
{
    struct job_hosts *hosts = table->hosts;
    if (hosts->n + n <= table->capacity)
        return;
    table->capacity = 2 * (hosts->n + n);
    struct job_host *grown = arena_calloc(table->arena, table->capacity, sizeof *grown);
    if (hosts->n)
        memcpy(grown, hosts->nodes, hosts->n * sizeof *grown);
    hosts->nodes = grown;
}

static struct job_host *host_table_find(const struct host_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->hosts->n; i++) {
        if (strcmp(table->hosts->nodes[i].name.v, name) == 0)
            return &table->hosts->nodes[i];
    }
    return NULL;
}

static int64_t host_table_slots(const struct job_host *host)
{
    return host->slots.v ? host->slots.v : 1;
}

/* What becomes of a name that is there already. */
enum host_table_repeat {
    HOST_TABLE_APPEND, /* the check of the job refuses it */
    HOST_TABLE_SKIP,
    HOST_TABLE_ADD_SLOTS
};

static int host_table_put(struct host_table *table, const struct job_host *written,
                          enum host_table_repeat repeat, struct diag *d)
{
    struct job_hosts *hosts = table->hosts;
    const char **names;
    uint32_t n;
    if (hosts->n > HOSTS_MAX)
        return 0;
    int code = name_expand_hosts(written->name.v, table->arena, &names, &n, d);
    if (code == 0)
        host_table_reserve(table, n);
    for (uint32_t i = 0; i < n && code == 0; i++) {
        struct job_host *host =
            repeat != HOST_TABLE_APPEND ? host_table_find(table, names[i]) : NULL;
        if (host && repeat == HOST_TABLE_SKIP)
            continue;
        if (host) {
            host->slots.v = host_table_slots(host) + host_table_slots(written);
            host->slots.loc = written->loc;
            continue;
        }
        host = &hosts->nodes[hosts->n++];
        *host = *written;
        host->name.v = names[i];
        host_table_merge(host, &hosts->defaults);
    }
    return code;
}

int host_table_add(struct host_table *table, const struct job_host *written, struct diag *d)
{
    return host_table_put(table, written, HOST_TABLE_APPEND, d);
}

int host_table_add_once(struct host_table *table, const struct job_host *written, struct diag *d)
{
    return host_table_put(table, written, HOST_TABLE_SKIP, d);
}

int host_table_add_slots(struct host_table *table, const struct job_host *written, struct diag *d)
{
    return host_table_put(table, written, HOST_TABLE_ADD_SLOTS, d);
}
