/* SPDX-License-Identifier: Apache-2.0
 *
 * One line of JSON per plugin.
 */
#include "rank/describe.h"

#include "base/arena.h"
#include "base/devices.h"
#include "base/names.h"
#include "base/quote.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/plugin.h"
#include "core/process.h"
#include "core/services.h"
#include "rank/params.h"
#include "rank/task.h"

#include <collrun/types.h>
#include <collrun/workload.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ---- */

static void json_put_string(FILE *out, const char *text)
{
    if (!text) {
        fputs("null", out);
        return;
    }
    fputc('"', out);
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        const unsigned char c = (unsigned char)*text;
        const size_t len = utf8_len(text, left);
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else if (len)
            fwrite(text, 1, len, out);
        else
            fputs("\\ufffd", out);
        n = len ? len : 1;
    }
    fputc('"', out);
}

void json_put_member(FILE *out, const char *before, const char *key, const char *text)
{
    fprintf(out, "%s\"%s\":", before, key);
    json_put_string(out, text);
}

/* ---- plugins ---- */

static void describe_head(FILE *out, const char *kind, const char *path)
{
    json_put_member(out, "{", "kind", kind);
    json_put_member(out, ",", "path", path);
}

static void describe_error(FILE *out, const char *kind, const char *path, const struct diag *d)
{
    describe_head(out, kind, path);
    json_put_member(out, ",", "error", d->text);
    json_put_member(out, ",", "hint", d->hint);
    fputs("}\n", out);
}

static void describe_put_flags(FILE *out, uint64_t flags)
{
    const char *comma = "";
    fputs(",\"flags\":[", out);
    for (unsigned i = 0; backend_flag_name(i); i++) {
        if (flags >> i & 1) {
            fprintf(out, "%s\"%s\"", comma, backend_flag_name(i));
            comma = ",";
        }
    }
    fputc(']', out);
}

static void describe_put_operations(FILE *out, const struct backend *b)
{
    static const char *const names[] = {"native", "emulated", "unsupported"};
    fputs(",\"operations\":{", out);
    for (unsigned kind = 0; kind < COLLRUN_KIND_COUNT; kind++)
        fprintf(out, "%s\"%s\":\"%s\"", kind ? "," : "", kind_name(kind),
                names[backend_supports(b, kind)]);
    fputc('}', out);
}

static void describe_put_memory(FILE *out, const struct backend *b)
{
    bool host = b->memory & COLLRUN_MEMORY_HOST, device = b->memory & COLLRUN_MEMORY_DEVICE;
    fprintf(out, ",\"memory\":[%s%s%s]", host ? "\"host\"" : "", host && device ? "," : "",
            device ? "\"device\"" : "");
    if (!b->kind.name)
        return;
    json_put_member(out, ",\"memory_kind\":{", "name", b->kind.name);
    json_put_member(out, ",", "title", b->kind.title);
    json_put_member(out, ",", "mask", b->kind.mask);
    fprintf(out, ",\"gpus\":%s,\"declares\":%s}",
            b->kind.flags & COLLRUN_MEMORY_KIND_GPU ? "true" : "false",
            b->declares_kind ? "true" : "false");
}

static void describe_put_params(FILE *out, const char *key, const struct collrun_param *table)
{
    fprintf(out, ",\"%s\":[", key);
    for (const struct collrun_param *p = table; p && p->name; p++) {
        json_put_member(out, p == table ? "{" : ",{", "name", p->name);
        json_put_member(out, ",", "type", params_type_name(p->type));
        json_put_member(out, ",", "default", p->def);
        json_put_member(out, ",", "min", p->min);
        json_put_member(out, ",", "max", p->max);
        json_put_member(out, ",", "choices", p->choices);
        if (p->type == COLLRUN_PARAM_LIST)
            json_put_member(out, ",", "item", params_type_name((enum collrun_param_type)p->item));
        if (p->per_direction)
            json_put_member(out, ",", "per_direction", p->per_direction);
        json_put_member(out, ",", "help", p->help ? p->help : "");
        fputc('}', out);
    }
    fputc(']', out);
}

static void describe_backend(FILE *out, const char *path)
{
    struct backend b;
    struct diag d;
    diag_init(&d);
    if (backend_load(path, &b, &d) != COLLRUN_OK) {
        describe_error(out, "backend", path, &d);
        return;
    }
    if (params_check_table(b.table.options, "backend", path, &d) != COLLRUN_OK) {
        describe_error(out, "backend", path, &d);
        backend_close(&b);
        return;
    }
    char why[512];
    services_init(&b.services, NULL, NULL, NULL, "%s", b.name);
    bool available = backend_probe(&b, why, sizeof why) == COLLRUN_OK;
    describe_head(out, "backend", path);
    json_put_member(out, ",", "name", b.name);
    json_put_member(out, ",", "version", b.table.version);
    fprintf(out, ",\"abi\":%u,\"available\":%s", b.table.abi, available ? "true" : "false");
    json_put_member(out, ",", "found", available ? why : "");
    json_put_member(out, ",", "reason", available ? "" : why);
    describe_put_flags(out, b.table.flags);
    describe_put_operations(out, &b);
    describe_put_memory(out, &b);
    if (b.table.options)
        describe_put_params(out, "options", b.table.options);
    fputs("}\n", out);
    backend_close(&b);
}

static void describe_workload(FILE *out, const char *path)
{
    struct collrun_workload w;
    struct arena arena;
    struct diag d;
    diag_init(&d);
    arena_init(&arena);
    if (plugin_open_workload(path, &arena, &w, &d) != COLLRUN_OK ||
        params_check_table(w.params, "workload", path, &d) != COLLRUN_OK) {
        describe_error(out, "workload", path, &d);
    } else {
        describe_head(out, "workload", path);
        json_put_member(out, ",", "name", w.name);
        json_put_member(out, ",", "summary", w.summary ? w.summary : "");
        describe_put_params(out, "params", w.params);
        fprintf(out, ",\"check\":%s}\n", w.check ? "true" : "false");
    }
    arena_fini(&arena);
}

int describe_plugins(char *const *args, int nargs, FILE *out)
{
    for (int i = 0; i < nargs; i++) {
        if (strncmp(args[i], "backend:", 8) != 0 && strncmp(args[i], "workload:", 9) != 0) {
            fprintf(stderr, "collrun-engine: \"%s\" is neither backend:PATH nor workload:PATH\n",
                    args[i]);
            return 2;
        }
    }
    for (int i = 0; i < nargs; i++) {
        const char *path = strchr(args[i], ':') + 1;
        fputc('\036', stderr); /* a record separator: what follows is of this plugin */
        if (args[i][0] == 'b')
            describe_backend(out, path);
        else
            describe_workload(out, path);
        fflush(out);
    }
    return 0;
}

/* ---- devices ---- */

/* Fills in `out`, which then points into `found` and `why`. */
static void devices_ask(struct backend *b, struct collrun_device *found, struct devices *out,
                        char *why, size_t len)
{
    const struct collrun_memory_kind *kind = &b->kind;
    why[0] = '\0';
    if (!kind->devices) {
        snprintf(why, len, "the backend \"%s\" declares no kind of memory", b->name);
        return;
    }
    int n = kind->devices(&b->services.table, found, DEVICES_MAX, why, len);
    if (n < 0 && !why[0])
        snprintf(why, len, "the backend \"%s\" cannot list its devices: %s", b->name,
                 status_text(n));
    if (n > DEVICES_MAX)
        snprintf(why, len, "only the first %d of %d devices are used", DEVICES_MAX, n);
    else if (n > 0)
        why[0] = '\0';
    out->n = n < 0 ? 0 : n > DEVICES_MAX ? DEVICES_MAX : (uint32_t)n;
    for (uint32_t i = 0; i < out->n; i++)
        out->items[i] =
            (struct device){.id = found[i].id, .model = found[i].model, .cpus = found[i].cpus};
}

int devices_print(const char *path, FILE *out)
{
    struct backend b;
    struct diag d;
    struct buf lines;
    char why[sizeof d.text];
    struct devices devices = {.items = calloc(DEVICES_MAX, sizeof *devices.items), .reason = why};
    struct collrun_device *found = calloc(DEVICES_MAX, sizeof *found);
    buf_init(&lines);
    diag_init(&d);
    int code = devices.items && found ? 0 : 2;
    if (code == 0 && backend_load(path, &b, &d) == COLLRUN_OK) {
        services_init(&b.services, NULL, NULL, NULL, "%s", b.name);
        devices_ask(&b, found, &devices, why, sizeof why);
        backend_close(&b);
    } else {
        snprintf(why, sizeof why, "%s", d.text);
    }
    if (code == 0)
        devices_write(&devices, &lines);
    if (lines.failed || fwrite(lines.data, 1, lines.len, out) != lines.len)
        code = 2;
    buf_fini(&lines);
    free(devices.items);
    free(found);
    return code;
}

/* A check runs in a struct process that has the job and the rank, but no connection and no groups:
 * what it logs is dropped. */

enum { LINES_MAX = 20 };

/* The last line of one workload. */
struct check_last {
    uint32_t lines;
    const struct desc_kv *kv;
    char text[1024];
};

static void check_put(FILE *out, const struct task *task, struct check_last *last, const char *text)
{
    const char *param = task->refused[0] ? task->refused : NULL;
    uint32_t rank = task->ctx.process->rank;
    const struct desc_kv *kv = param ? desc_find_param(task->ctx.desc, rank, param) : NULL;
    if (last->lines && kv == last->kv && strcmp(text, last->text) == 0)
        return;
    last->kv = kv;
    snprintf(last->text, sizeof last->text, "%s", text);
    last->lines++;
    fprintf(out, "{\"workload\":%u,\"rank\":%u", task->ctx.index, rank);
    json_put_member(out, ",", "param", param);
    json_put_member(out, ",", "error", text);
    fputs("}\n", out);
    fflush(out);
}

/* The message of a check that returned `code`. */
static void check_text(const struct task *task, int code, char *out, size_t size)
{
    const struct error_record *error = error_get();
    if (task->misuse[0])
        snprintf(out, size, "%s", task->misuse);
    else if (task->fail_text[0])
        snprintf(out, size, "%s", task->fail_text);
    else if (code < 0 && error->status == code)
        snprintf(out, size, "%s", error->text);
    else
        snprintf(out, size, "the check of workload \"%s\" returned %d", task->ctx.desc->name, code);
}

static void check_rank(struct process *p, const struct collrun_workload *plugin, uint32_t index,
                       FILE *out, struct check_last *last)
{
    const struct desc_rank *me = &p->desc.ranks[p->rank];
    struct template_values values = {.rank = p->rank,
                                     .local_rank = me->local_rank,
                                     .host = p->desc.hosts[me->host].name,
                                     .run_id = p->desc.run_id};
    struct task task = {.ctx = {.process = p, .index = index, .desc = &p->desc.workloads[index]},
                        .plugin = *plugin};
    struct diag d;
    char text[sizeof last->text];
    diag_init(&d);
    pthread_mutex_init(&task.report_lock, NULL);
    if (params_parse(&task.params, plugin->params, task.ctx.desc, &values, &p->arena, &d) !=
        COLLRUN_OK) {
        check_put(out, &task, last, d.text);
    } else {
        int code = plugin->check(&task.ctx);
        if (code != 0 || task.misuse[0]) {
            check_text(&task, code, text, sizeof text);
            check_put(out, &task, last, text);
        }
    }
    pthread_mutex_destroy(&task.report_lock);
}

static void check_workload(struct process *p, uint32_t index, FILE *out)
{
    const struct desc_workload *w = &p->desc.workloads[index];
    struct collrun_workload plugin;
    struct check_last last = {0};
    struct diag d;
    fputc('\036', stderr); /* a record separator: what follows is of this plugin */
    if (plugin_open_workload(w->plugin, &p->arena, &plugin, &d) == COLLRUN_OK && plugin.check &&
        params_check_table(plugin.params, "workload", w->plugin, &d) == COLLRUN_OK) {
        for (uint32_t i = 0; i < w->ranks.n && last.lines < LINES_MAX; i++) {
            p->rank = w->ranks.items[i];
            check_rank(p, &plugin, index, out, &last);
        }
    }
    fprintf(out, "{\"workload\":%u,\"done\":true}\n", index);
    fflush(out);
}

static bool check_read(struct process *p, FILE *in)
{
    struct buf bytes;
    struct diag d;
    buf_init(&bytes);
    for (;;) {
        enum { CHUNK = 65536 };
        void *room = buf_reserve(&bytes, CHUNK);
        size_t n = room ? fread(room, 1, CHUNK, in) : 0;
        if (n == 0)
            break;
        buf_commit(&bytes, n);
    }
    bool good = !bytes.failed && desc_decode(&p->arena, &p->desc, bytes.data, bytes.len, &d) == 0;
    if (!good)
        fprintf(stderr, "collrun-engine: stdin is not a job\n");
    buf_fini(&bytes);
    return good;
}

int check_workloads(char *const *args, int nargs, FILE *in, FILE *out)
{
    struct process *p = calloc(1, sizeof *p);
    if (p)
        p->control.broken = true;
    int code = p && check_read(p, in) ? 0 : 2;
    for (int i = 0; code == 0 && i < nargs; i++) {
        char *end;
        unsigned long index = strtoul(args[i], &end, 10);
        if (*end || index >= p->desc.nworkloads)
            code = 2;
        else
            check_workload(p, (uint32_t)index, out);
    }
    if (p)
        arena_fini(&p->arena);
    free(p);
    return code;
}
