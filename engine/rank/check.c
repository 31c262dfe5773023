/* SPDX-License-Identifier: Apache-2.0
 *
 * A check runs in a struct process that has the job and the rank, but no connection and no groups:
 * what it logs is dropped.
 */
#include "rank/check.h"

#include "core/error.h"
#include "core/plugin.h"
#include "core/process.h"
#include "rank/describe.h"
#include "rank/task.h"

#include <stdlib.h>
#include <string.h>

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
