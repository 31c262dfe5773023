/* SPDX-License-Identifier: Apache-2.0
 *
 * What `collrun describe` prints: a plugin's summary, its operations, and its parameters or
 * options.
 */
#include "report/show_plugin.h"

#include "base/names.h"
#include "report/show.h"

#include <jansson.h>
#include <string.h>

static const char *const hows[] = {[DESCRIBE_UNSUPPORTED] = "unsupported",
                                   [DESCRIBE_NATIVE] = "native",
                                   [DESCRIBE_EMULATED] = "emulated"};

static const char *plugin_type_name(enum collrun_param_type type)
{
    static const char *const names[] = {"string", "int",      "float", "bool",
                                        "size",   "duration", "enum",  "list"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "?";
}

/* ---- text ---- */

static void plugin_put_operations(const struct described *what, enum describe_how how, FILE *out)
{
    bool any = false;
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++) {
        if (what->operations[kind] != how)
            continue;
        if (!any)
            fprintf(out, "  %-11s", hows[how]);
        fprintf(out, " %s", kind_name(kind));
        any = true;
    }
    if (any)
        fputc('\n', out);
}

static void plugin_put_flags(uint64_t flags, FILE *out)
{
    for (unsigned i = 0, n = 0; backend_flag_name(i); i++)
        if (flags >> i & 1)
            fprintf(out, "%s %s", n++ ? "" : "  flags      ", backend_flag_name(i));
    if (flags)
        fputc('\n', out);
}

static void plugin_put_backend(const struct described *what, FILE *out)
{
    fprintf(out, "%s: backend, version %s\n  %s\n", what->name, what->version, what->path);
    fprintf(out, "  %s%s%s%s\n",
            what->available ? "available" : "not available: ", *what->found ? " (" : "",
            what->available ? what->found : what->reason, *what->found ? ")" : "");
    if (what->memory.name)
        fprintf(out, "  %-11s %s\n", "memory", what->memory.name);
    plugin_put_operations(what, DESCRIBE_NATIVE, out);
    plugin_put_operations(what, DESCRIBE_EMULATED, out);
    plugin_put_operations(what, DESCRIBE_UNSUPPORTED, out);
    plugin_put_flags(what->flags, out);
}

/* "list of size, 8 to 1GiB, default 1KiB": type, bounds or choices, default. */
static void plugin_put_values(const struct describe_param *p, bool is_option, FILE *out)
{
    bool is_list = p->type == COLLRUN_PARAM_LIST;
    fprintf(out, "%s%s", is_list ? "list of " : "", plugin_type_name(is_list ? p->item : p->type));
    if (p->choices)
        fprintf(out, " %s", p->choices);
    if (p->min && p->max)
        fprintf(out, ", %s to %s", p->min, p->max);
    else if (p->min || p->max)
        fprintf(out, ", at %s %s", p->min ? "least" : "most", p->min ? p->min : p->max);
    if (p->def)
        fprintf(out, ", default %s", *p->def ? p->def : "empty");
    else if (!is_option)
        fputs(", required", out);
    fputc('\n', out);
}

static void plugin_put_params(const struct described *what, FILE *out)
{
    bool is_option = what->kind == DESCRIBE_BACKEND;
    int width = 0;
    for (uint32_t i = 0; i < what->nparams; i++) {
        int len = (int)strlen(what->params[i].name);
        width = len > width ? len : width;
    }
    if (what->nparams)
        fprintf(out, "\n%s\n", is_option ? "options" : "parameters");
    else if (is_option && what->any_option)
        fputs("\noptions: any\n", out);
    for (uint32_t i = 0; i < what->nparams; i++) {
        const struct describe_param *p = &what->params[i];
        fprintf(out, "  %-*s  ", width, p->name);
        plugin_put_values(p, is_option, out);
        if (*p->help)
            fprintf(out, "  %*s  %s\n", width, "", p->help);
    }
}

void show_plugin(const struct described *what, FILE *out)
{
    if (what->kind == DESCRIBE_BACKEND)
        plugin_put_backend(what, out);
    else
        fprintf(out, "%s: workload\n  %s\n", what->name, what->path);
    if (what->kind == DESCRIBE_WORKLOAD && *what->summary)
        fprintf(out, "  %s\n", what->summary);
    if (what->kind == DESCRIBE_WORKLOAD && what->has_check)
        fputs("  has a check of its parameters\n", out);
    plugin_put_params(what, out);
}

/* ---- JSON ---- */

/* The choices as a list; null if there are none. */
static json_t *plugin_json_choices(const char *choices)
{
    json_t *list = choices ? json_array() : json_null();
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        json_array_append_new(list, json_stringn(at, strcspn(at, "|")));
    return list;
}

static json_t *plugin_json_params(const struct described *what)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < what->nparams; i++) {
        const struct describe_param *p = &what->params[i];
        const char *item = p->type == COLLRUN_PARAM_LIST ? plugin_type_name(p->item) : NULL;
        json_array_append_new(list,
                              json_pack("{ss ss ss? ss? ss? ss? so ss}", "name", p->name, "type",
                                        plugin_type_name(p->type), "item", item, "default", p->def,
                                        "min", p->min, "max", p->max, "choices",
                                        plugin_json_choices(p->choices), "help", p->help));
    }
    return list;
}

static json_t *plugin_json_backend(const struct described *what)
{
    json_t *operations = json_object(), *flags = json_array();
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++)
        json_object_set_new(operations, kind_name(kind), json_string(hows[what->operations[kind]]));
    for (unsigned i = 0; backend_flag_name(i); i++)
        if (what->flags >> i & 1)
            json_array_append_new(flags, json_string(backend_flag_name(i)));
    return json_pack("{ss ss ss ss si sb ss ss ss? so so so}", "kind", "backend", "name",
                     what->name, "version", what->version, "path", what->path, "abi",
                     (int)what->abi, "available", (int)what->available, "found", what->found,
                     "reason", what->reason, "memory", what->memory.name, "operations", operations,
                     "flags", flags, "options",
                     what->any_option ? json_null() : plugin_json_params(what));
}

void show_plugin_json(const struct described *what, FILE *out)
{
    json_t *root = what->kind == DESCRIBE_BACKEND
                       ? plugin_json_backend(what)
                       : json_pack("{ss ss ss ss sb so}", "kind", "workload", "name", what->name,
                                   "summary", what->summary, "path", what->path, "check",
                                   (int)what->has_check, "parameters", plugin_json_params(what));
    json_dumpf(root, out, JSON_INDENT(2));
    json_decref(root);
    fputc('\n', out);
}

/* ---- collrun backends ---- */

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
