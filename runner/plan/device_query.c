/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/device_query.h"

#include "plan/engine_child.h"
#include "plan/kinds.h"

#include <signal.h>
#include <stdlib.h>

enum { DEVICES_DEADLINE_MS = 20000 };

/* All devices of the kind that a backend declares. */
static int device_query_list(const char *engine, const struct described *b, struct arena *arena,
                             struct devices *out, struct diag *d)
{
    struct engine_child child = {.fd = -1, .deadline_ms = DEVICES_DEADLINE_MS};
    char *argv[] = {(char *)engine, (char *)"--devices", (char *)b->path, NULL};
    struct buf in;
    int code = engine_child_start(&child, engine, argv, -1, d);
    if (code < 0)
        return code;
    buf_init(&in);
    bool complete = false;
    while (!complete && engine_child_read(&child, &in))
        complete = devices_complete((const char *)in.data, in.len);
    if (complete) /* do not wait for its destructors */
        kill(child.pid, SIGKILL);
    int status = engine_child_end(&child);
    devices_read((const char *)in.data, in.len, arena, out);
    if (!complete) {
        out->n = 0;
        out->reason =
            engine_child_failure(&child, status, "listing the devices", "lists the devices", arena);
    }
    buf_fini(&in);
    return 0;
}

static int device_query_pool(const char *engine, const struct described *b, struct arena *arena,
                             struct plan_pool *out, struct diag *d)
{
    struct devices all;
    int code = device_query_list(engine, b, arena, &all, d);
    const char *mask = *b->memory.mask ? getenv(b->memory.mask) : NULL;
    out->kind = b->memory.name;
    return code < 0 ? code : devices_pool(&all, b->memory.mask, mask, arena, &out->devices, d);
}

/* `job` NULL: of every kind. */
static int device_query_kinds(const struct job *job, const char *engine,
                              const struct plan_input *in, struct arena *arena,
                              struct plan_pools *out, struct diag *d)
{
    const struct described *gpus = kinds_find(in->plugins, in->nplugins, NULL);
    *out = (struct plan_pools){.items = arena_calloc(arena, in->nplugins, sizeof *out->items)};
    for (uint32_t i = 0; i < in->nplugins; i++) {
        const struct described *b = &in->plugins[i];
        if (!b->memory.name || kinds_find(in->plugins, in->nplugins, b->memory.name) != b)
            continue;
        if (job && !kinds_of_job(job, (struct kinds_kind){b->memory.name, b == gpus}).count)
            continue;
        int code = device_query_pool(engine, b, arena, &out->items[out->n++], d);
        if (code < 0)
            return code;
    }
    return 0;
}

int device_query_all(const char *engine, const struct plan_input *in, struct arena *arena,
                     struct plan_pools *out, struct diag *d)
{
    return device_query_kinds(NULL, engine, in, arena, out, d);
}

int device_query(const struct job *job, const char *engine, struct arena *arena,
                 struct plan_input *in, struct diag *d)
{
    struct plan_pools *here = arena_alloc(arena, sizeof *here);
    const struct plan_pools **list = arena_calloc(arena, job->hosts.n, sizeof *list);
    int code = device_query_kinds(job, engine, in, arena, here, d);
    for (uint32_t i = 0; i < job->hosts.n; i++)
        if (job->hosts.nodes[i].transport.kind.v == JOB_TRANSPORT_LOCAL)
            list[i] = here;
    in->pools = list;
    return code;
}
