/* SPDX-License-Identifier: Apache-2.0 */
#include "report/show_backends.h"

#include "base/names.h"
#include "report/show.h"

#include <jansson.h>
#include <string.h>

static const char *const how_names[] = {[DESCRIBE_UNSUPPORTED] = "unsupported",
                                        [DESCRIBE_NATIVE] = "native",
                                        [DESCRIBE_EMULATED] = "emulated"};

/* "native      barrier allreduce ..." */
static void show_operations(const struct described *b, enum describe_how how, FILE *out)
{
    bool any = false;
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++) {
        if (b->operations[kind] != how)
            continue;
        if (!any)
            fprintf(out, "  %-11s", how_names[how]);
        fprintf(out, " %s", kind_name(kind));
        any = true;
    }
    if (any)
        fputc('\n', out);
}

static void show_options(const struct described *b, FILE *out)
{
    for (uint32_t i = 0; i < b->nparams; i++)
        fprintf(out, "%s%s", i ? " " : "  options     ", b->params[i].name);
    if (b->nparams)
        fputc('\n', out);
}

/* The devices of the kind that a backend declares; NULL: it declares none, or another one does. */
static const struct devices *show_devices_of(const struct plan_pools *pools,
                                             const struct described *b)
{
    for (uint32_t i = 0; b->memory.declares && i < pools->n; i++)
        if (strcmp(pools->items[i].kind, b->memory.name) == 0)
            return &pools->items[i].devices;
    return NULL;
}

/* The kinds of memory that the backend works on, and the devices of the one that it declares. */
static void show_memory(const struct described *b, const struct devices *devices,
                        struct arena *arena, FILE *out)
{
    bool host = b->works_on & COLLRUN_MEMORY_HOST, device = b->works_on & COLLRUN_MEMORY_DEVICE;
    if (b->memory.name)
        fprintf(out, "  memory      %s%s%s\n", host ? "host" : "", host && device ? " " : "",
                device ? b->memory.name : "");
    if (devices)
        fprintf(out, "  devices     %s: %s\n", b->memory.name,
                devices_text(devices, b->memory.title, arena));
}

void show_backends(const struct plan_input *in, const struct plan_pools *pools, struct arena *arena,
                   FILE *out)
{
    for (uint32_t i = 0; i < in->nplugins; i++) {
        const struct described *b = &in->plugins[i];
        fprintf(out, "%s%s", i ? "\n" : "", b->name ? b->name : "(unknown)");
        if (b->error) {
            fprintf(out, ": not available: %s\n  %s\n", b->error, b->path);
            continue;
        }
        fprintf(out, " %s: %s%s%s%s\n  %s\n", b->version,
                b->available ? "available" : "not available: ", *b->found ? " (" : "",
                b->available ? b->found : b->reason, *b->found ? ")" : "", b->path);
        show_operations(b, DESCRIBE_NATIVE, out);
        show_operations(b, DESCRIBE_EMULATED, out);
        show_operations(b, DESCRIBE_UNSUPPORTED, out);
        show_memory(b, show_devices_of(pools, b), arena, out);
        show_options(b, out);
    }
}

static json_t *show_json_works_on(const struct described *b)
{
    json_t *list = json_array();
    if (b->works_on & COLLRUN_MEMORY_HOST)
        json_array_append_new(list, json_string("host"));
    if (b->works_on & COLLRUN_MEMORY_DEVICE && b->memory.name)
        json_array_append_new(list, json_string(b->memory.name));
    return list;
}

/* Its devices, if the backend declares the kind; NULL: it has no kind of memory. */
static json_t *show_json_memory_kind(const struct described *b, const struct devices *devices)
{
    if (!b->memory.name)
        return NULL;
    json_t *list = devices ? json_array() : NULL;
    for (uint32_t i = 0; devices && i < devices->n; i++)
        json_array_append_new(list,
                              json_pack("{ss ss ss}", "id", devices->items[i].id, "model",
                                        devices->items[i].model, "cpus", devices->items[i].cpus));
    return json_pack("{ss ss sb so* ss*}", "name", b->memory.name, "title", b->memory.title, "gpus",
                     (int)b->memory.gpus, "devices", list, "reason",
                     devices ? devices->reason : NULL);
}

static json_t *show_json_backend(const struct described *b, const struct devices *devices)
{
    if (b->error)
        return json_pack("{ss? sn ss sb ss ss}", "name", b->name, "version", "path", b->path,
                         "available", 0, "reason", b->error, "hint", b->hint);
    json_t *operations = json_object();
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++)
        json_object_set_new(operations, kind_name(kind),
                            json_string(how_names[b->operations[kind]]));
    json_t *options = b->any_option ? json_null() : json_array();
    for (uint32_t i = 0; i < b->nparams; i++)
        json_array_append_new(options, json_string(b->params[i].name));
    return json_pack("{ss ss ss si sb ss ss so so so so*}", "name", b->name, "version", b->version,
                     "path", b->path, "abi", (int)b->abi, "available", (int)b->available, "found",
                     b->found, "reason", b->reason, "operations", operations, "options", options,
                     "memory", show_json_works_on(b), "memory_kind",
                     show_json_memory_kind(b, devices));
}

void show_backends_json(const struct plan_input *in, const struct plan_pools *pools, FILE *out)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < in->nplugins; i++)
        json_array_append_new(
            list, show_json_backend(&in->plugins[i], show_devices_of(pools, &in->plugins[i])));
    show_dump(list, out);
}
